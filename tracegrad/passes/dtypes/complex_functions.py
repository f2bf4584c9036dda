"""Compute complex elementary functions in real arithmetic, with C99 semantics for zeros, infinities and nan.

NumPy uses the C library for most of these functions. `a` and `b` are the real and imaginary parts of an operand
throughout. Inverse functions, and powers except integer powers, are library calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.ops.elementwise.complex import angle, sgn
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    arctan2,
    copysign,
    cos,
    cosh,
    divide,
    equal,
    exp,
    exp2,
    expm1,
    flat,
    greater,
    greater_equal,
    hypot,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    power,
    reciprocal,
    rsqrt,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    where,
)
from tracegrad.ops.reduce.reductions import reduce_all, reduce_any
from tracegrad.ops.shape.linear import full
from tracegrad.passes.dtypes.complex_pairs import ComplexPair, parts_of, rule

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


INF, NAN = float("inf"), float("nan")


def _choice(condition: Any, x: Any, y: Any, like: Any) -> Any:
    """`where` in the dtype of `like`, which accepts numbers."""
    if is_literal(condition):
        return x if condition else y
    if is_literal(x) and is_literal(y):
        x = full(shape=like.shape, value=x, dtype=like.dtype.name)
    return where(condition, x, y)


# -- arithmetic ----------------------------------------------------------------------------------------------------
@rule(multiply)
def _(x: Any, y: Any) -> Any:
    (a, b), (c, d) = parts_of(x), parts_of(y)
    return ComplexPair(subtract(multiply(a, c), multiply(b, d)), add(multiply(a, d), multiply(b, c)))


@rule(square)
def _(x: ComplexPair) -> Any:
    across = multiply(x.re, x.im)
    return ComplexPair(subtract(square(x.re), square(x.im)), add(across, across))


@rule(divide)
def _(x: Any, y: Any) -> Any:
    """Divide by Smith's method (R. L. Smith, Algorithm 116, CACM 5, 1962): the quotient of the parts of y is at most
    1."""
    (a, b), (c, d) = parts_of(x), parts_of(y)
    first = greater_equal(absolute(c), absolute(d))
    none = logical_and(equal(c, 0.0), equal(d, 0.0))
    like = x.re if isinstance(x, ComplexPair) else y.re
    long, short = _choice(first, c, d, like), _choice(first, d, c, like)
    ratio = _choice(none, 0.0, divide(short, long), like)
    scale = divide(1.0, _choice(none, absolute(c), add(long, multiply(short, ratio)), like))
    p, q = _choice(first, a, b, like), _choice(first, b, a, like)
    re, share = add(p, multiply(q, ratio)), multiply(p, ratio)
    im = _choice(first, subtract(q, share), subtract(share, q), like)
    return ComplexPair(multiply(_choice(none, a, re, like), scale), multiply(_choice(none, b, im, like), scale))


@rule(reciprocal)
def _(x: ComplexPair) -> Any:
    a, b = x.re, x.im
    first = less_equal(absolute(b), absolute(a))
    long, short = where(first, a, b), where(first, b, a)
    ratio = divide(short, long)
    below = add(long, multiply(short, ratio))
    one, other = divide(1.0, below), divide(ratio, below)
    return ComplexPair(where(first, one, other), negative(where(first, other, one)))


@rule(power)
def _(x: Any, y: Any) -> Any:
    """Multiply repeatedly if the exponent is a constant integer, as NumPy does."""
    if is_literal(y) and not y.imag and float(y.real).is_integer() and 0 < abs(y.real) < 100:
        result: Any = _multiplied(x, abs(int(y.real)))
        result = result if y.real > 0 else divide(1 + 0j, result)
        origin, empty = logical_and(equal(x.re, 0.0), equal(x.im, 0.0)), 0.0 if y.real > 0 else NAN
        return ComplexPair(where(origin, empty, result.re), where(origin, empty, result.im))
    (a, b), (c, d) = parts_of(x), parts_of(y)
    like = x.re if isinstance(x, ComplexPair) else y.re
    size, phase = _log_of_size(a, b), arctan2(b, a)
    if is_literal(d) and not d:
        result = exp(ComplexPair(multiply(c, size), multiply(c, phase)))
    else:
        result = exp(multiply(y, _pair(size, phase, like)))
    origin, none = logical_and(equal(a, 0.0), equal(b, 0.0)), logical_and(equal(c, 0.0), equal(d, 0.0))
    empty = _choice(greater(c, 0.0), 0.0, NAN, like)
    re, im = (_choice(origin, empty, part, like) for part in (result.re, result.im))
    return _pair(_choice(none, 1.0, re, like), _choice(none, 0.0, im, like), like)


def _multiplied(x: Any, n: int) -> Any:
    """x to the positive power n."""
    result: Any = None
    while n > 1:
        if n & 1:
            result = x if result is None else multiply(result, x)
        x, n = multiply(x, x), n >> 1
    return x if result is None else multiply(result, x)


def _pair(a: Any, b: Any, like: Any) -> ComplexPair:
    """The pair of these parts, which may be numbers."""
    return ComplexPair(
        *[full(shape=like.shape, value=x, dtype=like.dtype.name) if is_literal(x) else x for x in (a, b)]
    )


@rule(flat)
def _(x: Any, y: Operand) -> Any:
    return x


# -- magnitude and direction ---------------------------------------------------------------------------------------
@rule(absolute)
def _(x: ComplexPair) -> Any:
    return hypot(x.re, x.im)


@rule(angle)
def _(x: ComplexPair) -> Any:
    return arctan2(x.im, x.re)


@rule(sgn)
def _(x: ComplexPair) -> Any:
    size = hypot(x.re, x.im)
    none, beyond = equal(size, 0.0), isinf(size)
    results = []
    for part, other in ((x.re, x.im), (x.im, x.re)):
        far = where(isinf(part), where(isinf(other), NAN, copysign(1.0, part)), 0.0)
        results.append(where(none, 0.0, where(beyond, far, divide(part, size))))
    return ComplexPair(*results)


# -- predicates ----------------------------------------------------------------------------------------------------
def _both(op: Any, join: Any) -> Any:
    def predicate(*xs: Operand) -> Any:
        operands = [parts_of(x) for x in xs]
        return join(*[op(*[parts[k] for parts in operands]) for k in (0, 1)])

    return predicate


rule(equal)(_both(equal, logical_and))
rule(not_equal)(_both(not_equal, logical_or))
rule(isnan)(_both(isnan, logical_or))
rule(isinf)(_both(isinf, logical_or))
rule(isfinite)(_both(isfinite, logical_and))


@rule(reduce_any, reduce_all)
def _(x: ComplexPair, *, axes: tuple[int, ...]) -> Any:
    return NotImplemented


# -- exponentials --------------------------------------------------------------------------------------------------
def _cos_sin(a: Any, b: Any, one: Any = 1.0) -> tuple[Any, Any]:
    """The cosine and sine of `b`; if `a` is infinite and `b` is not finite, they are one and nan."""
    is_undefined = logical_and(isinf(a), logical_not(isfinite(b)))
    return where(is_undefined, one, cos(b)), sin(b)


def _times(f: Any, t: Any) -> Any:
    """f * t, where zero times a value that is not finite is zero."""
    lost = logical_and(equal(t, 0.0), logical_not(isfinite(f)))
    saved = where(logical_and(equal(f, 0.0), isnan(t)), f, multiply(f, t))
    return where(lost, where(less(f, 0.0), negative(t), t), saved)


@rule(exp)
def _(x: ComplexPair) -> Any:
    a, b = x.re, x.im
    # If exp(a) overflows, its product with a cosine may still be finite.
    limit = 700.0 if a.dtype == np.float64 else 80.0
    far = greater(a, limit)
    size = exp(where(far, subtract(a, limit), a))
    rest = _choice(far, np.exp(limit).item(), 1.0, a)
    c, s = _cos_sin(a, b)
    im = where(equal(b, 0.0), b, multiply(multiply(size, s), rest))
    vanished = logical_and(equal(a, -INF), isnan(s))
    return ComplexPair(multiply(multiply(size, c), rest), where(vanished, copysign(0.0, b), im))


@rule(expm1)
def _(x: ComplexPair) -> Any:
    half = sin(multiply(x.im, 0.5))
    re = subtract(multiply(expm1(x.re), cos(x.im)), multiply(2.0, multiply(half, half)))
    return ComplexPair(re, multiply(sin(x.im), exp(x.re)))


def _log_of_size(a: Any, b: Any) -> Any:
    """log(hypot(a, b)), accurate near 0."""
    if is_literal(a) and is_literal(b):
        return log(hypot(a, b))
    big, small = maximum(absolute(a), absolute(b)), minimum(absolute(a), absolute(b))
    near = logical_and(less(big, 1.5), greater(big, 0.5))
    ratio = where(equal(small, big), 1.0, divide(small, big))
    inside = where(near, add(multiply(subtract(big, 1.0), add(big, 1.0)), square(small)), square(ratio))
    result = add(multiply(0.5, log1p(inside)), where(near, 0.0, log(big)))
    return where(logical_or(isinf(a), isinf(b)), INF, result)


@rule(exp2)
def _(x: ComplexPair) -> Any:
    return exp(ComplexPair(multiply(x.re, np.log(2.0).item()), multiply(x.im, np.log(2.0).item())))


@rule(log)
def _(x: ComplexPair) -> Any:
    return ComplexPair(_log_of_size(x.re, x.im), arctan2(x.im, x.re))


@rule(log2)
def _(x: ComplexPair) -> Any:
    result: Any = log(x)
    return ComplexPair(multiply(result.re, 1 / np.log(2.0).item()), multiply(result.im, 1 / np.log(2.0).item()))


@rule(log10)
def _(x: ComplexPair) -> Any:
    result: Any = log(x)
    return ComplexPair(multiply(result.re, 1 / np.log(10.0).item()), multiply(result.im, 1 / np.log(10.0).item()))


@rule(log1p)
def _(x: ComplexPair) -> Any:
    a, b = x.re, x.im
    # abs(1 + z)**2 - 1, computed without the 1 near zero, because of cancellation.
    near = less(maximum(absolute(a), absolute(b)), 0.5)
    close = multiply(0.5, log1p(add(multiply(a, add(a, 2.0)), square(b))))
    return ComplexPair(where(near, close, _log_of_size(add(a, 1.0), b)), arctan2(b, add(a, 1.0)))


@rule(sqrt)
def _(x: ComplexPair) -> Any:
    a, b = x.re, x.im
    size = sqrt(add(multiply(0.5, hypot(a, b)), multiply(0.5, absolute(a))))
    big = where(isinf(b), INF, size)
    rest = where(isinf(b), INF, where(equal(size, 0.0), 0.0, divide(multiply(0.5, absolute(b)), size)))
    first = greater_equal(a, 0.0)
    return ComplexPair(where(first, big, rest), copysign(where(first, rest, big), b))


@rule(rsqrt)
def _(x: ComplexPair) -> Any:
    return divide(1 + 0j, sqrt(x))


# -- hyperbolic and trigonometric ----------------------------------------------------------------------------------
def _sinh(a: Any, b: Any) -> tuple[Any, Any]:
    c, s = _cos_sin(a, b, copysign(1.0, a))
    return _times(sinh(a), c), _times(cosh(a), s)


def _cosh(a: Any, b: Any) -> tuple[Any, Any]:
    c, s = _cos_sin(a, b)
    return _times(cosh(a), c), _times(sinh(a), s)


def _tanh(a: Any, b: Any) -> tuple[Any, Any]:
    limit = 350.0 if a.dtype == np.float64 else 40.0
    far = greater(absolute(a), limit)
    held = where(far, copysign(limit, a), a)
    f, c, s = sinh(held), cos(b), sin(b)
    below = add(square(f), square(c))
    re, im = divide(multiply(f, cosh(held)), below), divide(multiply(s, c), below)
    beyond = isinf(a)
    imaginary = where(logical_and(beyond, isnan(s)), copysign(0.0, b), multiply(0.0, multiply(s, c)))
    re = where(beyond, copysign(1.0, a), where(equal(a, 0.0), a, re))
    return re, where(far, imaginary, where(equal(b, 0.0), b, im))


@rule(sinh)
def _(x: ComplexPair) -> Any:
    return ComplexPair(*_sinh(x.re, x.im))


@rule(cosh)
def _(x: ComplexPair) -> Any:
    return ComplexPair(*_cosh(x.re, x.im))


@rule(tanh)
def _(x: ComplexPair) -> Any:
    return ComplexPair(*_tanh(x.re, x.im))


@rule(sin)
def _(x: ComplexPair) -> Any:
    im, re = _sinh(x.im, x.re)
    return ComplexPair(re, im)


@rule(cos)
def _(x: ComplexPair) -> Any:
    re, im = _cosh(x.im, x.re)
    return ComplexPair(re, negative(im))


@rule(tan)
def _(x: ComplexPair) -> Any:
    im, re = _tanh(x.im, x.re)
    return ComplexPair(re, im)
