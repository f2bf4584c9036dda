"""Find where CPython and NumPy keep the fields of objects in memory.

Machine code reads arrays and floats at `OFFSETS`, which `array_layout_is_known` compares with live objects. Other
offsets are looked for in live objects. The fields follow the header of an object, whose last field is the type.
"""

from __future__ import annotations

import struct
import types
from functools import cache
from typing import Any

import numpy as np

from tracegrad.cpython.raw_memory import array_at, pointer_at

_POINTER = struct.calcsize("P")
# The bytes of an object's header: a reference count and the type, and more without a GIL.
_HEADER = object.__basicsize__
# Offsets of fields that machine code reads, in bytes, in an array, a float and a dtype descriptor. The identity of a
# dtype is its kind, letter, byte order and number, in 8 bytes.
OFFSETS = {
    "TYPE": _HEADER - _POINTER,
    "DATA": _HEADER,
    "ND": _HEADER + 8,
    "DIMS": _HEADER + 16,
    "STRIDES": _HEADER + 24,
    "DESCR": _HEADER + 40,
    "ARRAY_FLAGS": _HEADER + 48,
    "FLOAT": _HEADER,
    "DTYPE": _HEADER + 8,
}
_ALIGNED, _ROW_MAJOR = 0x100, 0x001
# The offset of the length in objects of variable size.
_LENGTH = _HEADER


def array_layout_is_known() -> bool:
    """Whether `OFFSETS` give the right fields of two arrays and a float."""

    def read(obj: object, field: str, dtype: Any = np.uint64, count: int = 1) -> list[Any]:
        result: list[Any] = array_at(id(obj) + OFFSETS[field], count, dtype).tolist()
        return result

    whole = np.arange(24.0).reshape(2, 3, 4)
    strided = np.zeros((5, 6), np.int32)[:, ::2]
    for x, flags in ((whole, _ALIGNED | _ROW_MAJOR), (strided, _ALIGNED)):
        dims, strides = (array_at(read(x, name)[0], x.ndim, np.int64).tolist() for name in ("DIMS", "STRIDES"))
        kind, letter, order, _, number = struct.unpack(
            "cccbi", array_at(id(x.dtype) + OFFSETS["DTYPE"], 8, np.uint8).tobytes()
        )
        matches = (
            read(x, "TYPE") == [id(np.ndarray)],
            read(x, "DATA") == [x.ctypes.data],
            read(x, "ND", np.int32) == [x.ndim],
            tuple(dims) == x.shape,
            tuple(strides) == x.strides,
            read(x, "DESCR") == [id(x.dtype)],
            kind + letter + order == f"{x.dtype.kind}{x.dtype.char}{x.dtype.byteorder}".encode(),
            number == x.dtype.num,
            read(x, "ARRAY_FLAGS", np.int32)[0] & (_ALIGNED | _ROW_MAJOR) == flags,
        )
        if not all(matches):
            return False
    some = float("1.5e300")
    return read(some, "TYPE") == [id(float)] and read(some, "FLOAT", np.float64) == [some]


def dtype_identity(descriptor: int) -> int:
    """The identity of a dtype from the address of its descriptor: a number that equal dtypes share."""
    return int(array_at(descriptor + OFFSETS["DTYPE"], 1, np.int64)[0])


# -- offsets that are found in live objects ------------------------------------------------------------
def offset_of(instance: object, *examples: tuple[object, object]) -> int | None:
    """The offset at which each object has a pointer to its partner; None if there is none."""
    for offset in range(_HEADER, object.__sizeof__(instance), _POINTER):
        if all(pointer_at(id(x) + offset) == id(held) for x, held in examples):
            return offset
    return None


@cache
def cell_offset() -> int | None:
    """The offset of the content pointer in a cell; None if it is not found."""
    one, two = object(), object()
    a, b = types.CellType(one), types.CellType(two)
    return offset_of(a, (a, one), (b, two))


@cache
def code_offset() -> int | None:
    """The offset of the code in a function; None if it is not found."""

    def first() -> None: ...
    def second() -> None: ...

    return offset_of(first, (first, first.__code__), (second, second.__code__))


@cache
def mro_offset() -> int | None:
    """The offset of the method resolution order in a class; None if it is not found."""

    class MroBase: ...

    class Second(MroBase): ...

    return offset_of(MroBase, (MroBase, MroBase.__mro__), (Second, Second.__mro__))


@cache
def length_offset() -> int | None:
    """The offset of the length in a dict; None if it is not found."""
    examples = [dict.fromkeys(range(n)) for n in (0, 3, 1000)]
    return _LENGTH if all(pointer_at(id(x) + _LENGTH) == len(x) for x in examples) else None


# -- sizes -----------------------------------------------------------------------------------------
def has_dict(cls: type) -> bool:
    """Whether instances of a class have a dict of attributes.

    >>> has_dict(int), has_dict(type("Own", (), {}))
    (False, True)
    """
    return cls.__dictoffset__ != 0


def has_hidden_fields(cls: type, known: int) -> bool:
    """Whether instances of a class have more fields in memory than those of its base and `known` pointers.

    >>> has_hidden_fields(list, 0), has_hidden_fields(type("Two", (), {"__slots__": ("a", "b")}), 2)
    (True, False)
    """
    base = cls.__base__
    assert base is not None
    return cls.__basicsize__ - base.__basicsize__ > _POINTER * known or cls.__itemsize__ != base.__itemsize__
