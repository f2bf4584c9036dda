"""Polynomials as vectors of coefficients, the highest power first."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.joining import along, concatenate, stack
from tracegrad.numpy_api.lazy.eig import eigvals, sort_complex
from tracegrad.numpy_api.lazy.lstsq import lstsq, solved
from tracegrad.numpy_api.lazy.sampled_functions import convolve
from tracegrad.numpy_api.linalg import inv
from tracegrad.numpy_api.operands import array, arrays, constant, peer_of, promoted, to_dtype, to_float
from tracegrad.numpy_api.registry import dispatch_function, implements
from tracegrad.numpy_api.shapes import matrix_transpose
from tracegrad.ops.elementwise.complex import real
from tracegrad.ops.elementwise.table import add, divide, multiply, sqrt, subtract
from tracegrad.ops.linalg.contraction import matmul_any
from tracegrad.ops.reduce import scans
from tracegrad.ops.shape.linear import broadcast_to, flip, full, pad, reduce_sum, reshape, zeros_like
from tracegrad.tree import treat_as
from tracegrad.typing import Array, ArrayLike, Number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracegrad.ops.core.elementwise_op import Elementwise


def _coefficients(name: str, *values: object) -> list[Array]:
    plain = [p.coeffs if isinstance(p, np.poly1d) else p for p in values]
    xs = [reshape(x, shape=(1,)) if not x.shape else x for x in arrays(*plain)]
    if any(len(x.shape) != 1 for x in xs):
        raise ShapeError(located(f"np.{name} wants polynomials as rows of coefficients"))
    return xs


class Polynomial(np.poly1d):
    """`np.poly1d` with traced coefficients; NumPy's functions give traced results for it, too."""

    def __array_function__(
        self,
        function: Callable[..., object],
        types: tuple[type, ...],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        if function not in _OF_POLYNOMIALS:
            args = tuple([x.coeffs if isinstance(x, np.poly1d) else x for x in args])
        return dispatch_function(function, args, kwargs)


def _traced_too(name: str) -> None:
    of_numpy = getattr(np.poly1d, name)

    @functools.wraps(of_numpy)
    def method(self: np.poly1d, *args: object, **kwargs: object) -> object:
        result = of_numpy(self, *args, **kwargs)
        if isinstance(result, tuple):
            return tuple(map(polynomial, result))
        return polynomial(result) if isinstance(result, np.poly1d) else result

    setattr(Polynomial, name, method)


for _name in (
    "__neg__",
    "__add__",
    "__radd__",
    "__sub__",
    "__rsub__",
    "__mul__",
    "__rmul__",
    "__pow__",
    "__truediv__",
    "__rtruediv__",
    "__call__",
    "deriv",
    "integ",
):
    _traced_too(_name)
_OF_POLYNOMIALS = (np.polyadd, np.polysub, np.polymul, np.polydiv, np.polyder, np.polyint, np.polyval)


def polynomial(c_or_r: Any, r: bool = False, variable: str | None = None) -> np.poly1d:
    """`np.poly1d` in traced code."""
    args = c_or_r.coeffs if isinstance(c_or_r, np.poly1d) else c_or_r
    kind = np.poly1d if peer_of(args) is None else Polynomial
    return kind(c_or_r, r, variable)


def of_coefficients(variable: str, coefficients: Any) -> Any:
    """Return the polynomial of this array of coefficients, without removing leading zeros."""
    kind = np.poly1d if peer_of(*coefficients) is None else Polynomial
    result: Any = kind.__new__(kind)
    result.__dict__["coeffs"], result._variable = coefficients[0], variable
    return result


treat_as(Polynomial, np.poly1d)


def _like_operands(result: Array, *operands: object) -> Array | np.poly1d:
    """Return the result as a `np.poly1d` if an operand is one."""
    return polynomial(result) if any(isinstance(p, np.poly1d) for p in operands) else result


@implements(np.polyval)
def polyval(p: Any, x: Any) -> Any:
    """`np.polyval`, by Horner's rule; coefficients may be traced. For a polynomial `x`, the composition."""
    composed = isinstance(x, np.poly1d)
    coefficients, v = arrays(p.coeffs if isinstance(p, np.poly1d) else p, x.coeffs if composed else x)
    out: Any = polynomial([0]) if composed else zeros_like(v)
    for k in range(coefficients.shape[0]):
        c = reshape(along(coefficients, 0, k, k + 1), shape=coefficients.shape[1:])
        out = out * x + c if composed else add(multiply(out, v), c)
    return out


def _ones(shape: tuple[int, ...], like: Array) -> Array:
    one: Any = 1.0 if like.dtype.kind == "f" else 1
    return constant(full(shape=shape, value=one, dtype=like.dtype.name), peer_of(like))


_MAX_UNROLLED = 8  # columns that are unrolled into products; for more, a scan computes the powers


@implements(np.vander)
def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """`np.vander`."""
    (v,) = arrays(x)
    if len(v.shape) != 1:
        raise ValueError(located("x must be a one-dimensional array or sequence."))
    v = to_dtype(v, np.result_type(v.dtype, int))
    count = v.shape[0] if N is None else N.__index__()
    if not count:
        return reshape(v, shape=(v.shape[0], 1))[:, :0]
    if count > _MAX_UNROLLED:
        rows = broadcast_to(reshape(v, shape=(*v.shape, 1)), shape=(*v.shape, count - 1))
        powers = concatenate([_ones((*v.shape, 1), v), scans.cumprod(rows, axis=1)], 1)
        return powers if increasing else flip(powers, axes=(1,))
    columns = [_ones(v.shape, v)]
    for _ in range(count - 1):
        columns.append(multiply(columns[-1], v) if len(columns) > 1 else v)
    return stack(columns if increasing else columns[::-1], 1)


@implements(np.poly)
def poly(seq_of_zeros: ArrayLike) -> Array:
    """`np.poly` for roots or a matrix; whether complex roots come in conjugate pairs is a query."""
    (roots,) = arrays(seq_of_zeros)
    if len(roots.shape) == 2 and roots.shape[0] == roots.shape[1] != 0:
        roots = eigvals(roots)
    if len(roots.shape) > 1:
        raise ValueError(located("input must be 1d or non-empty square 2d array."))
    roots = to_float(roots)
    result = _ones((1,), roots)
    for k in range(roots.shape[0] if roots.shape else 0):
        shifted = multiply(result, along(roots, 0, k, k + 1))
        result = subtract(_padded(result, 0, 1), _padded(shifted, 1, 0))
    in_pairs = roots.dtype.kind == "c" and bool(np.all(sort_complex(roots) == sort_complex(np.conj(roots))))
    return real(result) if in_pairs else result


def _padded(x: Array, low: int, high: int) -> Array:
    zero: Any = {"f": 0.0}.get(x.dtype.kind, 0)
    return pad(x, low=(low,), high=(high,), interior=(0,), value=zero) if low + high else x


@implements(np.polyfit)
def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: Any = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: object = False,
) -> Any:
    """`np.polyfit`, with derivatives with respect to points, values and weights."""
    v, values, *weights = (to_float(u) for u in arrays(*(u for u in (x, y, w) if u is not None)))
    degree = deg.__index__()
    if degree < 0:
        raise ValueError(located("expected deg >= 0"))
    if len(v.shape) != 1 or not v.shape[0] or len(values.shape) not in (1, 2) or values.shape[0] != v.shape[0]:
        raise TypeError(located("polyfit: expected x and y of the same length, x of one axis, y of one or two"))
    left, right = promoted([vander(v, degree + 1), values])
    if weights:
        column = reshape(weights[0], shape=(v.shape[0], 1))
        left = multiply(left, column)
        right = multiply(right, weights[0] if len(right.shape) == 1 else column)
    rcond = v.shape[0] * np.finfo(v.dtype).eps if rcond is None else rcond
    scale = sqrt(reduce_sum(multiply(left, left), axes=(0,)))
    left = divide(left, scale)
    if full:
        result, residuals, rank, s = lstsq(left, right, rcond)
    else:
        result, _, _ = solved(left, right, float(rcond))
        rest = subtract(matmul_any(left, result), right)
    result = (
        matrix_transpose(divide(matrix_transpose(result), scale)) if len(result.shape) > 1 else divide(result, scale)
    )
    if full:
        return result, residuals, rank, s, rcond
    return (result, _covariance(left, scale, rest, cov)) if cov else result


def _covariance(x: Array, scale: Array | Number, rest: Array, cov: object) -> Array:
    """Compute the covariances of coefficients for the columns of `x`, divided by their scales; `rest` are residuals."""
    n, order = x.shape
    base = divide(inv(matmul_any(matrix_transpose(x), x)), multiply(reshape(scale, shape=(order, 1)), scale))
    base = base if len(rest.shape) == 1 else reshape(base, shape=(order, order, 1))
    if isinstance(cov, str) and cov == "unscaled":
        return base
    if n <= order:
        raise ValueError(located("the number of data points must exceed order to scale the covariance matrix"))
    return multiply(base, divide(reduce_sum(multiply(rest, rest), axes=(0,)), float(n - order)))


# -- arithmetic --------------------------------------------------------------------------------------------------------
def _sum(a1: ArrayLike | np.poly1d, a2: ArrayLike | np.poly1d, of: Elementwise, name: str) -> Array | np.poly1d:
    x, y = _coefficients(name, a1, a2)
    n = max(x.shape[0], y.shape[0])
    return _like_operands(of(_padded(x, n - x.shape[0], 0), _padded(y, n - y.shape[0], 0)), a1, a2)


@implements(np.polyadd)
def polyadd(a1: ArrayLike | np.poly1d, a2: ArrayLike | np.poly1d) -> Array | np.poly1d:
    """`np.polyadd`."""
    return _sum(a1, a2, add, "polyadd")


@implements(np.polysub)
def polysub(a1: ArrayLike | np.poly1d, a2: ArrayLike | np.poly1d) -> Array | np.poly1d:
    """`np.polysub`."""
    return _sum(a1, a2, subtract, "polysub")


@implements(np.polymul)
def polymul(a1: ArrayLike | np.poly1d, a2: ArrayLike | np.poly1d) -> Array | np.poly1d:
    """`np.polymul`."""
    x, y = _coefficients("polymul", a1, a2)
    return _like_operands(convolve(x, y), a1, a2)


@implements(np.polydiv)
def polydiv(u: ArrayLike | np.poly1d, v: ArrayLike | np.poly1d) -> tuple[Array | np.poly1d, Array | np.poly1d]:
    """`np.polydiv`; leading coefficients of the remainder that are 0 are not removed."""
    x, y = promoted([to_float(c) for c in _coefficients("polydiv", u, v)])
    m, n = x.shape[0], y.shape[0]
    if m < n:
        return _like_operands(_ones((1,), x) * 0, u, v), _like_operands(x, u, v)
    quotient, rest = [], x
    for k in range(m - n + 1):
        factor = divide(along(rest, 0, 0, 1), along(y, 0, 0, 1))
        quotient.append(factor)
        head = subtract(along(rest, 0, 1, n), multiply(factor, along(y, 0, 1, n)))
        rest = concatenate([head, along(rest, 0, n, m - k)], 0)
    rest = rest if n > 1 else _ones((1,), x) * 0
    return _like_operands(concatenate(quotient, 0), u, v), _like_operands(rest, u, v)


@implements(np.polyder)
def polyder(p: ArrayLike | np.poly1d, m: int = 1) -> Array | np.poly1d:
    """`np.polyder`."""
    (c,) = _coefficients("polyder", p)
    times = m.__index__()
    if times < 0:
        raise ValueError(located("Order of derivative must be positive (see polyint)"))
    for _ in range(times):
        n = c.shape[0] - 1
        c = multiply(along(c, 0, 0, n), np.arange(n, 0, -1))
    return _like_operands(c, p)


@implements(np.polyint)
def polyint(p: ArrayLike | np.poly1d, m: int = 1, k: Sequence[float] | None = None) -> Array | np.poly1d:
    """`np.polyint`."""
    (c,) = _coefficients("polyint", p)
    c, times = to_float(c), m.__index__()
    if times < 0:
        raise ValueError(located("Order of integral must be positive (see polyder)"))
    free = [0.0] * times if k is None else [k] * times if np.ndim(k) == 0 else list(k)
    if len(free) < times:
        raise ValueError(located("k must be a scalar or a rank-1 array of length 1 or >m."))
    for each in free[:times]:
        constant_ = reshape(to_dtype(array(each, peer_of(c, each)), c.dtype), shape=(1,))
        c = concatenate([divide(c, np.arange(c.shape[0], 0, -1, dtype=c.dtype)), constant_], 0)
    return _like_operands(c, p)
