"""Named tuples for functions with several results, one class for each function, printed as in PyTorch."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

_TYPES: dict[str, Any] = {}


def return_type(name: str, *fields: str) -> Any:
    """Return the named tuple class `name` with `fields`, in this order; the same class at every call.

    >>> sort = return_type("sort", "values", "indices")
    >>> result = sort([1.0, 3.0], [1, 0])
    >>> values, indices = result
    >>> result.indices is indices
    True
    >>> print(result)
    tracegrad.return_types.sort(
    values=[1.0, 3.0],
    indices=[1, 0])
    """
    result = _TYPES.get(name)
    if result is not None:
        if result._fields != fields:
            raise ValueError(f"the return type {name} has the fields {result._fields}, not {fields}")
        return result
    output = _TYPES[name] = type(name, (namedtuple(name, fields),), {"__slots__": (), "__repr__": _repr})
    output.__module__ = __name__
    # Pickle looks for the class in this module.
    globals()[name] = output
    return output


def _repr(self: Any) -> str:
    values = [repr(x) if hasattr(x, "_edge") else x for x in self]  # a Tensor without axes is formatted as its number
    parts = ",\n".join(f"{field}={value}" for field, value in zip(self._fields, values))
    return f"tracegrad.return_types.{type(self).__name__}(\n{parts})"
