"""Emit safepoints: long loops poll for signals about every few milliseconds.

A loop calls one of the functions

    i32 tg_look.held()   if the program holds the GIL
    i32 tg_look.free()   if the program was called without the GIL

Both return 0, or `INTERRUPTED` when a signal handler has raised and its exception is set. Python calls handlers in the
main thread only. In another thread, `held` lets other threads take the GIL for a moment, and `free` does nothing.
Threads of the pool, which Python does not know, may call both.
"""

from __future__ import annotations

from string import Template

from tracegrad.target.tuning import TUNING

__all__ = ["INTERRUPTED", "POLL_SYMBOLS", "iterations_between_polls", "poll_module"]

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
    return Template(_HELD if name.endswith("held") else _FREE).substitute(name=f'@"{name}"', interrupted=INTERRUPTED)


_HELD = """
declare ptr @PyGILState_GetThisThreadState()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyErr_CheckSignals()

define i32 $name() {
  %state = call ptr @PyGILState_GetThisThreadState()
  %unknown = icmp eq ptr %state, null
  br i1 %unknown, label %go_on, label %look
look:
  %saved = call ptr @PyEval_SaveThread()
  call void @PyEval_RestoreThread(ptr %saved)
  %raised = call i32 @PyErr_CheckSignals()
  %none = icmp eq i32 %raised, 0
  br i1 %none, label %go_on, label %leave
leave:
  ret i32 $interrupted
go_on:
  ret i32 0
}
"""

_FREE = """
@tg_main_thread = external global i64
declare i64 @PyThread_get_thread_ident()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()

define i32 $name() {
  %main = load atomic i64, ptr @tg_main_thread monotonic, align 8
  %this = call i64 @PyThread_get_thread_ident()
  %is_main = icmp eq i64 %main, %this
  br i1 %is_main, label %look, label %go_on
look:
  %before = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %before)
  %none = icmp eq i32 %raised, 0
  br i1 %none, label %go_on, label %leave
leave:
  ret i32 $interrupted
go_on:
  ret i32 0
}
"""
