"""Find the addresses of the safepoint functions that long loops call (`tracegrad.codegen.instr.safepoints`)."""

from __future__ import annotations

import ctypes
import threading
from functools import cache

from tracegrad.codegen.instr.safepoints import POLL_SYMBOLS, poll_module
from tracegrad.platform.libraries import address
from tracegrad.platform.processes import at_fork
from tracegrad.runtime.compile import jit
from tracegrad.runtime.execution.entry_callable import unsupported_reason

_main_thread = ctypes.c_int64()


@cache
def safepoint_address(released: bool) -> int:
    """The address of the safepoint function for programs called with, or without the GIL; 0 if there is none."""
    if unsupported_reason() is not None:
        return 0
    for name in POLL_SYMBOLS:
        jit.define_symbol(name, address(ctypes.pythonapi, name))
    jit.define_symbol("tg_main_thread", ctypes.addressof(_main_thread))
    _note_main_thread()
    name = "tg_poll.free" if released else "tg_poll.held"
    return _code(name).address(name)


@cache
def _code(name: str) -> jit.NativeCode:
    return jit.load_ir(lambda: poll_module(name), name, "cold")


def _note_main_thread() -> None:
    _main_thread.value = threading.main_thread().ident or 0


at_fork(in_child=_note_main_thread)
