"""Special functions, computed by SciPy, with derivatives from DLMF.

The special functions of PyTorch are separate ops. All others are one op, `special`, whose parameter is SciPy's name:
they differ only in the name and in their derivatives, which are in `derivatives`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import LITERALS, Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.elementwise_op import Elementwise, elementwise, float_loop
from tracegrad.ops.core.op import Sample, bind, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import divide, gauss, multiply
from tracegrad.ops.numerics import accurate_gamma
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


digamma: Elementwise


def _scipy(name: str) -> Any:
    def call(x: Array) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(x)

    return call


@primitive(order="K")
def polygamma(x: NDArray, *, n: int) -> NDArray:
    """The `n`-th derivative of digamma at `x`."""
    import scipy.special

    return np.asarray(accurate_gamma.trigamma(x) if n == 1 else scipy.special.polygamma(n, x), x.dtype)


@polygamma.def_aval
def _(x: Aval, *, n: int) -> Aval:
    return x


@polygamma.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, n: int) -> Array:
    return multiply(ct, polygamma(x, n=n + 1))


@polygamma.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4), 0.5, 3),), {"n": 1}
    yield (uniform((5,), 0.5, 3, dtype="float32"),), {"n": 2}


erfinv = elementwise(
    "erfinv(x)",
    _scipy("erfinv"),
    None,
    lambda t, ans, x: multiply(t, divide(math.sqrt(math.pi) / 2, gauss(ans))),
    loop=float_loop,
    domain=(-0.9, 0.9),
    doc="inverse of the error function",
)
lgamma = elementwise(
    "lgamma(x)",
    accurate_gamma.lgamma,
    None,
    lambda t, ans, x: multiply(t, digamma(x)),
    loop=float_loop,
    domain=(0.5, 3),
    doc="log(abs(gamma(x)))",
)
digamma = elementwise(
    "digamma(x)",
    accurate_gamma.digamma,
    None,
    lambda t, ans, x: multiply(t, polygamma(x, n=1)),
    loop=float_loop,
    domain=(0.5, 3),
    doc="logarithmic derivative of gamma(x)",
)


# -- all others ------------------------------------------------------------------------------------------------
@primitive(order="K")
def special(*xs: NDArray, name: str) -> NDArray:
    """SciPy's function of this name, for real arrays of one shape and dtype and for numbers; `name.1` is its second
    result."""
    known = computed(name)
    dtype = next(x.dtype for x in xs if type(x) not in LITERALS)
    return np.asarray(known(*xs), dtype)


def computed(name: str) -> Any:
    """The NumPy function that computes `name`."""
    import scipy.special

    from tracegrad.ops.special.derivatives import FAMILIES, VALUES

    if name in VALUES:
        return VALUES[name]
    function, _, result = name.partition(".")
    if function in FAMILIES:
        return functools.partial(FAMILIES[function], *map(int, result.split(".")))
    whole = getattr(scipy.special, function)
    return (lambda *xs: whole(*xs)[int(result)]) if result else whole


def apply(name: str, *xs: Any) -> Any:
    """The function `name` applied to conforming arrays and numbers."""
    if all(type(x) in LITERALS for x in xs):
        return float(special.impl(*[np.float64(x) for x in xs], name=name))
    return bind(special, tuple([float(x) if type(x) in LITERALS else x for x in xs]), {"name": name})


@special.def_aval
def _(*xs: Any, name: str) -> Aval:
    operands: list[Aval] = [x for x in xs if type(x) not in LITERALS]
    if not operands or any(x != operands[0] for x in operands):
        raise ShapeError(f"{name} wants operands of one shape and dtype, got {', '.join(map(str, xs))}")
    return operands[0]


@special.def_vjp_all
def _(wanted: Sequence[int], ct: Array, ans: Array, *xs: Array, name: str) -> list[Any]:
    from tracegrad.ops.special.derivatives import partial_derivative

    return [multiply(ct, partial_derivative(name, i, ans, xs)) for i in wanted]


@special.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4), 0.5, 3),), {"name": "gamma"}
    yield (uniform((3, 4), 0.5, 3),), {"name": "erfcx"}
    yield (uniform((5,), 0.5, 3, dtype="float32"), uniform((5,), 0.5, 3, seed=1, dtype="float32")), {"name": "betaln"}
    yield (uniform((9,), 0.5, 3),), {"name": "airy.3"}


polygamma.pointwise = special.pointwise = True
