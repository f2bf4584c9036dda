"""Reuse the memory of dead outputs for new ones: a NumPy memory handler (NEP 49).

The first touch of fresh memory costs a page fault per page, which outweighs the arithmetic of a large output. The C
library returns large blocks to the system as soon as they are free. The handler allocates large outputs of compiled
programs and retains freed blocks, at most IDLE_BYTES in at most SLOTS blocks, for outputs of about the same size. An
output in a block is an ordinary array that owns its data. NumPy returns the memory to the handler when the array dies.

The handler is LLVM IR. It needs no lock, because NumPy allocates and frees under the GIL. Free-threaded builds have no
handler (`entry_callable.unsupported_reason`).
"""

from __future__ import annotations

import ctypes
from functools import cache
from string import Template
from typing import Any

from tracegrad.codegen.entry.entry_point import HUGE_BYTES
from tracegrad.runtime.compile import jit
from tracegrad.target.cache_lines import BLOCK_OFFSET, LINE, PAGE
from tracegrad.target.tuning import TUNING

__all__ = ["IDLE_BYTES", "LARGE_BYTES", "SLOTS", "idle_bytes", "memory_handler", "release_idle"]

LARGE_BYTES = TUNING.memory.min_retained_bytes
IDLE_BYTES = TUNING.memory.max_idle_bytes
SLOTS = TUNING.memory.max_idle_blocks
BLOCK_OFFSETS = TUNING.memory.num_block_offsets

_POOL = Template("""
; A block is 64 bytes of header, its capacity and what the C library gave, and the data. That begins in one of $PLACES
; places of a page in turn, of which NumPy's large arrays have the first (see `codegen.plan.arena`).
@slots = internal global [$SLOTS x ptr] zeroinitializer        ; idle blocks, or null
@victim = internal global i64 0                                ; the slot to empty next
@place = internal global i64 0                                 ; of the next large block
@idle = internal global i64 0                                  ; bytes in idle blocks
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)

define internal void @empty(ptr %slot) {
  %block = load ptr, ptr %slot
  %vacant = icmp eq ptr %block, null
  br i1 %vacant, label %done, label %release
release:
  %capacity = load i64, ptr %block
  %before = load i64, ptr @idle
  %after = sub i64 %before, %capacity
  store i64 %after, ptr @idle
  store ptr null, ptr %slot
  call void @give_back(ptr %block)
  br label %done
done:
  ret void
}

define internal void @give_back(ptr %block) {
  %at = getelementptr i64, ptr %block, i64 1
  %memory = load ptr, ptr %at
  call void @free(ptr %memory)
  ret void
}

define void @tg_pool_clear() {
entry:
  br label %next
next:
  %i = phi i64 [0, %entry], [%j, %one]
  %more = icmp slt i64 %i, $SLOTS
  br i1 %more, label %one, label %done
one:
  %slot = getelementptr ptr, ptr @slots, i64 %i
  call void @empty(ptr %slot)
  %j = add i64 %i, 1
  br label %next
done:
  ret void
}

define i64 @tg_pool_idle() {
  %bytes = load i64, ptr @idle
  ret i64 %bytes
}

define ptr @tg_pool_malloc(ptr %context, i64 %size) {
entry:
  %overflows = icmp ugt i64 %size, $MOST
  br i1 %overflows, label %fail, label %first
first:
  %slack = lshr i64 %size, 3
  %most = add i64 %size, %slack
  %is_small = icmp ult i64 %size, $LARGE_BYTES
  br i1 %is_small, label %fresh, label %next

next:                                              ; an idle block that fits with little waste
  %i = phi i64 [0, %first], [%j, %unfit]
  %more = icmp slt i64 %i, $SLOTS
  br i1 %more, label %look, label %fresh
look:
  %slot = getelementptr ptr, ptr @slots, i64 %i
  %block = load ptr, ptr %slot
  %vacant = icmp eq ptr %block, null
  br i1 %vacant, label %unfit, label %measure
measure:
  %capacity = load i64, ptr %block
  %enough = icmp uge i64 %capacity, %size
  %frugal = icmp ule i64 %capacity, %most
  %fits = and i1 %enough, %frugal
  br i1 %fits, label %take, label %unfit
unfit:
  %j = add i64 %i, 1
  br label %next
take:
  store ptr null, ptr %slot
  %before = load i64, ptr @idle
  %after = sub i64 %before, %capacity
  store i64 %after, ptr @idle
  br label %give

fresh:
  %room = select i1 %is_small, i64 127, i64 $ROOM    ; header, and up to a multiple of 64; or two pages more
  %padded = add i64 %size, %room
  %bytes = and i64 %padded, -64
  %new = call ptr @aligned_alloc(i64 64, i64 %bytes)
  %none = icmp eq ptr %new, null
  br i1 %none, label %again, label %stamp
again:                                             ; what lies idle may be what lacks
  call void @tg_pool_clear()
  %retried = call ptr @aligned_alloc(i64 64, i64 %bytes)
  %still_none = icmp eq ptr %retried, null
  br i1 %still_none, label %fail, label %stamp
stamp:
  %memory = phi ptr [%new, %fresh], [%retried, %again]
  %number = load i64, ptr @place
  %is_last = icmp eq i64 %number, $LAST
  %up_one = add i64 %number, 1
  %following = select i1 %is_last, i64 0, i64 %up_one
  %following_place = select i1 %is_small, i64 %number, i64 %following
  store i64 %following_place, ptr @place
  %begin = ptrtoint ptr %memory to i64
  %behind = add i64 %begin, 4159                   ; a header, and up to a page
  %whole = and i64 %behind, -4096
  %steps = mul i64 %number, $STEP_BYTES
  %within = and i64 %steps, 4095
  %chosen = add i64 %whole, %within
  %next_line = add i64 %begin, 64
  %first_byte = select i1 %is_small, i64 %next_line, i64 %chosen
  %skip = sub i64 %first_byte, %begin
  %usable = sub i64 %bytes, %skip
  %before_data = sub i64 %skip, 64
  %made = getelementptr i8, ptr %memory, i64 %before_data
  store i64 %usable, ptr %made
  %memory_at = getelementptr i64, ptr %made, i64 1
  store ptr %memory, ptr %memory_at
  %is_huge = icmp uge i64 %usable, $HUGE_BYTES
  br i1 %is_huge, label %advise, label %give
advise:
  %up = add i64 %begin, 4095
  %page_address = and i64 %up, -4096
  %page = inttoptr i64 %page_address to ptr
  %skipped = sub i64 %page_address, %begin
  %length = sub i64 %bytes, %skipped
  %ignored = call i32 @madvise(ptr %page, i64 %length, i32 14)
  br label %give

give:
  %given = phi ptr [%block, %take], [%made, %stamp], [%made, %advise]
  %data = getelementptr i8, ptr %given, i64 64
  ret ptr %data
fail:
  ret ptr null
}

define ptr @tg_pool_calloc(ptr %context, i64 %count, i64 %width) {
  %size = mul i64 %count, %width                   ; NumPy has checked the product
  %data = call ptr @tg_pool_malloc(ptr %context, i64 %size)
  %none = icmp eq ptr %data, null
  br i1 %none, label %done, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %data, i8 0, i64 %size, i1 false)
  br label %done
done:
  ret ptr %data
}

define ptr @tg_pool_realloc(ptr %context, ptr %old, i64 %size) {
  %data = call ptr @tg_pool_malloc(ptr %context, i64 %size)
  %none = icmp eq ptr %data, null
  %first = icmp eq ptr %old, null
  %nothing_to_copy = or i1 %none, %first
  br i1 %nothing_to_copy, label %done, label %copy
copy:
  %block = getelementptr i8, ptr %old, i64 -64
  %capacity = load i64, ptr %block
  %length = call i64 @llvm.umin.i64(i64 %capacity, i64 %size)
  call void @llvm.memcpy.p0.p0.i64(ptr %data, ptr %old, i64 %length, i1 false)
  call void @tg_pool_free(ptr %context, ptr %old, i64 0)
  br label %done
done:
  ret ptr %data
}

define void @tg_pool_free(ptr %context, ptr %data, i64 %ignored) {
entry:
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %done, label %measure
measure:
  %block = getelementptr i8, ptr %data, i64 -64
  %capacity = load i64, ptr %block
  %large = icmp uge i64 %capacity, $LARGE_BYTES
  %bounded = icmp ule i64 %capacity, $IDLE_BYTES
  %worth_keeping = and i1 %large, %bounded
  br i1 %worth_keeping, label %make_room, label %release
release:
  call void @give_back(ptr %block)
  br label %done

make_room:                                         ; empty slots in turn until one is vacant and the sum fits
  %at = load i64, ptr @victim
  %slot = getelementptr ptr, ptr @slots, i64 %at
  %next = add i64 %at, 1
  %wrapped = urem i64 %next, $SLOTS
  store i64 %wrapped, ptr @victim
  call void @empty(ptr %slot)
  %idle = load i64, ptr @idle
  %sum = add i64 %idle, %capacity
  %fits = icmp ule i64 %sum, $IDLE_BYTES
  br i1 %fits, label %keep, label %make_room
keep:
  store ptr %block, ptr %slot
  store i64 %sum, ptr @idle
  br label %done
done:
  ret void
}
""")


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
    names = {
        "SLOTS": SLOTS,
        "LARGE_BYTES": LARGE_BYTES,
        "IDLE_BYTES": IDLE_BYTES,
        "HUGE_BYTES": HUGE_BYTES,
        "MOST": 2**62,
        "PLACES": BLOCK_OFFSETS,
        "LAST": BLOCK_OFFSETS - 1,
        "STEP_BYTES": BLOCK_OFFSET * LINE,
        "ROOM": 127 + 2 * PAGE,
    }
    return jit.load_ir(lambda: _POOL.substitute(names), "tracegrad_pool", "cold")


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
