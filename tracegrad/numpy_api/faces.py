"""Attribute `__class__` of a carried value: users see the NumPy or Python class of the value.

`isinstance`, class patterns of `match`, `functools.singledispatchmethod` and visitors read this attribute, also in code
that no trace rewrites. Modules of tracegrad see the carrier's own class.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.errors import PACKAGE, lost

__all__ = ["REWRITTEN", "Faced", "agreed", "has", "itself", "stands_for"]

# The replacement of a class in rewritten code.
REWRITTEN: dict[type, Any] = {}
_LOADS = frozenset([dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in dis.opmap])


def stands_for(x: Any) -> type:
    """Return the NumPy or Python type that a carried value represents."""
    if x.weak:
        return {"f": float, "i": int, "b": bool, "c": complex}[x.dtype.kind]
    if x.shape or not getattr(x, "_immutable_scalars", False):
        return np.ndarray
    scalar: type = x.dtype.type
    return scalar


def agreed(x: Any, ask: Callable[[type], Any]) -> Any:
    """Return the result of a class query on a carried value.

    Arrays from outside may have a class that no traced value has, such as `np.memmap`. The trace ends if the result
    would differ for that class.
    """
    cls = stands_for(x)
    answer = ask(cls)
    world: Any = getattr(getattr(x, "builder", None), "world", None)
    if cls is not np.ndarray or world is None or not world.open:
        return answer
    if ask(np.memmap) is not answer:
        world.natives.asked_for_class(x)
    for other in world.natives.classes_of_arrays:
        if ask(other) is not answer:
            raise world.builder.gives_up(
                f"it asks for the class of an array, and one from outside is a {other.__name__}, which no traced value "
                "is; pass np.asarray(x), and what its class says as another argument"
            )
    return answer


def itself(cls: type) -> type:
    return cls


def has(x: Any, name: str) -> bool:
    """Whether the class that a carried value represents has an attribute."""
    return bool(agreed(x, lambda cls: hasattr(cls, name) or (cls is np.memmap and name in _OF_MEMORY_MAPS)))


_OF_MEMORY_MAPS = ("_mmap", "filename", "mode", "offset")  # attributes of its instances only


@functools.cache
def _is_ours(filename: str) -> bool:
    return filename.startswith(PACKAGE)


class Faced:
    """Carrier of an array or a number, whose `__class__` is another class in users' code."""

    __slots__ = ()

    @property
    def __class__(self) -> Any:
        frame = sys._getframe(1)
        return self._own_face() if _is_ours(frame.f_code.co_filename) else _outward(self, frame)

    @__class__.setter
    def __class__(self, cls: type) -> None:
        _set_class(self, cls)

    def _own_face(self) -> Any:
        return type(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        carried: Any = self
        if carried._is_differentiated():
            raise lost("pickling")
        value = carried.concrete("pickle")
        return (type(value.item()), (value.item(),)) if carried.weak else value.__reduce_ex__(protocol)


_set_class: Any = vars(object)["__class__"].__set__


def _outward(x: Any, frame: Any) -> Any:
    """Return the class for the code of a frame.

    If the frame runs rewritten code and loads an attribute, the result is that code's replacement of the class. C code
    gets the class itself.
    """
    loads = frame.f_code.co_code[frame.f_lasti] in _LOADS
    result = agreed(x, itself) if loads else stands_for(x)
    if type(frame.f_globals) is dict or result not in REWRITTEN:
        return result
    return REWRITTEN[result] if loads else result
