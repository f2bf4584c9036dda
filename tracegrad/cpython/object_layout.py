"""Find where CPython and NumPy keep the fields of objects in memory, and whether instances have hidden fields."""

from __future__ import annotations

import struct

__all__ = ["has_dict", "has_hidden_fields"]

_POINTER = struct.calcsize("P")


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
