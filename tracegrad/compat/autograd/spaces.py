"""Vector spaces of values: the linear operations on an array, or on a container of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from tracegrad import tree
from tracegrad.ops import Carrier

__all__ = ["ArrayVSpace", "ComplexArrayVSpace", "ContainerVSpace", "VSpace", "vspace"]


class VSpace:
    """Vector space of a value, the result of `vspace`; users' classes are registered for a type by `register`."""

    mappings: ClassVar[dict[type, Callable[[Any], VSpace]]] = {}
    iscomplex = False
    shape: Any
    size: int

    def zeros(self) -> Any:
        """Return the value of zeros."""
        raise NotImplementedError

    def ones(self) -> Any:
        """Return the value of ones."""
        raise NotImplementedError

    def standard_basis(self) -> Iterator[Any]:
        """Yield the values with one element 1 and, for complex values, the values with one element 1j."""
        raise NotImplementedError

    def randn(self) -> Any:
        """Draw a value of normal random numbers, from NumPy's global generator."""
        raise NotImplementedError

    def add(self, x: object, y: Any) -> Any:
        """Add two values; None is zero."""
        return y if x is None else x if y is None else self._add(x, y)

    mut_add = add

    def scalar_mul(self, x: object, a: object) -> Any:
        """Multiply a value by a number."""
        return self._scalar_mul(x, a)

    def inner_prod(self, x: object, y: object) -> Any:
        """Compute the real inner product of two values."""
        return self._inner_prod(x, y)

    def covector(self, x: object) -> Any:
        """Return the dual of a value: its conjugate."""
        return self._covector(x)

    def _add(self, x: Any, y: Any) -> Any:
        return x + y

    def _scalar_mul(self, x: Any, a: Any) -> object:
        return x * a

    def _inner_prod(self, x: object, y: object) -> object:
        raise NotImplementedError

    def _covector(self, x: object) -> object:
        return x

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self.size))

    def __repr__(self) -> str:
        return f"{type(self).__name__}_{vars(self)}"

    @classmethod
    def register(cls, value_type: type, vspace_maker: Callable[[object], VSpace] | None = None) -> None:
        """Register this class, or `vspace_maker`, for values of a type."""
        VSpace.mappings[value_type] = vspace_maker or cls


class ArrayVSpace(VSpace):
    """The space of real arrays of one shape and dtype."""

    def __init__(self, value: Any):
        value = value if isinstance(value, Carrier) else np.asarray(value)
        self.shape, self.dtype = value.shape, value.dtype

    @property
    def size(self) -> int:  # type: ignore[override]
        """Return the number of real components of a value."""
        return int(np.prod(self.shape))

    @property
    def ndim(self) -> int:
        """Return the number of axes of a value."""
        return len(self.shape)

    def zeros(self) -> Any:
        return np.zeros(self.shape, self.dtype)

    def ones(self) -> Any:
        return np.ones(self.shape, self.dtype)

    def standard_basis(self) -> Iterator[Any]:
        for index in np.ndindex(*self.shape):
            for unit in (1.0, 1.0j) if self.iscomplex else (1.0,):
                vector = self.zeros()
                vector[index] = unit
                yield vector

    def randn(self) -> Any:
        return np.array(np.random.standard_normal(self.shape)).astype(self.dtype)  # noqa: NPY002 what users seed

    def _inner_prod(self, x: Any, y: Any) -> object:
        return np.dot(np.ravel(x), np.ravel(y))


class ComplexArrayVSpace(ArrayVSpace):
    """The space of complex arrays of one shape and dtype, as a real one of twice as many dimensions."""

    iscomplex = True

    @property
    def size(self) -> int:  # type: ignore[override]
        return 2 * int(np.prod(self.shape))

    def ones(self) -> Any:
        return np.full(self.shape, 1.0 + 1.0j, self.dtype)

    def randn(self) -> Any:
        return super().randn() + 1j * super().randn()

    def _inner_prod(self, x: Any, y: Any) -> object:
        return np.real(np.dot(np.conj(np.ravel(x)), np.ravel(y)))

    def _covector(self, x: Any) -> object:
        return np.conj(x)


class ContainerVSpace(VSpace):
    """The space of containers with values of certain spaces in them."""

    def __init__(self, value: Any):
        leaves, self._structure = tree.flatten(value)
        self._spaces = [vspace(x) for x in leaves]
        self.shape = tree.unflatten(self._structure, self._spaces)

    def _map(self, f: Callable[..., object], *values: object) -> object:
        leaves = [tree.leaves(x) for x in values]
        return tree.unflatten(self._structure, [f(*each) for each in zip(self._spaces, *leaves)])

    @property
    def size(self) -> int:  # type: ignore[override]
        """Return the number of real components of a value."""
        return sum(space.size for space in self._spaces)

    def zeros(self) -> Any:
        return self._map(lambda space: space.zeros())

    def ones(self) -> Any:
        return self._map(lambda space: space.ones())

    def randn(self) -> Any:
        return self._map(lambda space: space.randn())

    def standard_basis(self) -> Iterator[Any]:
        zeros = [space.zeros() for space in self._spaces]
        for i, space in enumerate(self._spaces):
            for x in space.standard_basis():
                yield tree.unflatten(self._structure, [*zeros[:i], x, *zeros[i + 1 :]])

    def _add(self, x: Any, y: object) -> Any:
        return self._map(lambda space, *each: space.add(*each), x, y)

    def _scalar_mul(self, x: object, a: object) -> object:
        return self._map(lambda space, leaf: space.scalar_mul(leaf, a), x)

    def _inner_prod(self, x: Any, y: Any) -> object:
        return sum(space.inner_prod(*each) for space, *each in zip(self._spaces, tree.leaves(x), tree.leaves(y)))

    def _covector(self, x: object) -> object:
        return self._map(lambda space, leaf: space.covector(leaf), x)


def vspace(value: object) -> VSpace:
    """Return the vector space of a value; TypeError if there is none.

    >>> space = vspace([np.zeros(2), 1.0])
    >>> space.size, space.ones()
    (3, [array([1., 1.]), array(1.)])
    """
    maker = VSpace.mappings.get(type(value))
    if maker is not None:
        return maker(value)
    if tree.is_node(value):
        return ContainerVSpace(value)
    kinds: Any = Carrier | np.ndarray | np.inexact | float | complex
    if isinstance(value, kinds):
        return ComplexArrayVSpace(value) if np.iscomplexobj(value) else ArrayVSpace(value)
    raise TypeError(f"Can't find vector space for value {value!r} of type {type(value)}.")
