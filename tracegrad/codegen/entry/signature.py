"""Describe the signature of a compiled program and lay out its argument descriptor block.

The program is a function `i32 tg_run(i64 *values, void **pointers)`. Its pointers are the data of the inputs, then of
the outputs (all C-contiguous), then an arena of scratch memory aligned to 64 bytes. It returns 0 on success. Python
calls it through one entry point that all programs share (`tracegrad.codegen.entry.entry_point`).

The *block* is an int64 array, the `self` of a builtin, that describes one program and its shapes to the entry point.
Its addresses are valid in this process only, so a block is never stored on disk. In words of 8 bytes:

    header      see `Word`
    inputs      for each: type object, dtype identity (0 for a Python float), ndim, dimensions; for an array that is not
                in row-major order: 0, dtype identity, ndim, dimensions, strides, and the offset in bytes from its first
                element to its lowest address
    outputs     for each: NumPy's number of the dtype (-1 - k if it is the input k), dtype descriptor, ndim, dimensions
    values      the run-time values of the program: `tg_run` gets the address of the first
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tracegrad.cpython.object_layout import dtype_identity
from tracegrad.errors import ShapeError, UnsupportedError
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.typing import DType, NDArray


RUN = "tg_run"
SLOT_BYTES = 16  # bytes for the value of a 0-d output; a complex long double does not fit
Shape = tuple[int, ...]


@record(frozen=True, slots=True)
class InputSpec:
    """One argument: an exact ndarray of this dtype and number of dimensions, or an exact Python float.

    A float is passed as a pointer to its value, with dtype float64 and ndim 0. An array has its `strides`, except along
    axes with one element, or row-major order. The pointer is to the element with the lowest address.
    """

    dtype: np.dtype[Any]
    ndim: int
    kind: Literal["array", "float"] = "array"
    strides: Shape | None = None

    def __post_init__(self) -> None:
        _require_numeric(self.dtype)
        if self.kind == "float" and (self.ndim != 0 or self.dtype != np.float64):
            raise UnsupportedError(f"a float has dtype float64 and ndim 0, not {self.dtype}, {self.ndim}")


@record(frozen=True, slots=True)
class OutputSpec:
    """One result: a new ndarray, or a NumPy scalar if ndim is 0. With a `donor`, it is the input of that number, an
    array of the same dtype and shape that the program overwrites."""

    dtype: np.dtype[Any]
    ndim: int
    donor: int = -1

    def __post_init__(self) -> None:
        _require_numeric(self.dtype)


@record(frozen=True, slots=True)
class EntrySpec:
    """The signature of a program. Without `returns_tuple` there is exactly one output, returned by itself.

    Raises `UnsupportedError` for dtypes that are not numbers in native byte order.

    >>> x = np.dtype(np.float64)
    >>> inputs = (InputSpec(x, 2), InputSpec(x, 0, "float"))
    >>> EntrySpec(inputs, (OutputSpec(x, 1),), returns_tuple=False).inputs == inputs
    True
    """

    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    returns_tuple: bool

    def __post_init__(self) -> None:
        if not self.returns_tuple and len(self.outputs) != 1:
            raise UnsupportedError(f"{len(self.outputs)} outputs can only be returned as a tuple")


def _require_numeric(dtype: DType) -> None:
    if dtype.kind not in "biufc" or not dtype.isnative or dtype.itemsize > SLOT_BYTES:
        raise UnsupportedError(f"no entry point for dtype {dtype}; convert the array to a numeric dtype")


class Flag(IntFlag):
    """Bits of the block's first word."""

    RELEASE_GIL = 1
    RETURNS_TUPLE = 2


class Word(IntEnum):
    """The header of the block."""

    FLAGS = 0
    RUN = 1  # address of tg_run
    VALUES = 2  # address of the first value
    INPUTS = 3  # number of inputs
    OUTPUTS = 4
    ARENA_BYTES = 5  # a multiple of 64
    ARENA = 6  # address of the arena between calls; 0 before the first call, and while a call uses it
    HANDLER = 7  # NumPy memory handler (a capsule) for the outputs; 0 for NumPy's default
    TRAPS = 8  # the context variable with NumPy's floating-point error state, 0 if it does not matter
    GUARD_SLOTS = 9  # address of the guarded locations (`GuardSlot`)
    GUARD_SLOT_COUNT = 10
    CONTAINERS = 11  # address of the containers to unpack, 0 if all arguments are inputs
    DISJOINT = 12  # address of the pairs of inputs that must be disjoint (`DisjointCheck`)
    DISJOINT_COUNT = 13
    HEADER = 14  # words of header


class GuardSlot(IntEnum):
    """A guarded location: its address, the expected object, and whether an equal object of the same type will do."""

    SPACE = 0  # a dict, or 0
    AT = 1  # a key of it, or the address of a pointer
    WANTED = 2  # 0 if there must be none
    EXACT = 3
    SIZE = 4


class DisjointCheck(IntEnum):
    """A check that two inputs are disjoint: the number of an overwritten input and of another one, their sizes in
    bytes, and the NumPy flags that the overwritten one must have. Both may be the same array."""

    WRITTEN = 0
    OTHER = 1
    WRITTEN_BYTES = 2
    OTHER_BYTES = 3
    FLAGS = 4
    SIZE = 5


class ContainerLayout(IntEnum):
    """An argument to unpack. The number of arguments is followed by one record per argument: its type (dict, list or
    tuple) and length, then, in order, the keys (0 for none) and the numbers of its inputs. An argument that is itself
    an input has type 0 and length 1."""

    TYPE = 0
    LENGTH = 1
    ITEMS = 2


def descriptor_block(
    spec: EntrySpec,
    input_shapes: Sequence[Shape],
    output_shapes: Sequence[Shape],
    values: Sequence[int],
    *,
    arena_bytes: int,
    release_gil: bool,
) -> NDArray:
    """Build the block of one program and shape; the caller fills in RUN and HANDLER.

    `input_shapes` has a shape per input, () for a float. Raises `ShapeError` when shapes do not fit the spec.

    >>> x = np.dtype(np.float64)
    >>> spec = EntrySpec((InputSpec(x, 1),), (OutputSpec(x, 0),), returns_tuple=False)
    >>> words = descriptor_block(spec, [(5,)], [()], [42], arena_bytes=100, release_gil=False)
    >>> int(words[Word.ARENA_BYTES]), words[Word.HEADER + 2 :].tolist()[:2], words[-1].item()
    (128, [1, 5], 42)
    """
    wanted = [x.ndim for x in spec.inputs] + [y.ndim for y in spec.outputs]
    if [len(shape) for shape in (*input_shapes, *output_shapes)] != wanted:
        raise ShapeError(f"shapes {input_shapes} -> {output_shapes} do not have the dimensions of {spec}")
    flags = (Flag.RELEASE_GIL if release_gil else 0) | (Flag.RETURNS_TUPLE if spec.returns_tuple else 0)
    words = [0] * Word.HEADER
    words[Word.FLAGS] = int(flags)
    words[Word.INPUTS], words[Word.OUTPUTS] = len(spec.inputs), len(spec.outputs)
    words[Word.ARENA_BYTES] = -(-arena_bytes // 64) * 64
    for x, shape in zip(spec.inputs, input_shapes, strict=True):
        kind = id(float) if x.kind == "float" else id(np.ndarray) if x.strides is None else 0
        words += [kind, 0 if x.kind == "float" else _dtype_identity(x.dtype.char), len(shape), *shape]
        words += [] if x.strides is None else [*x.strides, lowest(shape, x.strides)]
    for y, shape in zip(spec.outputs, output_shapes, strict=True):
        words += [y.dtype.num if y.donor < 0 else -1 - y.donor, _descriptor(y.dtype), len(shape), *shape]
    block = np.array([*words, *values], np.int64)
    block[Word.VALUES] = block.ctypes.data + 8 * len(words)
    return block


def lowest(shape: Shape, strides: Shape) -> int:
    """The offset, in bytes, from the first element of an array to its lowest address."""
    return sum([(n - 1) * s for n, s in zip(shape, strides) if s < 0])


@functools.cache
def _dtype_identity(char: str) -> int:
    """The identity of the dtypes with this character. Descriptors of unpickled arrays share it; long and long long,
    which are equal, do not."""
    return dtype_identity(id(np.dtype(char)))


def _descriptor(dtype: DType) -> int:
    # NumPy never frees the descriptor object of a type number, but it may free a copy of it.
    return id(np.dtype(dtype.char))
