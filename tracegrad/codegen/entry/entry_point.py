"""Emit the entry point of compiled programs: a CPython builtin (`METH_FASTCALL`) in LLVM IR.

The entry point is `PyObject *(self, PyObject *const *args, n)`. A call

1. unpacks dicts, lists and tuples of inputs, and holds references to their items until it returns;
2. checks NumPy's error state, the guarded objects (`native_guards`), and the number, types, dtypes, shapes and strides
   of the inputs. An input to be overwritten must share memory with no other input. A mismatch returns the object MISS,
   and the caller decides (another specialization, a retrace, an error);
3. allocates outputs of one or more dimensions as new arrays, and the arena;
4. calls `tg_run`, without the GIL if a flag says so. A nonzero status frees the outputs and returns MISS, or null if a
   signal handler has raised;
5. returns the output, or a tuple of outputs. A 0-d output becomes a NumPy scalar, as in NumPy's reductions.

LLVM does not optimize the entry point (`optnone`), because that would double its compile time and gain little per call.
One entry point, compiled once, serves all programs. The data of one program is in the block, the `self` of the builtin
(`tracegrad.codegen.entry.signature`).

The field offsets belong to `PyArrayObject_fields` in NumPy 2 (numpy/ndarraytypes.h) and `PyFloatObject` in CPython.
`tracegrad.runtime.execution.entry_callable` checks the offsets on live objects before it uses the entry point.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from string import Template

from tracegrad.codegen.entry.prologue import AROUND
from tracegrad.codegen.entry.signature import (
    DTYPE_OFFSET,
    SLOT_BYTES,
    ContainerLayout,
    DisjointCheck,
    Flag,
    GuardSlot,
    Word,
)
from tracegrad.codegen.instr.safepoints import INTERRUPTED
from tracegrad.target.tuning import TUNING

__all__ = ["ENTRY", "HUGE_BYTES", "OFFSETS", "entry_ir"]

ENTRY = "tg_entry"
HUGE_BYTES = TUNING.memory.min_huge_bytes if sys.platform == "linux" else 2**62

# Field offsets that the machine code uses, in bytes.
OFFSETS = {
    "TYPE": 8,
    "DATA": 16,
    "ND": 24,
    "DIMS": 32,
    "STRIDES": 40,
    "DESCR": 56,
    "ARRAY_FLAGS": 64,
    "FLOAT": 16,
    "DTYPE": DTYPE_OFFSET,
}
_SIZES = {
    "GOOD_FLAGS": 0x0101,  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
    "ALIGNED": 0x0100,
    "SLOT_BYTES": SLOT_BYTES,
    "INTERRUPTED": INTERRUPTED,
    "STACK_ARENA": TUNING.memory.stack_arena,
    "HUGE_PAGE": 2**21,
    "HUGE_BYTES": HUGE_BYTES,
}


_RECORDS: dict[str, type[IntEnum]] = {"DISJOINT": DisjointCheck, "GUARD_SLOT": GuardSlot, "CONTAINER": ContainerLayout}


def entry_ir() -> str:
    """Emit the LLVM IR of the module that defines `tg_entry`.

    It links functions and types of CPython and functions of the C library by name. From NumPy's C API table it needs
    `tg_PyArray_New`, `tg_PyArray_Scalar` and `tg_PyDataMem_SetHandler`. It also needs the type `tg_PyArray_Type`, the
    object `tg_MISS`, NumPy's usual error state `tg_USUAL`, and the address of another harmless one at `tg_HARMLESS`.

    >>> "define ptr @tg_entry" in entry_ir()
    True
    """
    names = {str(member.name): int(member) for member in (*Flag, *Word)}
    names |= {f"{prefix}_{x.name}": int(x) for prefix, fields in _RECORDS.items() for x in fields}
    return Template(_ENTRY + AROUND).substitute(names, **OFFSETS, **_SIZES)


_ENTRY = """
@tg_PyArray_Type = external global i8
@tg_MISS = external global i8
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)                       ; does nothing for null
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)        ; steals its item
declare ptr @PyErr_NoMemory()
declare void @PyErr_Clear()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)
declare ptr @tg_PyArray_New(ptr, i32, ptr, i32, ptr, ptr, i32, i32, ptr)
declare ptr @tg_PyArray_Scalar(ptr, ptr, ptr)
declare ptr @tg_PyDataMem_SetHandler(ptr)          ; returns the former one, as a new reference
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal ptr @field(ptr %object, i64 %offset) alwaysinline {
  %address = getelementptr i8, ptr %object, i64 %offset
  %value = load ptr, ptr %address
  ret ptr %value
}
define internal i32 @field32(ptr %object, i64 %offset) alwaysinline {
  %address = getelementptr i8, ptr %object, i64 %offset
  %value = load i32, ptr %address
  ret i32 %value
}
define internal i64 @word(ptr %block, i64 %index) alwaysinline {
  %address = getelementptr i64, ptr %block, i64 %index
  %value = load i64, ptr %address
  ret i64 %value
}
define internal ptr @address(ptr %block, i64 %index) alwaysinline {
  %address = getelementptr i64, ptr %block, i64 %index
  %value = load ptr, ptr %address
  ret ptr %value
}

; 1, 2: `codegen.entry.prologue`.
define internal ptr @call(ptr %block, ptr %args) noinline optnone {
start:
  %stack_arena = alloca [$STACK_ARENA x i8], align 64
  %inputs = call i64 @word(ptr %block, i64 $INPUTS)
  %holds = call i1 @holds(ptr %block)
  br i1 %holds, label %prepare, label %miss

prepare:
  %outputs = call i64 @word(ptr %block, i64 $OUTPUTS)
  %both = add i64 %inputs, %outputs
  %all = add i64 %both, 1
  %pointers = alloca ptr, i64 %all
  %made = alloca ptr, i64 %outputs                 ; the output objects, null where there is none yet
  %slots = alloca [$SLOT_BYTES x i8], i64 %outputs, align 16   ; the values of 0-d outputs
  %made_bytes = shl i64 %outputs, 3
  call void @llvm.memset.p0.i64(ptr %made, i8 0, i64 %made_bytes, i1 false)
  %input_records = getelementptr i64, ptr %block, i64 $HEADER
  br label %next_input

; The inputs.
next_input:
  %i = phi i64 [0, %prepare], [%i_next, %input_done]
  %record = phi ptr [%input_records, %prepare], [%record_next, %input_done]
  %more_inputs = icmp slt i64 %i, %inputs
  br i1 %more_inputs, label %input, label %look_apart

input:
  %arg_at = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg_at
  %type = call ptr @field(ptr %arg, i64 $TYPE)
  %type_wanted = call ptr @address(ptr %record, i64 0)
  %dtype_wanted = call i64 @word(ptr %record, i64 1)
  %nd_wanted = call i64 @word(ptr %record, i64 2)
  %dims_wanted = getelementptr i64, ptr %record, i64 3
  %by_strides = icmp eq ptr %type_wanted, null
  %type_there = select i1 %by_strides, ptr @tg_PyArray_Type, ptr %type_wanted
  %type_fits = icmp eq ptr %type, %type_there
  br i1 %type_fits, label %kind, label %miss

kind:
  %is_float = icmp eq i64 %dtype_wanted, 0
  br i1 %is_float, label %float, label %array

float:
  %float_at = getelementptr i8, ptr %arg, i64 $FLOAT
  br label %input_done

array:
  %descr = call ptr @field(ptr %arg, i64 $DESCR)
  %dtype_at = getelementptr i8, ptr %descr, i64 $DTYPE
  %dtype = load i64, ptr %dtype_at
  %dtype_fits = icmp eq i64 %dtype, %dtype_wanted
  %nd32 = call i32 @field32(ptr %arg, i64 $ND)
  %nd = sext i32 %nd32 to i64
  %nd_fits = icmp eq i64 %nd, %nd_wanted
  %flags32 = call i32 @field32(ptr %arg, i64 $ARRAY_FLAGS)
  %flags_wanted = select i1 %by_strides, i32 $ALIGNED, i32 $GOOD_FLAGS
  %flags_masked = and i32 %flags32, %flags_wanted
  %flags_fit = icmp eq i32 %flags_masked, %flags_wanted
  %two_fit = and i1 %dtype_fits, %nd_fits
  %three_fit = and i1 %two_fit, %flags_fit
  br i1 %three_fit, label %array_dims, label %miss

array_dims:
  %dims = call ptr @field(ptr %arg, i64 $DIMS)
  br label %next_dim
next_dim:
  %d = phi i64 [0, %array_dims], [%d_next, %dim]
  %more_dims = icmp slt i64 %d, %nd_wanted
  br i1 %more_dims, label %dim, label %array_fits
dim:
  %size = call i64 @word(ptr %dims, i64 %d)
  %size_wanted = call i64 @word(ptr %dims_wanted, i64 %d)
  %d_next = add i64 %d, 1
  %size_fits = icmp eq i64 %size, %size_wanted
  br i1 %size_fits, label %next_dim, label %miss

array_fits:
  %data = call ptr @field(ptr %arg, i64 $DATA)
  br i1 %by_strides, label %lying, label %input_done

; An array that is not in row-major order has the strides it is read by.
lying:
  %strides = call ptr @field(ptr %arg, i64 $STRIDES)
  %strides_wanted = getelementptr i64, ptr %dims_wanted, i64 %nd_wanted
  br label %next_axis
next_axis:
  %a = phi i64 [0, %lying], [%a_next, %axis]
  %more_axes = icmp slt i64 %a, %nd_wanted
  br i1 %more_axes, label %axis, label %lying_fits
axis:
  %length = call i64 @word(ptr %dims_wanted, i64 %a)
  %stride = call i64 @word(ptr %strides, i64 %a)
  %stride_wanted = call i64 @word(ptr %strides_wanted, i64 %a)
  %a_next = add i64 %a, 1
  %is_one = icmp eq i64 %length, 1
  %same_stride = icmp eq i64 %stride, %stride_wanted
  %stride_fits = or i1 %is_one, %same_stride
  br i1 %stride_fits, label %next_axis, label %miss
lying_fits:
  %lowest_offset = call i64 @word(ptr %strides_wanted, i64 %nd_wanted)
  %lowest = getelementptr i8, ptr %data, i64 %lowest_offset
  %strides_end = getelementptr i64, ptr %strides_wanted, i64 1
  br label %input_done

input_done:
  %input_pointer = phi ptr [%float_at, %float], [%data, %array_fits], [%lowest, %lying_fits]
  %sizes_at = phi ptr [%dims_wanted, %float], [%dims_wanted, %array_fits], [%strides_end, %lying_fits]
  %input_at = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %input_pointer, ptr %input_at
  %record_next = getelementptr i64, ptr %sizes_at, i64 %nd_wanted
  %i_next = add i64 %i, 1
  br label %next_input

; Inputs that are written to.
look_apart:
  %apart = call ptr @address(ptr %block, i64 $DISJOINT)
  %apart_count = call i64 @word(ptr %block, i64 $DISJOINT_COUNT)
  br label %next_apart
next_apart:
  %q = phi i64 [0, %look_apart], [%q_next, %disjoint]
  %more_apart = icmp slt i64 %q, %apart_count
  br i1 %more_apart, label %one_apart, label %allocate
one_apart:
  %apart_offset = mul i64 %q, $DISJOINT_SIZE
  %apart_record = getelementptr i64, ptr %apart, i64 %apart_offset
  %written = call i64 @word(ptr %apart_record, i64 $DISJOINT_WRITTEN)
  %other = call i64 @word(ptr %apart_record, i64 $DISJOINT_OTHER)
  %written_at = getelementptr ptr, ptr %args, i64 %written
  %written_array = load ptr, ptr %written_at
  %written_flags = call i32 @field32(ptr %written_array, i64 $ARRAY_FLAGS)
  %flags_word = call i64 @word(ptr %apart_record, i64 $DISJOINT_FLAGS)
  %flags_needed = trunc i64 %flags_word to i32
  %flags_found = and i32 %written_flags, %flags_needed
  %may_be_written = icmp eq i32 %flags_found, %flags_needed
  br i1 %may_be_written, label %spans, label %miss
spans:
  %written_data = call i64 @word(ptr %pointers, i64 %written)
  %other_data = call i64 @word(ptr %pointers, i64 %other)
  %written_bytes = call i64 @word(ptr %apart_record, i64 $DISJOINT_WRITTEN_BYTES)
  %other_bytes = call i64 @word(ptr %apart_record, i64 $DISJOINT_OTHER_BYTES)
  %written_end = add i64 %written_data, %written_bytes
  %other_end = add i64 %other_data, %other_bytes
  %is_before = icmp ule i64 %written_end, %other_data
  %is_behind = icmp ule i64 %other_end, %written_data
  %is_itself = icmp eq i64 %written, %other
  %is_beside = or i1 %is_before, %is_behind
  %is_fine = or i1 %is_beside, %is_itself
  br i1 %is_fine, label %disjoint, label %miss
disjoint:
  %q_next = add i64 %q, 1
  br label %next_apart

; 3. Outputs, under the block's memory handler if it has one; NumPy's is put back at once.
allocate:
  %handler = call ptr @address(ptr %block, i64 $HANDLER)
  %own_memory = icmp eq ptr %handler, null
  br i1 %own_memory, label %handled, label %swap
swap:
  %former = call ptr @tg_PyDataMem_SetHandler(ptr %handler)
  %not_swapped = icmp eq ptr %former, null
  br i1 %not_swapped, label %failed, label %handled
handled:
  %replaced = phi ptr [null, %allocate], [%former, %swap]
  br label %next_output

next_output:
  %k = phi i64 [0, %handled], [%k_next, %output_done]
  %output_record = phi ptr [%record, %handled], [%output_record_next, %output_done]
  %more_outputs = icmp slt i64 %k, %outputs
  br i1 %more_outputs, label %output, label %allocated
output:
  %output_nd = call i64 @word(ptr %output_record, i64 2)
  %output_dims = getelementptr i64, ptr %output_record, i64 3
  %is_scalar = icmp eq i64 %output_nd, 0
  br i1 %is_scalar, label %scalar_slot, label %new_array
scalar_slot:
  %slot = getelementptr [$SLOT_BYTES x i8], ptr %slots, i64 %k
  br label %output_done
new_array:
  %number = call i64 @word(ptr %output_record, i64 0)
  %is_given = icmp slt i64 %number, 0
  br i1 %is_given, label %given_array, label %own_array
given_array:                                       ; an input, which the program overwrites
  %donor = sub i64 -1, %number
  %donor_at = getelementptr ptr, ptr %args, i64 %donor
  %donor_array = load ptr, ptr %donor_at
  call void @Py_IncRef(ptr %donor_array)
  %given_at = getelementptr ptr, ptr %made, i64 %k
  store ptr %donor_array, ptr %given_at
  br label %array_made
own_array:
  %number32 = trunc i64 %number to i32
  %output_nd32 = trunc i64 %output_nd to i32
  %new = call ptr @tg_PyArray_New(ptr @tg_PyArray_Type, i32 %output_nd32, ptr %output_dims, i32 %number32,
                                  ptr null, ptr null, i32 0, i32 0, ptr null)
  %made_at = getelementptr ptr, ptr %made, i64 %k
  store ptr %new, ptr %made_at
  %no_array = icmp eq ptr %new, null
  br i1 %no_array, label %allocated, label %array_made
array_made:
  %array_object = phi ptr [%donor_array, %given_array], [%new, %own_array]
  %new_data = call ptr @field(ptr %array_object, i64 $DATA)
  br label %output_done
output_done:
  %output_pointer = phi ptr [%slot, %scalar_slot], [%new_data, %array_made]
  %output_index = add i64 %inputs, %k
  %output_at = getelementptr ptr, ptr %pointers, i64 %output_index
  store ptr %output_pointer, ptr %output_at
  %output_record_next = getelementptr i64, ptr %output_dims, i64 %output_nd
  %k_next = add i64 %k, 1
  br label %next_output

allocated:
  %all_made = phi i1 [true, %next_output], [false, %own_array]
  %nothing_replaced = icmp eq ptr %replaced, null
  br i1 %nothing_replaced, label %restored, label %restore
restore:                                           ; Python code may run: it must not meet an exception
  br i1 %all_made, label %restore_quietly, label %restore_failed
restore_failed:
  call void @PyErr_Clear()
  br label %restore_quietly
restore_quietly:
  %ours = call ptr @tg_PyDataMem_SetHandler(ptr %replaced)
  call void @Py_DecRef(ptr %ours)
  call void @Py_DecRef(ptr %replaced)
  br i1 %all_made, label %find_arena, label %no_memory
restored:
  br i1 %all_made, label %find_arena, label %failed

; The arena: on the stack if small; else what the last call left, or new memory if another thread has that.
find_arena:
  %arena_bytes = call i64 @word(ptr %block, i64 $ARENA_BYTES)
  %arena_word = call ptr @address(ptr %block, i64 $ARENA)
  %arena_is_large = icmp ugt i64 %arena_bytes, $STACK_ARENA
  br i1 %arena_is_large, label %take_arena, label %go
take_arena:
  %kept_word = atomicrmw xchg ptr %arena_word, i64 0 acq_rel
  %kept = inttoptr i64 %kept_word to ptr
  %none_kept = icmp eq ptr %kept, null
  br i1 %none_kept, label %new_arena, label %go
new_arena:
  %is_huge = icmp uge i64 %arena_bytes, $HUGE_BYTES
  %alignment = select i1 %is_huge, i64 $HUGE_PAGE, i64 4096
  %up_to_page = add i64 %arena_bytes, 4095
  %arena_pages = and i64 %up_to_page, -4096
  %fresh = call ptr @aligned_alloc(i64 %alignment, i64 %arena_pages)
  %no_arena = icmp eq ptr %fresh, null
  br i1 %no_arena, label %no_memory, label %advise
advise:
  br i1 %is_huge, label %huge_arena, label %go
huge_arena:
  %ignored_advice = call i32 @madvise(ptr %fresh, i64 %arena_bytes, i32 14)   ; MADV_HUGEPAGE
  br label %go
go:
  %arena = phi ptr [%stack_arena, %find_arena], [%kept, %take_arena], [%fresh, %advise], [%fresh, %huge_arena]
  %arena_at = getelementptr ptr, ptr %pointers, i64 %both
  store ptr %arena, ptr %arena_at

; 4. The program.
  %flags = call i64 @word(ptr %block, i64 $FLAGS)
  %values = call ptr @address(ptr %block, i64 $VALUES)
  %program = call ptr @address(ptr %block, i64 $RUN)
  %release_bit = and i64 %flags, $RELEASE_GIL
  %keeps_gil = icmp eq i64 %release_bit, 0
  br i1 %keeps_gil, label %run, label %release
release:
  %saved = call ptr @PyEval_SaveThread()
  br label %run
run:
  %thread = phi ptr [null, %go], [%saved, %release]
  %status = call i32 %program(ptr %values, ptr %pointers)
  %kept_gil = icmp eq ptr %thread, null
  br i1 %kept_gil, label %ran, label %acquire
acquire:
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ran
ran:
  br i1 %arena_is_large, label %put_arena_back, label %arena_done
put_arena_back:
  %arena_value = ptrtoint ptr %arena to i64
  %surplus_word = atomicrmw xchg ptr %arena_word, i64 %arena_value acq_rel
  %surplus = inttoptr i64 %surplus_word to ptr
  call void @free(ptr %surplus)                    ; null, unless another thread was here
  br label %arena_done
arena_done:
  %succeeded = icmp eq i32 %status, 0
  br i1 %succeeded, label %next_box, label %stopped
stopped:
  %interrupted = icmp eq i32 %status, $INTERRUPTED
  br i1 %interrupted, label %failed, label %drop

; 5. The result.
next_box:
  %b = phi i64 [0, %arena_done], [%b_next, %box_done]
  %box_record = phi ptr [%record, %arena_done], [%box_record_next, %box_done]
  %more_boxes = icmp slt i64 %b, %outputs
  br i1 %more_boxes, label %box, label %finish
box:
  %box_nd = call i64 @word(ptr %box_record, i64 2)
  %is_array = icmp ne i64 %box_nd, 0
  br i1 %is_array, label %box_done, label %box_scalar
box_scalar:
  %box_slot = getelementptr [$SLOT_BYTES x i8], ptr %slots, i64 %b
  %box_descr = call ptr @address(ptr %box_record, i64 1)
  %scalar = call ptr @tg_PyArray_Scalar(ptr %box_slot, ptr %box_descr, ptr null)
  %box_at = getelementptr ptr, ptr %made, i64 %b
  store ptr %scalar, ptr %box_at
  %no_scalar = icmp eq ptr %scalar, null
  br i1 %no_scalar, label %failed, label %box_done
box_done:
  %box_size = add i64 %box_nd, 3
  %box_record_next = getelementptr i64, ptr %box_record, i64 %box_size
  %b_next = add i64 %b, 1
  br label %next_box

finish:
  %tuple_bit = and i64 %flags, $RETURNS_TUPLE
  %is_single = icmp eq i64 %tuple_bit, 0
  br i1 %is_single, label %single, label %tuple
single:
  %only = load ptr, ptr %made
  ret ptr %only
tuple:
  %result = call ptr @PyTuple_New(i64 %outputs)
  %no_tuple = icmp eq ptr %result, null
  br i1 %no_tuple, label %failed, label %next_item
next_item:
  %t = phi i64 [0, %tuple], [%t_next, %item]
  %more_items = icmp slt i64 %t, %outputs
  br i1 %more_items, label %item, label %full
item:
  %item_at = getelementptr ptr, ptr %made, i64 %t
  %item_object = load ptr, ptr %item_at
  %ignored = call i32 @PyTuple_SetItem(ptr %result, i64 %t, ptr %item_object)
  %t_next = add i64 %t, 1
  br label %next_item
full:
  ret ptr %result

; The other ways out: MISS, or null with an exception set. Both drop what was made.
no_memory:
  %nothing = call ptr @PyErr_NoMemory()
  br label %failed
failed:
  br label %drop
drop:
  %leaving = phi ptr [@tg_MISS, %stopped], [null, %failed]
  br label %next_drop
next_drop:
  %o = phi i64 [0, %drop], [%o_next, %drop_one]
  %more_drops = icmp slt i64 %o, %outputs
  br i1 %more_drops, label %drop_one, label %dropped
drop_one:
  %drop_at = getelementptr ptr, ptr %made, i64 %o
  %drop_object = load ptr, ptr %drop_at
  call void @Py_DecRef(ptr %drop_object)
  %o_next = add i64 %o, 1
  br label %next_drop
dropped:
  %is_error = icmp eq ptr %leaving, null
  br i1 %is_error, label %error, label %miss
error:
  ret ptr null
miss:
  call void @Py_IncRef(ptr @tg_MISS)
  ret ptr @tg_MISS
}
"""
