"""Create the Python callable of a program for one of its shapes, from its machine code.

`make_callable` makes the fast one: a builtin whose machine code (`tracegrad.codegen.entry.entry_point`) reads its
arguments from the array objects itself. `make_portable` makes an equivalent Python function, for builds whose object
layout is not known: other Pythons, 32 bits, or a NumPy whose arrays look different from what this module expects (it
checks some arrays before it trusts any).

Both return MISS when the arguments do not fit the compiled signature, or when the program itself reports a failure.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from tracegrad.codegen.entry.entry_point import ENTRY, HUGE_BYTES, entry_ir
from tracegrad.codegen.entry.signature import RUN, EntrySpec, InputSpec, Shape, Word, descriptor_block, lowest
from tracegrad.cpython.object_layout import array_layout_is_known, cell_offset
from tracegrad.cpython.threads import is_free_threaded
from tracegrad.platform.libraries import address, c_library
from tracegrad.platform.memory import has_aligned_alloc
from tracegrad.platform.processes import system_name
from tracegrad.runtime.compile import jit
from tracegrad.runtime.memory import allocator
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.utils.errstate import HARMLESS, TRAPS, USUAL

if TYPE_CHECKING:
    from tracegrad.typing import NDArray


class _Miss:
    """The type of MISS."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISS"


MISS: Final = _Miss()

_METH_FASTCALL = 0x0080
# Indices in NumPy's C API table, which are part of its ABI (numpy/__multiarray_api.h).
_ARRAY_TYPE = 2
_SET_HANDLER = "tg_PyDataMem_SetHandler"
_NUMPY_FUNCTIONS = {"tg_PyArray_Scalar": 60, "tg_PyArray_New": 93, _SET_HANDLER: 304}
_PYTHON_FUNCTIONS = (
    "Py_IncRef",
    "Py_DecRef",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyErr_NoMemory",
    "PyErr_Clear",
    "PyErr_Occurred",
    "PyContextVar_Get",
    "PyObject_RichCompareBool",
    "PyObject_Size",
    "PyDict_Next",
    "PyTuple_GetItem",
    "PyUnicode_Compare",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)
_WITH_GIL = ("PyDict_GetItemWithError", "PyList_GetItem")
_WITHOUT_GIL = ("PyDict_GetItemRef", "PyList_GetItemRef", "PyCriticalSection_Begin", "PyCriticalSection_End")


@cache
def unsupported_reason() -> str | None:
    """Why builtins cannot be created on this build of Python and NumPy; None if they can.

    >>> unsupported_reason() is None or "not known" in unsupported_reason()
    True
    """
    if sys.implementation.name != "cpython":
        return f"the object layout of {sys.implementation.name} is not known"
    if struct.calcsize("P") != 8:
        return "the object layout on 32 bits is not known"
    if not has_aligned_alloc():
        return f"a source of aligned memory is not known on {system_name()}"
    if numpy_table()[_ARRAY_TYPE] != id(np.ndarray) or not array_layout_is_known():
        return f"the array layout of NumPy {np.__version__} is not known"
    return None


def numpy_table() -> Any:
    """The function table of NumPy's C API."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
    return ctypes.cast(pointer(capsule, None), ctypes.POINTER(ctypes.c_size_t))


@cache
def _entry_code() -> jit.NativeCode:
    """The entry point of all programs, from the disk cache or compiled now; loaded once."""
    for name in (*_PYTHON_FUNCTIONS, *(_WITHOUT_GIL if is_free_threaded() else _WITH_GIL)):
        jit.define_symbol(name, address(ctypes.pythonapi, name))
    table = numpy_table()
    for name, index in _NUMPY_FUNCTIONS.items():
        jit.define_symbol(name, table[index])
    jit.define_symbol("tg_PyArray_Type", id(np.ndarray))
    jit.define_symbol("tg_MISS", id(MISS))
    jit.define_symbol("tg_USUAL", id(USUAL))
    jit.define_symbol("tg_HARMLESS", id(HARMLESS) + (cell_offset() or 0))
    for cls, name in ((dict, "PyDict_Type"), (list, "PyList_Type"), (str, "PyUnicode_Type")):
        jit.define_symbol(name, id(cls))
    return jit.load_ir(entry_ir, "tracegrad_entry")


@contextmanager
def retain_memory() -> Iterator[None]:
    """Retain the memory of large arrays that NumPy frees in this thread within the block, for later outputs."""
    if unsupported_reason() is not None:
        yield
        return
    exchange = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(numpy_table()[_NUMPY_FUNCTIONS[_SET_HANDLER]])
    before = exchange(allocator.memory_handler())
    try:
        yield
    finally:
        exchange(before)


class MachineCode(Protocol):
    """Machine code with the addresses of its functions, valid as long as it lives."""

    def address(self, symbol: str) -> int: ...


class _MethodDef(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _BuiltinSelf(np.ndarray[Any, Any]):
    """The `self` of a builtin; it keeps the objects that it points to alive."""

    keepalive: tuple[object, ...]


@cache
def _free() -> Any:
    function = c_library()["free"]
    function.argtypes, function.restype = [ctypes.c_void_p], None
    return function


class _RetainedArena:
    """The arena that the callables of one program retain between calls: its address, which entry points exchange for 0
    during a call. It is freed with the last callable, unless a new program takes it over.

    `bytes` is the number of bytes touched so far, `room` the size that is certainly allocated.
    """

    __slots__ = ("__weakref__", "bytes", "free", "room", "word")

    def __init__(self, size: int) -> None:
        self.bytes, self.room, self.free = size, _room_for(size), _free()
        self.word = np.zeros(1, np.int64)
        if size >= _LARGE_ARENA:
            self._take_over(size)
            release_arenas(_IDLE_ARENAS - size)
            _arenas.append(weakref.ref(self, _arenas.remove))

    def _take_over(self, size: int) -> None:
        """Take over an idle arena of at least `size` bytes, with few more touched: the one with most touched bytes, if
        any. Its program allocates a new one if it is called again, at the same cost as here."""
        if disabled("arena-sharing"):
            return
        idle = [x for ref in [*_arenas] if (x := ref()) is not None and x.word[0]]
        fitting = [x for x in idle if size <= x.room and x.bytes <= size + size // 4]
        if fitting:
            other = max(fitting, key=lambda x: x.bytes)
            address = _take_word(other.word.ctypes.data, 0)
            if address:  # else a call has taken it meanwhile
                self.bytes, self.room = max(size, other.bytes), min(self.room, other.room)
                self.word[0] = address

    def release(self) -> None:
        """Free the memory, unless a call uses it. The next call allocates new memory."""
        if self.word[0]:
            self.free(_take_word(self.word.ctypes.data, 0))

    def __del__(self) -> None:
        if hasattr(self, "word"):  # else an interrupt came in between
            self.free(int(self.word[0]))  # no call can use it any more


def _take_word(address: int, value: int) -> int:
    """Exchange the word at an address, and return its former value; calls in other threads exchange it too."""
    exchange = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
    before: int = exchange(_entry_code().address("tg_exchange"))(address, value)
    return before


_LARGE_ARENA = TUNING.memory.min_large_arena
_IDLE_ARENAS = TUNING.memory.max_idle_arenas
_MAX_ROOM = TUNING.memory.max_arena_room
_arenas: list[weakref.ref[_RetainedArena]] = []


def _room_for(size: int) -> int:
    """The bytes to allocate for an arena of this size: untouched pages have addresses but no memory, so a larger
    program can take over the arena later."""
    return size + min(size, _MAX_ROOM) if size >= HUGE_BYTES else size


def release_arena(entry: Any) -> None:
    """Free the arena of the program of this callable."""
    if isinstance(getattr(entry, "__self__", None), _BuiltinSelf):
        entry.__self__.keepalive[1].release()


def release_arenas(max_bytes: int = 0) -> None:
    """Free the oldest arenas, until the rest have at most `max_bytes` bytes.

    >>> release_arenas()
    """
    saved = [arena for ref in list(_arenas) if (arena := ref()) is not None and arena.word[0]]
    total = sum([arena.bytes for arena in saved])
    for arena in saved:
        if total <= max_bytes:
            break
        total -= arena.bytes
        arena.release()


def make_callable(
    code: MachineCode,
    spec: EntrySpec,
    *,
    input_shapes: Sequence[Shape],
    output_shapes: Sequence[Shape],
    arena_bytes: int = 0,
    values: Sequence[int] = (),
    release_gil: bool = False,
    name: str = "kernel",
) -> Callable[..., object]:
    """The callable of a program for one set of shapes: `f(*arguments)` returns its result, or MISS.

    `code` defines `i32 tg_run(i64 *values, void **pointers)`; see `signature`. `input_shapes` has one shape per input,
    () for a float. `values` are the int64 words passed to `tg_run`, floats by their bits. Results are new arrays. One
    arena of `arena_bytes` is reused between calls. Threads may call at the same time. A call raises `MemoryError` and,
    for keyword arguments, `TypeError`. Raises `ShapeError` for shapes that do not fit `spec`.

    Falls back to `make_portable` if `unsupported_reason()` is not None, or without `native-entry`.

    >>> code = jit.load_object(jit.compile_ir('''
    ...     define i32 @tg_run(ptr %values, ptr %pointers) {
    ...       %x = load ptr, ptr %pointers
    ...       %y.at = getelementptr ptr, ptr %pointers, i64 1
    ...       %y = load ptr, ptr %y.at
    ...       %value = load double, ptr %x
    ...       %double = fadd double %value, %value
    ...       store double %double, ptr %y
    ...       ret i32 0
    ...     }''', "doc"))
    >>> from tracegrad.codegen.entry.signature import OutputSpec
    >>> float64 = np.dtype(np.float64)
    >>> spec = EntrySpec((InputSpec(float64, 0, "float"),), (OutputSpec(float64, 0),), returns_tuple=False)
    >>> twice = make_callable(code, spec, input_shapes=[()], output_shapes=[()], name="twice")
    >>> twice(1.5), twice(1), twice()
    (np.float64(3.0), MISS, MISS)
    """
    portable = unsupported_reason() is not None or disabled("native-entry")
    room = arena_bytes if portable else _room_for(arena_bytes)
    descriptor = descriptor_block(spec, input_shapes, output_shapes, values, arena_bytes=room, release_gil=release_gil)
    if portable:
        return _portable(code, spec, descriptor, input_shapes, output_shapes, name, release_gil)
    descriptor[Word.RUN] = code.address(RUN)
    if _has_large_output(spec, output_shapes) and not disabled("output-reuse"):
        descriptor[Word.HANDLER] = id(allocator.memory_handler())
    return _builtin(descriptor, code, name, _RetainedArena(arena_bytes))


def can_watch(entry: object) -> bool:
    """Whether `watching` supports this callable."""
    return (
        isinstance(getattr(entry, "__self__", None), _BuiltinSelf) and TRAPS is not None and cell_offset() is not None
    )


def watching(
    entry: Any,
    guard_slots: Sequence[tuple[int, ...]],
    containers: Sequence[int],
    keepalive: object,
    disjoint_checks: Sequence[tuple[int, ...]] = (),
) -> Any:
    """A callable like `entry` that also returns MISS if NumPy's error state is stricter than warnings, if a guarded
    location (`signature.GuardSlot`) has changed, or if written inputs are not `disjoint_checks`
    (`signature.DisjointCheck`). With containers (`signature.ContainerLayout`) it unpacks its arguments. It keeps
    `keepalive` alive, but neither dicts nor objects at the locations."""
    before = entry.__self__
    descriptor = np.array(before)
    descriptor[Word.VALUES] += descriptor.ctypes.data - before.ctypes.data
    table, arranged, pairs = (np.array(x, np.int64) for x in (guard_slots, containers, disjoint_checks))
    descriptor[Word.TRAPS] = id(TRAPS)
    descriptor[Word.GUARD_SLOTS], descriptor[Word.GUARD_SLOT_COUNT] = table.ctypes.data, len(guard_slots)
    descriptor[Word.CONTAINERS] = arranged.ctypes.data if containers else 0
    descriptor[Word.DISJOINT], descriptor[Word.DISJOINT_COUNT] = pairs.ctypes.data, len(disjoint_checks)
    code, arena, *_ = before.keepalive
    return _builtin(descriptor, code, entry.__name__, arena, table, arranged, pairs, entry, keepalive)


@cache
def _new_builtin() -> Any:
    # Indexing makes ctypes create a separate object, whose types no other code sets.
    function = ctypes.pythonapi["PyCFunction_NewEx"]
    function.restype, function.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return function


def _builtin(
    descriptor: NDArray, code: object, name: str, arena: _RetainedArena, *keepalive: object
) -> Callable[..., object]:
    descriptor[Word.ARENA] = arena.word.ctypes.data
    block = descriptor.view(_BuiltinSelf)
    block.keepalive = (code, arena, *keepalive)
    builtin: Callable[..., Any] = _new_builtin()(ctypes.addressof(_method(name)), block, None)
    return builtin


def _method(name: str) -> _MethodDef:
    """The method definition of builtins with this name. It is never freed, because a builtin reads it when it dies, and
    in a cycle of objects its block is already empty then. Concurrent threads must get the same definition."""
    result = _methods.get(name)
    if result is None:
        output = _MethodDef(name.encode(), _entry_code().address(ENTRY), _METH_FASTCALL, None)
        result = _methods.setdefault(name, output)
    return result


_methods: dict[str, _MethodDef] = {}


def _has_large_output(spec: EntrySpec, shapes: Sequence[Shape]) -> bool:
    sizes = (math.prod(shape) * y.dtype.itemsize for y, shape in zip(spec.outputs, shapes, strict=True))
    return max(sizes, default=0) >= allocator.LARGE_BYTES


def make_portable(
    code: MachineCode,
    spec: EntrySpec,
    *,
    input_shapes: Sequence[Shape],
    output_shapes: Sequence[Shape],
    arena_bytes: int = 0,
    values: Sequence[int] = (),
    release_gil: bool = False,
    name: str = "kernel",
) -> Callable[..., object]:
    """The same as `make_callable`, by Python and ctypes: slower, but for any build."""
    descriptor = descriptor_block(
        spec, input_shapes, output_shapes, values, arena_bytes=arena_bytes, release_gil=release_gil
    )
    return _portable(code, spec, descriptor, input_shapes, output_shapes, name, release_gil)


def _portable(
    code: MachineCode,
    spec: EntrySpec,
    descriptor: NDArray,
    input_shapes: Sequence[Shape],
    output_shapes: Sequence[Shape],
    name: str,
    release_gil: bool,
) -> Callable[..., object]:
    prototype = ctypes.CFUNCTYPE if release_gil else ctypes.PYFUNCTYPE
    run: Any = prototype(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(code.address(RUN))
    run.keep = (descriptor, code)  # `run` itself has only an address
    arena_bytes, values_at = int(descriptor[Word.ARENA_BYTES]), int(descriptor[Word.VALUES])

    def call(*args: object) -> Any:
        if len(args) != len(spec.inputs):
            return MISS
        inputs, addresses = [], []
        for x, wanted, shape in zip(args, spec.inputs, input_shapes, strict=True):
            array = _portable_input(x, wanted, shape)
            if array is None:
                return MISS
            inputs.append(array)
            addresses.append(array.ctypes.data + (0 if wanted.strides is None else lowest(shape, wanted.strides)))
        outputs = [np.empty(shape, y.dtype) for y, shape in zip(spec.outputs, output_shapes, strict=True)]
        scratch = np.empty(arena_bytes + 64, np.uint8)
        addresses += [y.ctypes.data for y in outputs]
        addresses.append(-(-scratch.ctypes.data // 64) * 64)
        if run(values_at, (ctypes.c_void_p * len(addresses))(*addresses)):
            return MISS
        results = [y if y.ndim else y[()] for y in outputs]
        return tuple(results) if spec.returns_tuple else results[0]

    call.__name__ = call.__qualname__ = name
    return call


def _portable_input(x: object, wanted: InputSpec, shape: Shape) -> NDArray | None:
    """The argument as an array; None if it does not fit the compiled signature."""
    if wanted.kind == "float":
        return np.array(x) if type(x) is float else None
    if type(x) is not np.ndarray or x.dtype != np.dtype(wanted.dtype.char) or x.shape != shape:
        return None
    if wanted.strides is None:
        fits = x.flags.c_contiguous
    else:
        fits = all(s == t for n, s, t in zip(shape, x.strides, wanted.strides) if n != 1)
    return x if fits and x.flags.aligned else None
