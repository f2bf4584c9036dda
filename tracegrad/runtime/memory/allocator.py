"""Reuse the memory of dead outputs for new ones: a NumPy memory handler (NEP 49).

The first touch of fresh memory costs a page fault per page, which outweighs the arithmetic of a large output. The C
library returns large blocks to the system as soon as they are free. The handler allocates large outputs of compiled
programs and retains freed blocks, at most IDLE_BYTES in at most SLOTS blocks, for outputs of about the same size. An
output in a block is an ordinary array that owns its data. NumPy returns the memory to the handler when the array dies.

The handler is LLVM IR. A thread never waits for another one that uses the idle blocks, as happens without a GIL: it
allocates from, or frees to the C library.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from tracegrad.codegen.entry.entry_point import HUGE_BYTES
from tracegrad.llvmir.template import ir_template
from tracegrad.platform.memory import MAX_PAGE_BYTES
from tracegrad.runtime.compile import jit
from tracegrad.target.cache_lines import BLOCK_OFFSET, LINE, PAGE
from tracegrad.target.tuning import TUNING

LARGE_BYTES = TUNING.memory.min_retained_bytes
IDLE_BYTES = TUNING.memory.max_idle_bytes
SLOTS = TUNING.memory.max_idle_blocks
BLOCK_OFFSETS = TUNING.memory.num_block_offsets


class _Allocator(ctypes.Structure):
    """The structure PyDataMem_Handler of numpy/ndarraytypes.h."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


@cache
def _code() -> jit.NativeCode:
    return jit.load_ir(_source, "tracegrad_pool", "cold")


def _source() -> str:
    return ir_template(
        "runtime/memory/allocator.ll",
        num_slots=SLOTS,
        min_retained_bytes=LARGE_BYTES,
        max_idle_bytes=IDLE_BYTES,
        min_huge_bytes=HUGE_BYTES,
        max_bytes=2**62,
        last_offset=BLOCK_OFFSETS - 1,
        offset_step=BLOCK_OFFSET * LINE,
        slack_bytes=127 + 2 * PAGE,
        last_byte_of_page=MAX_PAGE_BYTES - 1,
        page_mask=-MAX_PAGE_BYTES,
    )


def _make_immortal(obj: object) -> None:
    """Keep an object alive until the process ends, because arrays may die after every module and need their handler."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))


@cache
def memory_handler() -> Any:
    """The capsule for NumPy's `PyDataMem_SetHandler`."""
    code = _code()
    functions = [code.address(f"tg_pool_{name}") for name in ("malloc", "calloc", "realloc", "free")]
    allocator = _Allocator(b"tracegrad", 1, None, *functions)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = ctypes.c_char_p(b"mem_handler")
    capsule = new(ctypes.addressof(allocator), name, None)
    for obj in (allocator, name, capsule):
        _make_immortal(obj)
    return capsule


def idle_bytes() -> int:
    """The bytes of dead outputs retained for new ones.

    >>> idle_bytes() <= IDLE_BYTES
    True
    """
    return int(ctypes.PYFUNCTYPE(ctypes.c_int64)(_code().address("tg_pool_idle"))())


def release_idle() -> None:
    """Return the memory of dead outputs to the C library.

    >>> release_idle()
    >>> idle_bytes()
    0
    """
    ctypes.PYFUNCTYPE(None)(_code().address("tg_pool_clear"))()
