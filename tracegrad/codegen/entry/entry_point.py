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

from tracegrad.codegen.entry.signature import (
    SLOT_BYTES,
    ContainerLayout,
    DisjointCheck,
    Flag,
    GuardSlot,
    Word,
)
from tracegrad.codegen.instr.safepoints import INTERRUPTED
from tracegrad.cpython.object_layout import OFFSETS
from tracegrad.cpython.threads import is_free_threaded
from tracegrad.llvmir.template import ir_template
from tracegrad.platform.memory import advises_huge_pages
from tracegrad.target.tuning import TUNING

ENTRY = "tg_entry"
HUGE_BYTES = TUNING.memory.min_huge_bytes if advises_huge_pages() else 2**62


def entry_ir() -> str:
    """Emit the LLVM IR of the module that defines `tg_entry`.

    It links functions and types of CPython and functions of the C library by name. From NumPy's C API table it needs
    `tg_PyArray_New`, `tg_PyArray_Scalar` and `tg_PyDataMem_SetHandler`. It also needs the type `tg_PyArray_Type`, the
    object `tg_MISS`, NumPy's usual error state `tg_USUAL`, and the address of another harmless one at `tg_HARMLESS`.

    >>> "define ptr @tg_entry" in entry_ir()
    True
    """
    prologue = ir_template(
        "codegen/entry/prologue.ll",
        Word=Word.__members__,
        GuardSlot=GuardSlot.__members__,
        ContainerLayout=ContainerLayout.__members__,
        Offset=OFFSETS,
    )
    call = ir_template(
        "codegen/entry/call.ll",
        Word=Word.__members__,
        Flag=Flag.__members__,
        DisjointCheck=DisjointCheck.__members__,
        Offset=OFFSETS,
        good_flags=0x0101,  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
        aligned=0x0100,
        slot_bytes=SLOT_BYTES,
        interrupted=INTERRUPTED,
        stack_arena=TUNING.memory.stack_arena,
        huge_page=2**21,
        huge_bytes=HUGE_BYTES,
    )
    items = ir_template(f"codegen/entry/{'without' if is_free_threaded() else 'with'}_gil.ll")
    return call + items + prologue
