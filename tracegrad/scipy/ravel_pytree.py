"""Ravel a pytree of numbers into one float64 vector, on which SciPy's solvers work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.errors import DTypeError, ShapeError, located
from tracegrad.ops import Carrier

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = ["Vector", "array_if_list"]


class Vector:
    """Layout of the leaves of a pytree in a vector, one after the other, each in C order.

    Unpacked leaves have the original shapes. Floating leaves have the original dtypes, and other leaves are float64.
    `api_name` is the public function, `name` its argument.

    `DTypeError` if a leaf is no real number or array of real numbers, and ValueError if there are no leaves.

    >>> vector = Vector("minimize", "x0", {"w": np.ones((2, 2)), "b": 3.0})
    >>> vector.pack({"w": np.eye(2), "b": 5.0})
    array([5., 1., 0., 0., 1.])
    >>> vector.unpack(np.arange(5.0))["w"]
    array([[1., 2.],
           [3., 4.]])
    """

    def __init__(self, api_name: str, name: str, x: object):
        leaves, self.structure = tree.flatten(x)
        self.api_name, self.name, self.paths = api_name, name, tree.paths(x)
        kinds: list[Any] = [leaf if isinstance(leaf, Carrier) else np.asarray(leaf) for leaf in leaves]
        for kind, leaf, path in zip(kinds, leaves, self.paths):
            if kind.dtype.kind not in "fiub":
                raise DTypeError(
                    located(f"{api_name}: {name}{path} must be a real number or an array of such, got {leaf!r}")
                )
        self.shapes = tuple([kind.shape for kind in kinds])
        self.dtypes = tuple([kind.dtype if kind.dtype.kind == "f" else np.dtype(np.float64) for kind in kinds])
        self.cuts = tuple(accumulate(map(math.prod, self.shapes), initial=0))
        self.size = self.cuts[-1]
        if not self.size:
            raise ValueError(located(f"{api_name}: {name} has no elements"))
        self.flat = self.shapes == ((self.size,),) and self.dtypes == (np.float64,) and self.is_array

    @property
    def is_array(self) -> bool:
        """Whether the pytree is a single array."""
        return self.structure == _LEAF

    @property
    def key(self) -> Any:
        """Return the cache key: equal keys mean equal layouts."""
        return self.structure, self.shapes, self.dtypes

    def pack(self, x: object, trailing: tuple[int, ...] = ()) -> Array:
        """Pack a pytree of this structure into a vector; a list is converted to an array.

        The leaves may have additional trailing axes. ShapeError for another structure or shape.
        """
        if self.is_array and isinstance(x, list | tuple):
            x = np.reshape(joined(tree.leaves(x), trailing), (-1, *self.shapes[0][1:], *trailing))
        leaves, structure = tree.flatten(x)
        if not tree.alike(structure, self.structure):
            self._refuse(f"the structure {structure}", self.structure)
        for leaf, shape, path in zip(leaves, self.shapes, self.paths):
            if np.shape(leaf) != shape + trailing:
                result, wanted = np.shape(leaf), shape + trailing
                self._refuse(f"{path or 'a leaf'} of shape {result}", f"{self.name}{path} has {wanted}")
        return joined(leaves, trailing)

    def _refuse(self, actual: object, wanted: object) -> None:
        raise ShapeError(located(f"{self.api_name}: {actual} does not fit {self.name}: {wanted}"))

    def unpack(self, v: object) -> Any:
        """Unpack a vector, ndarray or traced, into a pytree."""
        return v if self.flat else self.along(v, ())

    def unpack_fields(self, result: dict[str, Any], *names: str) -> None:
        """Unpack the vectors of this layout among these fields of a solver's result."""
        for name in names:
            if name in result and np.shape(result[name]) == (self.size,):
                result[name] = self.unpack(result[name])

    def along(self, v: Any, trailing: tuple[int, ...]) -> Any:
        """Unpack an array into a pytree; its first axis is the vector, and its other axes trail in each leaf."""
        leaves = [np.reshape(v[i:j], shape + trailing) for shape, (i, j) in zip(self.shapes, pairwise(self.cuts))]
        leaves = [leaf if dtype == np.float64 else leaf.astype(dtype) for leaf, dtype in zip(leaves, self.dtypes)]
        return tree.unflatten(self.structure, [leaf if leaf.shape else leaf[()] for leaf in leaves])

    def spread(self, end: object, default: float) -> Any:
        """Pack a bound into a vector: a number, or a pytree of arrays that broadcast to the leaves.

        None means `default`.
        """
        if end is None or np.isscalar(end):
            return np.full(self.size, default if end is None else end, np.float64)
        bounds = tree.flatten_up_to(self.structure, end)
        return joined([np.broadcast_to(default if x is None else x, s) for x, s in zip(bounds, self.shapes)])

    def element_name(self, i: int) -> str:
        """Return the name of element `i` of the vector in terms of the pytree.

        >>> Vector("minimize", "x0", {"w": np.ones((2, 2)), "b": 3.0}).element_name(3)
        "x0['w'][1, 0]"
        """
        k = next(k for k, cut in enumerate(self.cuts) if i < cut) - 1
        index = np.unravel_index(i - self.cuts[k], self.shapes[k])
        return f"{self.name}{self.paths[k]}" + (f"[{', '.join(map(str, index))}]" if index else "")


_LEAF = tree.structure(0.0)
_NUMBERS = (bool, int, float, np.generic)


def joined(leaves: Sequence[Any], trailing: tuple[int, ...] = ()) -> Array:
    """Flatten leaves, ndarrays or traced values, and concatenate them as float64; trailing axes stay axes."""
    rows: list[Any] = [leaf if isinstance(leaf, Carrier) else np.asarray(leaf, np.float64) for leaf in leaves]
    rows = [np.reshape(row, (-1, *trailing)) for row in rows]
    rows = [row if row.dtype == np.float64 else row.astype(np.float64) for row in rows]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def array_if_list(x: object) -> Any:
    """Convert a list of numbers to an array, as SciPy does; return other values unchanged.

    >>> array_if_list([1, 2]), array_if_list((np.ones(2), 3.0))
    (array([1, 2]), (array([1., 1.]), 3.0))
    """
    if isinstance(x, list | tuple) and all(
        isinstance(leaf, bool | int | float | np.generic) for leaf in tree.leaves(x)
    ):
        return np.asarray(x)
    return x
