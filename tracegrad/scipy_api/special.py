"""Ufuncs of `scipy.special` by NumPy's protocol, and the functions of `scipy.special` that are not ufuncs.

A ufunc with neither an op nor a definition here is computed by SciPy, as the op `special`; whether it has a derivative
is decided when one is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import is_literal, weak_dtype
from tracegrad.numpy_api.operands import array, arrays, broadcast_shapes, operands, peer_of, promoted, to_float
from tracegrad.numpy_api.reductions import max as _max
from tracegrad.numpy_api.registry import Function, refuse
from tracegrad.numpy_api.ufuncs import rel_entr
from tracegrad.ops.core.elementwise_op import Elementwise, conform, float_loop
from tracegrad.ops.core.op import normalize_axes
from tracegrad.ops.elementwise import complex as complex_numbers
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    cos,
    divide,
    equal,
    erfc,
    exp,
    expm1,
    floor,
    greater,
    greater_equal,
    hypot,
    less,
    less_equal,
    log,
    log1p,
    logaddexp,
    logical_and,
    logical_or,
    multiply,
    negative,
    power,
    rint,
    sin,
    subtract,
    tan,
    trunc,
    where,
)
from tracegrad.ops.reduce import reductions
from tracegrad.ops.shape.linear import keep_axes, reduce_sum, stop_gradient, unreduce
from tracegrad.ops.special import lambertw as lambert
from tracegrad.ops.special.derivatives import DERIVATIVES
from tracegrad.ops.special.scipy_special import apply, digamma, erfinv, lgamma
from tracegrad.ops.special.scipy_special import polygamma as _polygamma
from tracegrad.scipy_api.registry import SHADOWS, shadow
from tracegrad.typing import Array, ArrayLike, Axes, Number


def call(name: str, *xs: ArrayLike) -> Array:
    """Call the function `name` of arrays and numbers, with the ufunc's broadcasting and promotion."""
    args = [to_float(x) for x in operands(*xs)]
    for x in args:
        if (type(x) is complex) if is_literal(x) else x.dtype.kind == "c":
            raise refuse(f"scipy.special.{name.partition('.')[0].lstrip('_')} of complex numbers")
    known = [x for x in args if not is_literal(x)]
    if not known:
        output: Array = apply(name, *args)
        return output
    dtype = float_loop(*map(weak_dtype, args))[-1]
    shape = broadcast_shapes(name, *(x.shape for x in known))
    result: Array = apply(name, *[conform(x, shape, dtype) for x in args])
    return result


def on_carriers(function: np.ufunc) -> Callable[..., object] | None:
    """Return the implementation of a ufunc on carriers; None if SciPy has no loop for real numbers."""
    name = function.__name__
    replacement = SHADOWS.get(f"scipy.special.{name}")
    if replacement is not None:
        return replacement
    if name not in DERIVATIVES and not any(set(loop.replace("->", "")) == {"d"} for loop in function.types):
        return None
    if function.nout == 1:
        return lambda *xs: call(name, *xs)
    return lambda *xs: tuple([call(f"{name}.{i}", *xs) for i in range(function.nout)])


def ufunc(name: str) -> Callable[[Function], Function]:
    return shadow(f"scipy.special.{name}")


def _on_floats(op: Elementwise) -> Callable[..., object]:
    return lambda *xs: op(*[to_float(x) for x in operands(*xs)])


def _whole(n: ArrayLike) -> Array | Number:
    """Convert an order that must be an integer, as SciPy does."""
    (n,) = operands(n)
    kind = np.asarray(n).dtype.kind if is_literal(n) else n.dtype.kind
    return trunc(n) if kind == "f" else n


for _name, _op in {"gammaln": lgamma, "psi": digamma, "erfc": erfc, "erfinv": erfinv}.items():
    ufunc(_name)(_on_floats(_op))
for _name, _other in {"kn": "kv", "yn": "yv"}.items():
    ufunc(_name)(lambda n, x, _other=_other: call(_other, _whole(n), x))


# -- combinations of other functions -----------------------------------------------------------------------------------
def _floats(*xs: ArrayLike) -> list[Array | Number]:
    return [to_float(x) for x in operands(*xs)]


@ufunc("kl_div")
def kl_div(x: ArrayLike, y: ArrayLike) -> Array:
    """x * log(x / y) - x + y; y where x is 0; inf elsewhere."""
    x, y = _floats(x, y)
    entropy = rel_entr(x, y)
    outside = logical_or(less_equal(x, 0.0), less_equal(y, 0.0))
    return where(logical_and(outside, equal(entropy, math.inf)), math.inf, add(subtract(entropy, x), y))


@ufunc("pseudo_huber")
def pseudo_huber(delta: ArrayLike, r: ArrayLike) -> Array:
    """delta**2 * (sqrt(1 + (r / delta)**2) - 1)."""
    delta, r = _floats(delta, r)
    distance = hypot(delta, r)
    none = equal(distance, 0.0)
    root = where(none, 1.0, add(distance, delta))  # distance - delta == r**2 / root, without cancellation
    return where(less(delta, 0.0), math.inf, where(none, 0.0, multiply(multiply(delta, r), divide(r, root))))


@ufunc("boxcox")
def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """(x**lmbda - 1) / lmbda, log(x) where lmbda is 0."""
    x, lmbda = _floats(x, lmbda)
    return _boxed(x, log, lmbda)


@ufunc("boxcox1p")
def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """boxcox of 1 + x."""
    x, lmbda = _floats(x, lmbda)
    return _boxed(x, log1p, lmbda)


def _boxed(x: Array | Number, logarithm: Elementwise, lmbda: Array | Number) -> Array:
    result = logarithm(x)
    end = logical_and(equal(result, -math.inf), greater(lmbda, 0.0))  # the power itself has derivatives there
    base = add(x, 1.0) if logarithm is log1p else x
    exponent = where(end, lmbda, 1.0)
    at_the_end = divide(subtract(power(where(end, base, 1.0), exponent), 1.0), exponent)
    inside = where(end, 0.0, result)
    return where(end, at_the_end, multiply(inside, call("exprel", multiply(lmbda, inside))))


@ufunc("inv_boxcox")
def inv_boxcox(y: ArrayLike, lmbda: ArrayLike) -> Array:
    """Inverse of boxcox."""
    return _unboxed(exp, y, lmbda)


@ufunc("inv_boxcox1p")
def inv_boxcox1p(y: ArrayLike, lmbda: ArrayLike) -> Array:
    """Inverse of boxcox1p."""
    return _unboxed(expm1, y, lmbda)


def _unboxed(exponential: Elementwise, y: ArrayLike, lmbda: ArrayLike) -> Array:
    y, lmbda = _floats(y, lmbda)
    z = multiply(lmbda, y)
    near = less(absolute(z), 0.1)
    safe = where(near, 1.0, lmbda)
    # log(1 + z) / z: near 0 as a hypergeometric function, which has derivatives there.
    of_z = call("hyp2f1", 1.0, 1.0, 2.0, negative(where(near, z, 0.0)))
    return exponential(where(near, multiply(y, of_z), divide(log1p(where(near, 0.5, z)), safe)))


for _name, _function in {"sindg": sin, "cosdg": cos, "tandg": tan}.items():
    ufunc(_name)(lambda x, _function=_function: _function(multiply(_floats(x)[0], math.pi / 180)))
ufunc("round")(lambda x: rint(_floats(x)[0]))


def _share(n: Array, m: Array, x: Array) -> Array:
    product = multiply(n, x)
    return divide(product, add(m, product))


_DISTRIBUTIONS = {
    "chdtr": lambda v, x: call("gammainc", multiply(v, 0.5), multiply(x, 0.5)),
    "chdtrc": lambda v, x: call("gammaincc", multiply(v, 0.5), multiply(x, 0.5)),
    "gdtr": lambda a, b, x: call("gammainc", b, multiply(a, x)),
    "gdtrc": lambda a, b, x: call("gammaincc", b, multiply(a, x)),
    "fdtr": lambda n, m, x: call("betainc", multiply(n, 0.5), multiply(m, 0.5), _share(n, m, x)),
    "fdtrc": lambda n, m, x: call("betaincc", multiply(n, 0.5), multiply(m, 0.5), _share(n, m, x)),
    "pdtr": lambda k, m: call("gammaincc", add(floor(k), 1.0), m),
    "pdtrc": lambda k, m: call("gammainc", add(floor(k), 1.0), m),
}
for _name, _formula in _DISTRIBUTIONS.items():
    ufunc(_name)(lambda *xs, _f=_formula: _f(*_floats(*xs)))


# -- functions that are not ufuncs -------------------------------------------------------------------------------------
@shadow("scipy.special.logsumexp")
def logsumexp(
    a: ArrayLike, axis: Axes = None, b: ArrayLike | None = None, keepdims: bool = False, return_sign: bool = False
) -> Array | tuple[Array, ...]:
    """`scipy.special.logsumexp`"""
    x = to_float(arrays(a)[0])
    if b is not None or return_sign or x.dtype.kind == "c":
        x, weights = promoted([to_float(v) for v in arrays(a, 1.0 if b is None else b)])
        out, sign = _weighted(x, weights, axis, keepdims, return_sign)
        return (out, sign) if return_sign else out
    axes = normalize_axes("logsumexp", axis, len(x.shape))
    nothing = any(type(x.shape[k]) is int and not x.shape[k] for k in axes)
    out = log(reduce_sum(exp(x), axes=axes)) if nothing else reductions.logsumexp(x, axes=axes)
    return keep_axes(out, x.shape, axes) if keepdims else out


def _weighted(x: Array, weights: Array, axis: Axes, keepdims: bool, signed: bool) -> tuple[Array, ...]:
    """Compute the logarithm of the sum, or of its magnitude together with its sign."""
    shifted = add(x, multiply(weights, 0.0))
    axes = normalize_axes("logsumexp", axis, len(shifted.shape))
    sizes = np.real(shifted) if shifted.dtype.kind == "c" else shifted
    top = stop_gradient(_max(where(equal(weights, 0), -1e300, sizes), axes))
    powers = exp(subtract(shifted, unreduce(top, shifted.shape, axes)))
    total = reduce_sum(multiply(weights, powers), axes=axes)
    sign = np.sign(total) if signed else total
    out = add(log(np.abs(total) if signed else total), top)
    return (keep_axes(out, shifted.shape, axes), keep_axes(sign, shifted.shape, axes)) if keepdims else (out, sign)


@shadow("scipy.special.softmax")
def softmax(x: ArrayLike, axis: Axes = None) -> Array:
    """`scipy.special.softmax`."""
    v = to_float(arrays(x)[0])
    return reductions.softmax(v, axes=normalize_axes("softmax", axis, len(v.shape)))


@shadow("scipy.special.log_softmax")
def log_softmax(x: ArrayLike, axis: Axes = None) -> Array:
    """`scipy.special.log_softmax`."""
    v = to_float(arrays(x)[0])
    axes = normalize_axes("log_softmax", axis, len(v.shape))
    return subtract(v, unreduce(reductions.logsumexp(v, axes=axes), v.shape, axes))


@shadow("scipy.special.softplus")
def softplus(x: ArrayLike, **kwargs: object) -> Array:
    """`scipy.special.softplus`: log(1 + exp(x))."""
    if kwargs:
        raise refuse("an argument of scipy.special.softplus by keyword")
    return logaddexp(_floats(x)[0], 0.0)


@shadow("scipy.special.zeta")
def zeta(x: ArrayLike, q: ArrayLike | None = None, out: Array | None = None) -> Array:
    """`scipy.special.zeta`: Riemann's, or Hurwitz's with the shift `q`."""
    if out is not None:
        raise refuse("the argument out= of scipy.special.zeta")
    return call("_riemann_zeta", x) if q is None else call("_zeta", x, q)


@shadow("scipy.special.polygamma")
def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """`scipy.special.polygamma`: the derivative of digamma of order `n`."""
    if isinstance(n, int | np.integer):
        (v,) = _floats(x)
        return _polygamma(v, n=int(n)) if n else digamma(v)
    n, x = _floats(n, x)
    above = add(n, 1.0)
    signed = multiply(cos(multiply(stop_gradient(above), math.pi)), call("gamma", above))
    result = where(equal(n, 0.0), digamma(x), multiply(signed, call("_zeta", above, x)))
    return where(equal(n, trunc(n)), result, math.nan)


@shadow("scipy.special.multigammaln")
def multigammaln(a: ArrayLike, d: int) -> Array:
    """`scipy.special.multigammaln`, of `d` dimensions."""
    (v,) = _floats(a)
    total: Any = d * (d - 1) * 0.25 * math.log(math.pi)
    for j in range(int(d)):
        total = add(lgamma(subtract(v, 0.5 * j)), total)
    result: Array = total
    return result


@shadow("scipy.special.comb")
def comb(N: ArrayLike, k: ArrayLike, *, exact: bool = False, repetition: bool = False) -> Array:
    """`scipy.special.comb`, not exact."""
    if exact:
        raise refuse("scipy.special.comb with exact=True", "exact=False computes in floats")
    n, k = _floats(N, k)
    if repetition:
        result = call("binom", subtract(add(n, k), 1.0), k)
        return where(logical_and(equal(k, 0.0), greater_equal(n, 0.0)), 1.0, result)
    outside = logical_or(greater(k, n), logical_or(less(n, 0.0), less(k, 0.0)))
    return where(outside, 0.0, call("binom", n, k))


@shadow("scipy.special.perm")
def perm(N: ArrayLike, k: ArrayLike, exact: bool = False) -> Array:
    """`scipy.special.perm`, not exact."""
    if exact:
        raise refuse("scipy.special.perm with exact=True", "exact=False computes in floats")
    n, k = _floats(N, k)
    outside = logical_or(greater(k, n), logical_or(less(n, 0.0), less(k, 0.0)))
    return where(outside, 0.0, call("poch", add(subtract(n, k), 1.0), k))


@shadow("scipy.special.factorial")
def factorial(n: ArrayLike, exact: bool = False, extend: str = "zero") -> Array:
    """`scipy.special.factorial`, not exact: gamma(n + 1), and 0 below 0."""
    if exact or extend != "zero":
        raise refuse("scipy.special.factorial with exact=True or extend='complex'")
    (v,) = _floats(n)
    return where(less(v, 0.0), 0.0, call("gamma", add(v, 1.0)))


@shadow("scipy.special.lambertw")
def lambertw(z: ArrayLike, k: ArrayLike = 0, tol: float = 1e-8) -> Array:
    """`scipy.special.lambertw`: a complex result, as in SciPy, to full precision for any `tol`."""
    (x,) = arrays(z)
    if x.dtype.kind == "c":
        return lambert.lambertw(x, array(k, peer_of(x)))
    return complex_numbers.complex_(call("lambertw_real", z, k), call("lambertw_imag", z, k))


@ufunc("_lambertw")
def _of_lambertw(z: ArrayLike, k: ArrayLike, tol: float) -> Array:
    return lambertw(z, k, tol)


def _spherical(name: str) -> None:
    @shadow(f"scipy.special.{name}")
    def spherical(n: Array | Number, z: ArrayLike, derivative: bool = False) -> Array:
        if derivative:
            raise refuse(f"scipy.special.{name} with derivative=True", "take its gradient")
        return call(name, n, z)

    ufunc(f"_{name}")(spherical)


for _name in ("spherical_jn", "spherical_yn", "spherical_in", "spherical_kn"):
    _spherical(_name)
