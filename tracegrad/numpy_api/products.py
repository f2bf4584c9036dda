"""Array products: dot, matmul, tensordot, einsum and functions made of them."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Any, Literal, TypeAlias

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.joining import stack, unstack
from tracegrad.numpy_api.memory_layout import in_memory_order
from tracegrad.numpy_api.operands import (
    arrays,
    broadcast_arrays,
    operands,
    peer_of,
    promoted,
    raveled,
    to_dtype,
)
from tracegrad.numpy_api.registry import implements, ufunc
from tracegrad.numpy_api.shapes import moveaxis
from tracegrad.numpy_api.ufuncs import matmul as _matmul
from tracegrad.ops.core.memory_order import order_of
from tracegrad.ops.core.op import normalize_axis
from tracegrad.ops.elementwise.complex import conjugated
from tracegrad.ops.elementwise.table import multiply, subtract
from tracegrad.ops.linalg import contraction
from tracegrad.ops.shape.linear import reduce_sum, reshape
from tracegrad.typing import Array, ArrayLike, DTypeLike, NDArray, Sizes

_OptimizeKind: TypeAlias = bool | Literal["greedy", "optimal"] | Sequence[object] | None


@implements(np.dot, refuses=("out",))
def dot(a: ArrayLike, b: ArrayLike, out: Array | None = None) -> Array:
    """`np.dot`."""
    x, y = operands(a, b)
    return multiply(x, y) if is_literal(x) or is_literal(y) else contraction.dot(x, y)


@implements(np.vdot)
def vdot(a: ArrayLike, b: ArrayLike, /) -> Array:
    """`np.vdot`."""
    x, y = (raveled(v) for v in arrays(a, b))
    return contraction.dot(conjugated(x), y)


@implements(np.inner)
def inner(a: ArrayLike, b: ArrayLike, /) -> Array:
    """`np.inner`."""
    x, y = arrays(a, b)
    return contraction.tensordot(x, y, axes=(-1, -1)) if x.shape and y.shape else multiply(x, y)


@implements(np.outer, refuses=("out",))
def outer(a: ArrayLike, b: ArrayLike, out: Array | None = None) -> Array:
    """`np.outer`."""
    x, y = (raveled(v) for v in arrays(a, b))
    return multiply(reshape(x, shape=(*x.shape, 1)), reshape(y, shape=(1, *y.shape)))


@implements(np.linalg.outer)
def linalg_outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`np.linalg.outer`."""
    return outer(x1, x2)


@implements(np.linalg.matmul)
def linalg_matmul(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`np.linalg.matmul`."""
    return _matmul(x1, x2)


@implements(np.tensordot, np.linalg.tensordot)
def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[Sizes] = 2) -> Array:
    """`np.tensordot`."""
    x, y = arrays(a, b)
    return contraction.tensordot(x, y, axes=axes)


@implements(np.einsum, refuses=("out", "casting"))
def einsum(
    subscripts: Any,
    *operands: Any,
    out: Any = None,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
    optimize: Any = False,
) -> Any:
    """`np.einsum`, with a string of subscripts or with a list of axes after each operand."""
    if not isinstance(subscripts, str):
        subscripts, operands = _einsum_subscripts((subscripts, *operands))
    xs = [to_dtype(x, dtype) for x in arrays(*operands)]
    names, wanted = contraction.parse_einsum(subscripts, [len(x.shape) for x in xs])
    if _repeats(names, xs):
        subscripts, xs = _without_ones(names, wanted, xs)
        names, wanted = contraction.parse_einsum(subscripts, [len(x.shape) for x in xs])
    out = contraction.einsum(subscripts, *xs)
    if len(xs) == 1 and set(names[0]) == set(wanted):
        return out  # a view
    if optimize is False or len(xs) < 2:
        return _as_einsum_lays_it(out, names, wanted, xs)
    return _as_pairs_lay_it(out, subscripts, xs, optimize)


def _repeats(names: Sequence[Sequence[str]], xs: list[Array]) -> bool:
    """Whether an axis of size 1 is broadcast."""
    results = [(name, n) for term, x in zip(names, xs) for name, n in zip(term, x.shape)]
    return len({name for name, _ in results}) < len(set(results))


def _without_ones(names: Sequence[Sequence[str]], wanted: Sequence[str], xs: list[Array]) -> tuple[str, list[Array]]:
    """Remove broadcast axes of size 1 from subscripts and operands."""
    longest: dict[str, int] = {}
    for term, x in zip(names, xs):
        for name, n in zip(term, x.shape):
            longest[name] = n if longest.get(name, 1) == 1 else longest[name]
    letters = dict(zip(longest, ascii_letters))
    terms, result = [], []
    for term, x in zip(names, xs):
        saved = [(name, n) for name, n in zip(term, x.shape) if n != 1 or longest[name] == 1]
        terms.append("".join(letters[name] for name, _ in saved))
        result.append(reshape(x, shape=tuple(n for _, n in saved)))
    return f"{','.join(terms)}->{''.join(letters[name] for name in wanted)}", result


def _as_einsum_lays_it(out: Array, names: Sequence[Sequence[str]], wanted: Sequence[str], xs: list[Array]) -> Array:
    """Return the result with the memory layout of `np.einsum`: one loop over all names, by descending strides."""
    every = [*wanted, *(n for n in dict.fromkeys(n for term in names for n in term) if n not in wanted)]
    leader: Any = peer_of(*xs)
    strides = [_by_name(term, x, every) for term, x in zip(names, leader._layouts(*xs))]
    order = [k for k in order_of(strides, len(every)) if k < len(wanted)]
    return in_memory_order(out, tuple(order), *xs)


def _as_pairs_lay_it(out: Array, subscripts: str, xs: list[Array], optimize: _OptimizeKind) -> Array:
    """Return the result with the memory layout of an `np.einsum` that contracts pairs, some by BLAS.

    NumPy chooses the pairs; its layout comes from a run on small arrays.
    """
    path = np.einsum_path(subscripts, *[np.broadcast_to(0.0, x.shape) for x in xs], optimize=optimize)[0]
    leader: Any = peer_of(*xs)
    samples = []
    for layout in leader._layouts(*xs):
        order = order_of([layout.strides], layout.ndim)
        samples.append(np.zeros([min(layout.shape[k], 2) for k in order]).transpose(np.argsort(order)))
    result = np.einsum(subscripts, *samples, optimize=path)
    return in_memory_order(out, tuple(order_of([result.strides], result.ndim)), *xs)


def _by_name(term: Sequence[str], x: NDArray, every: Sequence[str]) -> tuple[int, ...]:
    """Return the strides of a stand-in along all names, 0 for missing ones."""
    strides = dict.fromkeys(every, 0)
    for name, n, s in zip(term, x.shape, x.strides):
        strides[name] += s if n > 1 else 0
    return tuple(strides.values())


def _einsum_subscripts(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return the subscripts and the operands of `x, [0, 1], y, [1, 2], [0, 2]`."""
    pairs = len(args) // 2
    lists = [args[2 * k + 1] for k in range(pairs)] + list(args[2 * pairs :])
    terms = ["".join("..." if n is Ellipsis else ascii_letters[n] for n in each) for each in lists]
    inputs = ",".join(terms[:pairs])
    return (f"{inputs}->{terms[pairs]}" if len(args) % 2 else inputs), args[: 2 * pairs : 2]


# -- generalised universal functions -------------------------------------------------------------------------------
@ufunc("vecdot")
def vecdot(x: ArrayLike, y: ArrayLike, axis: int = -1, dtype: DTypeLike = None) -> Array:
    """Sum products along one axis."""
    x, y = (to_dtype(v, dtype) for v in promoted(arrays(x, y)))
    x, y = broadcast_arrays("vecdot", [x, y])
    return reduce_sum(multiply(conjugated(x), y), axes=(normalize_axis("vecdot", axis, len(x.shape)),))


@implements(np.linalg.vecdot)
def linalg_vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """`np.linalg.vecdot`."""
    return vecdot(x1, x2, axis)


@ufunc("matvec")
def matvec(x: ArrayLike, y: ArrayLike) -> Array:
    """Matrices times vectors."""
    x, y = arrays(x, y)
    out = contraction.matmul_any(x, reshape(y, shape=(*y.shape, 1)))
    return reshape(out, shape=out.shape[:-1])


@ufunc("vecmat")
def vecmat(x: ArrayLike, y: ArrayLike) -> Array:
    """Vectors times matrices."""
    x, y = arrays(x, y)
    out = contraction.matmul_any(reshape(conjugated(x), shape=(*x.shape[:-1], 1, x.shape[-1])), y)
    return reshape(out, shape=(*out.shape[:-2], out.shape[-1]))


# The numbers of components that vectors of `np.cross` may have.
_CROSSED = frozenset({2, 3} if np.lib.NumpyVersion(np.__version__) < "2.5.0" else {3})


@implements(np.cross)
def cross(
    a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Array:
    """`np.cross` of vectors of three components; before NumPy 2.5 also of two.

    The result for two vectors of two components is the third component.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = promoted(arrays(a, b))
    left: Sequence[Array] = unstack(x, axis=axisa)
    right: Sequence[Array] = unstack(y, axis=axisb)
    if not {len(left), len(right)} <= _CROSSED:
        text = f"vectors must have {' or '.join(map(str, _CROSSED))} components, got {len(left)} and {len(right)}"
        raise ShapeError(located(f"cross: incompatible dimensions for cross product: {text}"))
    if len(left) == len(right) == 2:
        return subtract(multiply(left[0], right[1]), multiply(left[1], right[0]))
    left, right = ([*each, multiply(each[0], 0)] if len(each) == 2 else each for each in (left, right))
    components = []
    for i, j in ((1, 2), (2, 0), (0, 1)):
        components.append(subtract(multiply(left[i], right[j]), multiply(left[j], right[i])))
    out = in_memory_order(stack(components, -1), "C")
    return out if axisc == -1 else moveaxis(out, -1, axisc)


@implements(np.linalg.cross)
def linalg_cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """`np.linalg.cross`."""
    return cross(x1, x2, axis=axis)
