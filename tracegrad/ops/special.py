"""Special functions, one statement each, computed by SciPy; derivatives by the formulas of DLMF 5.15 and 7.17."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.declare import Elementwise, elementwise, float_loop
from tracegrad.ops.elementwise import exp, multiply, square
from tracegrad.ops.op import primitive
from tracegrad.ops.samples import uniform

digamma: Elementwise


def _scipy(name: str) -> Any:
    def call(x: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(x)

    return call


@primitive(order="K")
def polygamma(x: Any, *, n: int) -> Any:
    """The `n`-th derivative of digamma at `x`."""
    import scipy.special

    return np.asarray(scipy.special.polygamma(n, x), x.dtype)


@polygamma.def_aval
def _(x: Aval, *, n: int) -> Aval:
    return x


@polygamma.def_vjp("x")
def _(ct: Any, ans: Any, x: Any, *, n: int) -> Any:
    return multiply(ct, polygamma(x, n=n + 1))


@polygamma.def_samples
def _() -> Any:
    yield (uniform((3, 4), 0.5, 3),), {"n": 1}
    yield (uniform((5,), 0.5, 3, dtype="float32"),), {"n": 2}


erfinv = elementwise("erfinv(x)", _scipy("erfinv"), None,
                     lambda t, ans, x: multiply(t, multiply(exp(square(ans)), math.sqrt(math.pi) / 2)),
                     loop=float_loop, domain=(-0.9, 0.9), doc="inverse of the error function")  # fmt: skip
lgamma = elementwise("lgamma(x)", _scipy("gammaln"), None, lambda t, ans, x: multiply(t, digamma(x)),
                     loop=float_loop, domain=(0.5, 3), doc="log(abs(gamma(x)))")  # fmt: skip
digamma = elementwise("digamma(x)", _scipy("digamma"), None, lambda t, ans, x: multiply(t, polygamma(x, n=1)),
                      loop=float_loop, domain=(0.5, 3), doc="logarithmic derivative of gamma(x)")  # fmt: skip
