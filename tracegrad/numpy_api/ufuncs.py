"""Universal functions of NumPy and SciPy, over the elementwise ops.

Ops with the name of a NumPy ufunc are registered by a loop over the table. The other ufuncs are composed of ops here.
Masked operands go through `where`, so that no nan leaks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS, is_literal, weak_dtype
from tracegrad.errors import DTypeError, located
from tracegrad.numpy_api.complex_order import ORDERED, maximum, minimum
from tracegrad.numpy_api.memory_layout import recomputed
from tracegrad.numpy_api.operands import (
    array,
    arrays,
    operands,
    peer_of,
    promoted,
    rounded_once,
    to_dtype,
    to_float,
    to_inexact,
)
from tracegrad.numpy_api.registry import ufunc
from tracegrad.ops import TABLE
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise import bits, number_parts
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    divide,
    equal,
    floor_divide,
    greater,
    greater_equal,
    isfinite,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    multiply,
    negative,
    not_equal,
    power,
    power_of_half,
    reciprocal,
    remainder,
    sigmoid,
    sqrt,
    square,
    subtract,
    where,
)
from tracegrad.ops.linalg.contraction import matmul_any
from tracegrad.ops.shape.linear import full, stop_gradient
from tracegrad.typing import Array, ArrayLike, DTypeLike, Number

# NumPy's universal functions that are ops without a change.
OP_OF_UFUNC: dict[Any, Elementwise] = {}


def _register(op: Callable[..., object], *names: str) -> None:
    def call(*xs: ArrayLike, dtype: DTypeLike = None) -> Any:
        args = operands(*xs)
        if dtype is not None:
            peer = peer_of(*args)
            args = [to_dtype(array(x, peer), dtype) for x in args]
        return op(*args)

    call.__doc__ = op.__doc__
    ufunc(*names)(call)


for _op in TABLE.values():
    if isinstance(_op, Elementwise) and isinstance(getattr(np, _op.name, None), np.ufunc):
        if _op not in ORDERED:
            _register(_op, _op.name)
        OP_OF_UFUNC[getattr(np, _op.name)] = _op
del OP_OF_UFUNC[np.power]
_register(sigmoid, "expit")
for _name in ("erf", "erfc", "ndtr"):
    _register(TABLE[_name], _name)


# -- rounding and signs ----------------------------------------------------------------------------------
@ufunc("positive")
def positive(x: Array) -> Array:
    """Copy the array."""
    if x.dtype.kind == "b":
        raise DTypeError(located(f"positive is not defined for dtypes ({x.dtype})"))
    return recomputed(x)


@ufunc("fabs")
def fabs(x: Array | Number) -> Array:
    """Compute the magnitude, as a float."""
    return absolute(to_inexact(x))


# -- powers and products ---------------------------------------------------------------------------------
@ufunc("float_power")
def float_power(x: ArrayLike, y: ArrayLike) -> Array:
    """`x` to the power `y` in float64 or complex128; the exponent 0.5 is no special case."""
    base, exponent = in_double(x, y)
    return power_of_half(base) if base.dtype.kind == "f" and _number_of(exponent) == 0.5 else power(base, exponent)


def in_double(*xs: ArrayLike) -> list[Array]:
    """Convert the operands to arrays of float64, or complex128."""
    args = arrays(*xs)
    kind = "complex128" if any(x.dtype.kind == "c" for x in args) else "float64"
    return [to_dtype(x, kind) for x in args]


def _number_of(x: Array | Number) -> Any:
    """Return the number `x`: a literal, or a value without axes that is the same in every call; None for others."""
    if is_literal(x):
        return x
    node = getattr(x, "node", None)
    return dict(node.params)["value"] if node is not None and not x.shape and node.op is full else None


_FAST_POWERS: dict[Any, Any] = {2: square, 0.5: sqrt, -1: reciprocal}


def _is_scalar(x: Array) -> bool:
    return not x.shape and getattr(x, "_immutable_scalars", False)


def power_(x: Any, y: Any) -> Array:
    """`x ** y` for ndarrays: the exponents 2, 0.5 and -1 have special functions, except 0.5 for a scalar."""
    if type(x) not in LITERALS and x.dtype.kind == "f" and _is_scalar(x) and _number_of(y) == 0.5:
        return power_of_half(x if type(y) in LITERALS else promoted([x, y])[0])
    if type(y) not in (int, float) or type(x) in LITERALS:
        return _power(x, y)
    fast = _FAST_POWERS.get(y) if x.dtype.kind in "fc" or (type(y) is int and y == 2) else None
    return power(x, y) if fast is None else fast(x)


def _power(x: Any, y: Any) -> Array:
    """`np.power`: the exponent 0.5 is the square root, except for float16."""
    if type(x) in LITERALS or x.dtype.kind != "f" or _number_of(y) != 0.5:
        return power(x, y)
    x = x if type(y) in LITERALS else promoted([x, y])[0]
    return power_of_half(x) if x.dtype.char == "e" else power(x, 0.5)


_register(_power, "power")


@ufunc("divmod")
def divmod_(x: ArrayLike, y: ArrayLike) -> tuple[Array, ...]:
    """Floor quotient and remainder."""
    xs = tuple(operands(x, y))
    if all(map(is_literal, xs)):
        return floor_divide(*xs), remainder(*xs)
    return number_parts.divmod(*floor_divide.conformed(xs))


@ufunc("modf")
def modf(x: Array | Number) -> tuple[Array, ...]:
    """Split into the fractional and the whole part, as floats."""
    return number_parts.modf(to_inexact(x))


@ufunc("frexp")
def frexp(x: Array | Number) -> tuple[Array, ...]:
    """Mantissa and exponent of 2."""
    return number_parts.frexp(to_inexact(x))


@ufunc("deg2rad", "radians")
def deg2rad(x: Array | Number) -> Array:
    """Degrees in radians."""
    return rounded_once(lambda x: multiply(x, math.pi / 180), to_inexact(x))


@ufunc("rad2deg", "degrees")
def rad2deg(x: Array | Number) -> Array:
    """Radians in degrees."""
    return rounded_once(lambda x: multiply(x, 180 / math.pi), to_inexact(x))


@ufunc("logaddexp2")
def logaddexp2(x: ArrayLike, y: ArrayLike) -> Array:
    """log2(2**x + 2**y)."""
    return rounded_once(_logaddexp2, *_inexact(np.logaddexp2, x, y))


def _inexact(ufunc: np.ufunc, *xs: ArrayLike) -> list[Array | Number]:
    """Convert the operands of a ufunc to the dtypes in which it computes; literals stay literals."""
    args = operands(*xs)
    loop = ufunc.resolve_dtypes((*map(weak_dtype, args), None))
    return [x if is_literal(x) else to_dtype(x, dtype) for x, dtype in zip(args, loop)]


def _logaddexp2(x: Array, y: Array) -> Array:
    return divide(logaddexp(multiply(x, math.log(2)), multiply(y, math.log(2))), math.log(2))


@ufunc("matmul")
def matmul(x: ArrayLike, y: ArrayLike, dtype: DTypeLike = None) -> Array:
    """Compute the matrix product."""
    x, y = arrays(x, y)
    return matmul_any(to_dtype(x, dtype), to_dtype(y, dtype))


# -- extrema that ignore nan -----------------------------------------------------------------------------
def _ignoring_nan(op: Callable[[ArrayLike, ArrayLike], Array], x: ArrayLike, y: ArrayLike) -> Array:
    x, y = operands(x, y)
    if any(not is_literal(v) and v.dtype.kind in "fc" for v in (x, y)):
        return where(isnan(x), y, where(isnan(y), x, op(x, y)))
    return op(x, y)


@ufunc("fmax")
def fmax(x: ArrayLike, y: ArrayLike) -> Array:
    """Return the larger, or the one that is not nan."""
    return _ignoring_nan(maximum, x, y)


@ufunc("fmin")
def fmin(x: ArrayLike, y: ArrayLike) -> Array:
    """Return the smaller, or the one that is not nan."""
    return _ignoring_nan(minimum, x, y)


@ufunc("heaviside")
def heaviside(x: ArrayLike, y: ArrayLike) -> Array:
    """0 below zero, `y` at zero, 1 above; nan for nan."""
    x, y = _inexact(np.heaviside, x, y)
    otherwise = x if is_literal(x) else stop_gradient(x)
    return where(equal(x, 0), y, where(greater(x, 0), 1.0, where(less(x, 0), 0.0, otherwise)))


# -- logic on booleans -----------------------------------------------------------------------------------
def _bitwise(name: str, of_booleans: Elementwise, of_integers: Callable[..., Array]) -> Callable[..., Array]:
    def call(*xs: Any) -> Any:
        xs = tuple(operands(*xs))
        if all(type(x) is bool if is_literal(x) else x.dtype.kind == "b" for x in xs):
            return of_booleans(*xs)
        if any(type(x) in (float, complex) if is_literal(x) else x.dtype.kind in "fc" for x in xs):
            # NumPy's own TypeError.
            getattr(np, name)(*(np.zeros((), np.asarray(x).dtype if is_literal(x) else x.dtype) for x in xs))
        return of_integers(*xs)

    call.__doc__ = f"`np.{name}` of booleans and integers."
    return ufunc(name)(call)


bitwise_and = _bitwise("bitwise_and", logical_and, bits.bitwise_and)
bitwise_or = _bitwise("bitwise_or", logical_or, bits.bitwise_or)
bitwise_xor = _bitwise("bitwise_xor", logical_xor, bits.bitwise_xor)
invert = _bitwise("invert", logical_not, lambda x: subtract(-1, x) if x.dtype.kind == "i" else subtract(_top(x), x))


def _top(x: Array) -> int:
    return int(np.iinfo(x.dtype).max)


# -- scipy.special -----------------------------------------------------------------------------------------
def _vanishing(x: Array | Number, y: Array | Number, lowest: float, factor: Elementwise) -> Array:
    """Compute x * factor(y), which is 0 where x is 0, except where y is nan.

    At x = 0 the derivative with respect to x is the factor, or 0 if the factor is not finite: y is at most `lowest`, or
    infinite.
    """
    nothing = logical_and(equal(x, 0), _beyond(y, lowest))
    product = multiply(where(nothing, 0.0, x), factor(where(nothing, 1.0, y)))
    return where(equal(x, 0), add(product, 0.0), product)  # SciPy's 0 has no sign there


def _beyond(y: Array | Number, lowest: float) -> Array | Number:
    """Whether y is at the lower end of the domain of a logarithm, below it, or infinite."""
    real = y if is_literal(y) or y.dtype.kind != "c" else absolute(subtract(y, lowest))
    return logical_or(less_equal(real, 0.0 if real is not y else lowest), equal(real, math.inf))


@ufunc("xlogy")
def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """x * log(y), 0 where x is 0."""
    x, y = operands(x, y)
    return _vanishing(to_float(x), to_float(y), 0.0, log)


@ufunc("xlog1py")
def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """x * log(1 + y), 0 where x is 0."""
    x, y = operands(x, y)
    return _vanishing(to_float(x), to_float(y), -1.0, log1p)


@ufunc("entr")
def entr(x: Array) -> Array:
    """-x * log(x) for x > 0, 0 at 0, -inf below."""
    x = to_float(x)
    safe = where(less_equal(x, 0), 1.0, x)
    return where(less(x, 0), _below(x), where(equal(x, 0), _steep(x), negative(multiply(x, log(safe)))))


def _below(x: Array) -> Array:
    """-inf where x is negative, with the derivative nan."""
    negatives = less(x, 0)
    return negative(log(multiply(where(negatives, x, -1.0), _either(negatives, -math.inf, -1.0, x))))


def _either(condition: Array, number: float, other: float, x: Array | Number) -> Array:
    """Select one of two numbers, in the dtype of `x`."""
    return where(condition, number, other) if is_literal(x) else where(condition, *np.array([number, other], x.dtype))


def _steep(x: Array) -> Array:
    """0 where x is 0, with an infinite derivative, like -x * log(x)."""
    return sqrt(add(x, 0.0))


@ufunc("rel_entr")
def rel_entr(x: ArrayLike, y: ArrayLike) -> Array:
    """x * log(x / y) for positive x and y, 0 where x is 0 and y >= 0, else inf."""
    x, y = (to_float(v) for v in operands(x, y))
    unordered = logical_or(isnan(x), isnan(y))
    inside = logical_or(unordered, logical_and(greater(x, 0), greater(y, 0)))
    ratio = divide(where(inside, x, 1.0), where(inside, y, 1.0))
    nothing = logical_and(equal(x, 0), greater_equal(y, 0))
    within = where(inside, multiply(x, log(ratio)), math.inf)
    return where(nothing, where(greater(y, 0), negative(_steep(where(nothing, x, 0.0))), 0.0), within)


@ufunc("logit")
def logit(x: Array | Number) -> Array:
    """log(x / (1 - x)); outside of 0 to 1 the value and the derivative are nan."""
    x = to_float(x)
    x = multiply(x, _either(logical_or(less(x, 0), greater(x, 1)), math.nan, 1.0, x))
    return subtract(log(x), log1p(negative(x)))


@ufunc("log_expit")
def log_expit(x: Array | Number) -> Array:
    """log(expit(x))."""
    return negative(logaddexp(negative(to_float(x)), 0.0))


# -- comparison up to rounding -----------------------------------------------------------------------------
def isclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Array:
    """`np.isclose`: |a - b| <= atol + rtol * |b|, and equal infinities."""
    a, b = operands(a, b)
    if not is_literal(b):
        b = to_float(b)
    finite = logical_and(isfinite(a), isfinite(b))
    near = less_equal(absolute(subtract(a, b)), add(multiply(absolute(b), rtol), atol))
    close = logical_or(logical_and(near, finite), equal(a, b))
    if not equal_nan:
        return close
    return logical_or(close, logical_and(not_equal(a, a), not_equal(b, b)))
