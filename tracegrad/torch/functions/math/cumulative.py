"""Functions along one dimension: cumulative sums and products, differences, gradients and integrals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.numpy_api.joining import along
from tracegrad.numpy_api.operands import arrays
from tracegrad.ops.core.op import Op, named
from tracegrad.ops.elementwise.table import (
    add,
    divide,
    multiply,
    not_equal,
    subtract,
)
from tracegrad.ops.reduce import scans
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import reduced_shape, reshape
from tracegrad.torch.functions.core.dims import copied, dim_of, dims_of, one, size_error
from tracegrad.torch.functions.core.operands import as_node, floating, in_floats, is_number
from tracegrad.torch.functions.core.promotion import accumulator
from tracegrad.torch.functions.core.registry import FUNCTIONS, function
from tracegrad.torch.functions.math.reductions import as_dtype, axes_of, sum
from tracegrad.typing import Array, ArrayLike, DTypeLike

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.ops.core.dispatch import Operand


def _running(op: Op, x: Array, dim: Any) -> Array:
    k = dim_of(dim, len(x.shape))
    if x.shape:
        result: Array = op(x, axis=k)
        return result
    return as_node(
        f"{op.name.capitalize()}Backward0", lambda v: reshape(op(reshape(v, shape=(1,)), axis=0), shape=()), x
    )


@function("cumsum", in_place=True)
def cumsum(input: ArrayLike, dim: int | Sequence[int], *, dtype: DTypeLike = None) -> Array:
    """Return the sums of the elements up to each element along `dim`.

    >>> import numpy as np
    >>> cumsum(np.array([1, 2, 3]), dim=0).tolist()
    [1, 3, 6]
    """
    x = one(input)
    result: Array = _running(scans.cumsum, as_dtype(x, dtype or accumulator(x)), dim)
    return result


@function("cumprod", in_place=True)
def cumprod(input: ArrayLike, dim: int, *, dtype: DTypeLike = None) -> Array:
    """Return the products of the elements up to each element along `dim`."""
    x = one(input)
    result: Array = _running(scans.cumprod, as_dtype(x, dtype or accumulator(x)), dim)
    return result


@function("logcumsumexp")
def logcumsumexp(input: ArrayLike, dim: int) -> Array:
    """log(cumsum(exp(input), dim)), without overflow."""
    result: Array = _running(scans.logcumsumexp, floating(input), dim)
    return result


@function("diff")
def diff(input: Operand, n: int = 1, dim: int = -1, prepend: Array | None = None, append: Array | None = None) -> Array:
    """Return the differences of neighbours along `dim`, `n` times.

    >>> import numpy as np
    >>> diff(np.array([1, 4, 9, 16]), n=2).tolist()
    [2, 2]
    """
    if n < 0:
        raise RuntimeError(located(f"order must be non-negative but got {n}"))
    if not n:
        return copied(arrays(input)[0])
    parts = arrays(*(v for v in (prepend, input, append) if v is not None))
    k = dim_of(dim, len(parts[0].shape))
    if not parts[0].shape:
        raise size_error("diff expects input to be at least one-dimensional")
    x = FUNCTIONS["cat"](parts, k) if len(parts) > 1 else parts[0]
    for _ in range(n):
        m = x.shape[k]
        later, earlier = (named("SliceBackward0", along(x, k, a, b)) for a, b in ((m and 1, m), (0, m and m - 1)))
        x = not_equal(later, earlier) if x.dtype.kind == "b" else subtract(later, earlier)
    return x


@function("trapezoid", "trapz")
def trapezoid(y: Any, x: Any = None, *, dx: Any = 1.0, dim: int = -1) -> Array:
    """Integrate `y` along `dim` by the trapezoidal rule, at the points `x` or with the distance `dx`.

    >>> import numpy as np
    >>> trapezoid(np.array([1.0, 2.0, 4.0])).item()
    4.5
    """
    if x is None:
        v = floating(y)
        k = dim_of(dim, len(v.shape))
        n = v.shape[k]
        if not n:
            return sum(v, k)
        ends = add(*(reshape(along(v, k, i, i + 1), shape=reduced_shape(v.shape, (k,))) for i in (0, n - 1)))
        return named("MulBackward1", multiply(subtract(sum(v, k), multiply(ends, 0.5)), dx))
    v, points = in_floats(arrays(y, x))
    k = dim_of(dim, len(v.shape))
    n = v.shape[k]
    if len(points.shape) == 1:
        if points.shape[0] != n:
            raise size_error("trapezoid: There must be one `x` value for each sample point")
        points = reshape(points, shape=tuple(n if i == k else 1 for i in range(len(v.shape))))
    widths = diff(points, dim=k - len(v.shape))
    pairs = add(along(v, k, 1, n), along(v, k, 0, n - 1))
    return named("DivBackward1", divide(sum(multiply(widths, pairs), k), 2.0))


@function("cumulative_trapezoid", methods=False)
def cumulative_trapezoid(y: ArrayLike, x: ArrayLike | None = None, *, dx: float = 1.0, dim: int = -1) -> Array:
    """Integrate `y` along `dim` from the first point to each other point, by the trapezoidal rule.

    >>> import numpy as np
    >>> cumulative_trapezoid(np.array([1.0, 2.0, 4.0])).tolist()
    [1.5, 4.5]
    """
    v = floating(y)
    k = dim_of(dim, len(v.shape))
    n = v.shape[k]
    pairs = add(along(v, k, min(1, n), n), along(v, k, 0, max(n - 1, 0)))
    if x is None:
        return multiply(cumsum(pairs, k), multiply(dx, 0.5))
    points = floating(x)
    if len(points.shape) == 1 and len(v.shape) > 1:
        points = reshape(points, shape=tuple(points.shape[0] if i == k else 1 for i in range(len(v.shape))))
    return multiply(cumsum(multiply(diff(points, dim=k - len(v.shape)), pairs), k), 0.5)


@function("gradient", methods=False)
def gradient(
    input: ArrayLike, *, spacing: object = 1, dim: int | None = None, edge_order: int = 1
) -> tuple[Array, ...]:
    """Compute finite differences along dimensions, by default along all.

    Differences are central inside, and one-sided of the order `edge_order` at the ends. `spacing` has the distances of
    neighbours for each dimension, or arrays of coordinates.

    >>> import numpy as np
    >>> gradient(np.array([1.0, 4.0, 9.0, 16.0]))[0].tolist()
    [3.0, 4.0, 6.0, 7.0]
    """
    x = floating(input)
    if edge_order not in (1, 2):
        raise size_error("torch.gradient only supports edge_order=1 and edge_order=2.")
    spacing = 1 if spacing is None else spacing
    axes = axes_of(dim, len(x.shape)) if dim is None else dims_of(dim, len(x.shape))
    spacings = list(spacing) if isinstance(spacing, tuple | list) else [spacing] * len(axes)
    if len(spacings) != len(axes):
        raise size_error(
            f"torch.gradient expected spacing to be unspecified, a scalar or a list of length {len(axes)} but got a "
            f"list of length {len(spacings)}"
        )
    if any(x.shape[k] < edge_order + 1 for k in axes):
        raise size_error("torch.gradient expected each dimension size to be at least edge_order+1")
    return tuple(_finite_difference(x, k, axis_spacing, edge_order) for k, axis_spacing in zip(axes, spacings))


def _finite_difference(x: Array, k: int, axis_spacing: Any, edge_order: int) -> Array:
    n = x.shape[k]
    if is_number(axis_spacing):
        widths: Any = None
        before: Any = axis_spacing
        after: Any = axis_spacing
    else:
        shape = tuple(n if i == k else 1 for i in range(len(x.shape)))
        widths = diff(reshape(one(axis_spacing), shape=shape), dim=k)
        before, after = along(widths, k, 0, n - 2), along(widths, k, 1, n - 1)
    differences = diff(x, dim=k)
    rises = divide(differences, axis_spacing if widths is None else widths)
    first, last = along(rises, k, 0, 1), along(rises, k, n - 2, n - 1)
    # Derivative of the parabola through three neighbours: both quotients, each weighted by the other's width.
    left, right = along(rises, k, 0, n - 2), along(rises, k, 1, n - 1)
    inside = divide(add(multiply(left, after), multiply(right, before)), add(before, after))
    if edge_order == 2:
        first = subtract(multiply(first, 2), along(inside, k, 0, 1))
        last = subtract(multiply(last, 2), along(inside, k, n - 3, n - 2))
    return named("CatBackward0", linear.concatenate(first, inside, last, axis=k))
