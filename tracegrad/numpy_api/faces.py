"""Attribute `__class__` of a carried value: users see the NumPy or Python class of the value.

`isinstance`, class patterns of `match`, `functools.singledispatchmethod` and visitors read this attribute, also in code
that no trace rewrites. Modules of tracegrad see the carrier's own class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

import numpy as np

from tracegrad.cpython.frames import frame_at, loads_attribute
from tracegrad.errors import PACKAGE, lost

if TYPE_CHECKING:
    from types import FrameType


_Result = TypeVar("_Result")

# The replacement of a class in rewritten code.
REWRITTEN: dict[type, Any] = {}


def represented_type(x: Any) -> type:
    """Return the NumPy or Python type that a carried value represents."""
    if x.weak:
        return {"f": float, "i": int, "b": bool, "c": complex}[x.dtype.kind]
    if x.shape or not getattr(x, "_immutable_scalars", False):
        return np.ndarray
    scalar: type = x.dtype.type
    return scalar


def agreed_result(x: Any, class_query: Callable[[type], _Result]) -> _Result:
    """Return the result of a class query on a carried value.

    Arrays from outside may have a class that no traced value has, such as `np.memmap`. The trace ends if the result
    would differ for that class.
    """
    cls = represented_type(x)
    result = class_query(cls)
    world: Any = getattr(getattr(x, "builder", None), "world", None)
    if cls is not np.ndarray or world is None or not world.open:
        return result
    if class_query(np.memmap) is not result:
        world.natives.note_class_read(x)
    for other in world.natives.classes_of_arrays:
        if class_query(other) is not result:
            raise world.builder.abort(
                f"it asks for the class of an array, and one from outside is a {other.__name__}, which no traced value "
                "is; pass np.asarray(x), and what its class says as another argument"
            )
    return result


def itself(cls: type) -> type:
    return cls


def has(x: Any, name: str) -> bool:
    """Whether the class that a carried value represents has an attribute."""
    return bool(agreed_result(x, lambda cls: hasattr(cls, name) or (cls is np.memmap and name in _OF_MEMORY_MAPS)))


_OF_MEMORY_MAPS = ("_mmap", "filename", "mode", "offset")  # attributes of its instances only


@functools.cache
def _is_internal_file(filename: str) -> bool:
    return filename.startswith(PACKAGE)


class Faced:
    """Carrier of an array or a number, whose `__class__` is another class in users' code."""

    __slots__ = ()

    @property
    def __class__(self) -> Any:
        frame = frame_at(1)
        return self._internal_class() if _is_internal_file(frame.f_code.co_filename) else _outward(self, frame)

    @__class__.setter
    def __class__(self, cls: type) -> None:
        _set_class(self, cls)

    def _internal_class(self) -> type:
        return type(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[object, ...]:
        carried: Any = self
        if carried._is_differentiated():
            raise lost("pickling")
        value = carried.concrete("pickle")
        return (type(value.item()), (value.item(),)) if carried.weak else value.__reduce_ex__(protocol)


_set_class: Any = vars(object)["__class__"].__set__


def _outward(x: Any, frame: FrameType) -> type:
    """Return the class for the code of a frame.

    If the frame runs rewritten code and loads an attribute, the result is that code's replacement of the class. C code
    gets the class itself.
    """
    loads = loads_attribute(frame)
    result = agreed_result(x, itself) if loads else represented_type(x)
    if type(frame.f_globals) is dict or result not in REWRITTEN:
        return result
    return REWRITTEN[result] if loads else result
