"""Wrap NumPy ufuncs that traced code calls by name, so that they see traced values in lists.

NumPy converts a list to an array without looking for traced values, and the numbers would lose their derivatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.numpy_api.creation import array
from tracegrad.numpy_api.operands import peer_of
from tracegrad.trace.values.array_creation import making
from tracegrad.trace.values.tracer import Tracer

METHODS = ("reduce", "accumulate", "reduceat", "outer", "at")
_array: Any = making(np.array, array)


def _as_array(x: object) -> object:
    return _array(x) if type(x) in (list, tuple) and isinstance(peer_of(x), Tracer) else x


class Listed:
    """Wrapper of a ufunc, or of a method of one."""

    __slots__ = ("index_argument", "real")

    def __init__(self, real: Any, index_argument: int | None = None):
        self.real, self.index_argument = (
            real,
            index_argument,
        )  # position of an index argument, where a tuple is no array

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if any([type(x) in (list, tuple) for x in args]):  # noqa: C419
            args = tuple([x if k == self.index_argument else _as_array(x) for k, x in enumerate(args)])
        return self.real(*args, **kwargs)

    def __getattr__(self, name: str) -> object:
        result = getattr(self.real, name)
        return Listed(result, 1 if name == "at" else None) if name in METHODS else result


LISTED: dict[Any, Any] = {f: Listed(f) for f in vars(np).values() if isinstance(f, np.ufunc)}
NAMES = frozenset([name for name, f in vars(np).items() if isinstance(f, np.ufunc)])
