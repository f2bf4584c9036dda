"""Emit safepoints: long loops poll for signals about every few milliseconds.

A loop calls one of the functions

    i32 tg_poll.held()   if the program holds the GIL
    i32 tg_poll.free()   if the program was called without the GIL

Both return 0, or `INTERRUPTED` when a signal handler has raised and its exception is set. Python calls handlers in the
main thread only. In another thread, `held` lets other threads take the GIL for a moment, and `free` does nothing.
Threads of the pool, which Python does not know, may call both.
"""

from __future__ import annotations

from tracegrad.llvmir.template import ir_template
from tracegrad.target.tuning import TUNING

INTERRUPTED = 5
POLL_COST = TUNING.threads.poll_cost
POLL_SYMBOLS = (
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyErr_CheckSignals",
    "PyGILState_Ensure",
    "PyGILState_GetThisThreadState",
    "PyGILState_Release",
    "PyThread_get_thread_ident",
)


def iterations_between_polls(cost: int) -> int:
    """The number of iterations of this cost between two safepoint polls, less one: a mask of low bits.

    >>> bin(iterations_between_polls(1_000_000)), iterations_between_polls(10**9)
    ('0b1111', 0)
    """
    return (1 << (POLL_COST // max(cost, 20)).bit_length() - 1) - 1 if cost <= POLL_COST else 0


def poll_module(name: str) -> str:
    """Emit the module that defines one of the two functions; `tg_main_thread` holds the number of the main thread."""
    return ir_template(f"codegen/instr/poll_{name.rpartition('.')[2]}.ll", interrupted=INTERRUPTED)
