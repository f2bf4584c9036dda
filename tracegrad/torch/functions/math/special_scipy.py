"""Special functions that SciPy computes, by PyTorch's names, element by element.

SciPy is imported at the first call. Integers become float64. Derivatives are the same as for SciPy's functions here;
where PyTorch has none, for example in the parameters of `gammainc`, the function has none.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.elementwise.table import add
from tracegrad.torch.functions.core.operands import TensorOperands, as_node, floating, pair
from tracegrad.torch.functions.core.registry import FUNCTIONS, function
from tracegrad.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable


# PyTorch's name -> SciPy's name, the name of the node, and the summary.
_OF_ONE = {
    "airy_ai": ("airy", "SpecialAiryAiBackward0", "The Airy function Ai"),
    "bessel_j0": ("j0", "SpecialBesselJ0Backward0", "The Bessel function of the first kind of order 0"),
    "bessel_j1": ("j1", "SpecialBesselJ1Backward0", "The Bessel function of the first kind of order 1"),
    "bessel_y0": ("y0", "SpecialBesselY0Backward0", "The Bessel function of the second kind of order 0"),
    "bessel_y1": ("y1", "SpecialBesselY1Backward0", "The Bessel function of the second kind of order 1"),
    "erfcx": ("erfcx", "SpecialErfcxBackward0", "exp(input**2) * erfc(input)"),
    "i0": ("i0", "I0Backward0", "The modified Bessel function of the first kind of order 0"),
    "i0e": ("i0e", "SpecialI0EBackward0", "exp(-abs(input)) * i0(input)"),
    "i1": ("i1", "SpecialI1Backward0", "The modified Bessel function of the first kind of order 1"),
    "i1e": ("i1e", "SpecialI1EBackward0", "exp(-abs(input)) * i1(input)"),
    "log_ndtr": ("log_ndtr", "SpecialLogNdtrBackward0", "The logarithm of the normal distribution function"),
    "modified_bessel_i0": ("i0", "SpecialModifiedBesselI0Backward0", "The same as `i0`"),
    "modified_bessel_i1": ("i1", "SpecialModifiedBesselI1Backward0", "The same as `i1`"),
    "modified_bessel_k0": ("k0", "SpecialModifiedBesselK0Backward0", "That of the second kind of order 0"),
    "modified_bessel_k1": ("k1", "SpecialModifiedBesselK1Backward0", "That of the second kind of order 1"),
    "ndtr": ("ndtr", "MulBackward0", "The normal distribution function"),
    "ndtri": ("ndtri", "SpecialNdtriBackward0", "The inverse of the normal distribution function"),
    "scaled_modified_bessel_k0": ("k0e", "SpecialScaledModifiedBesselK0Backward0", "exp(input) * k0(input)"),
    "scaled_modified_bessel_k1": ("k1e", "SpecialScaledModifiedBesselK1Backward0", "exp(input) * k1(input)"),
    "spherical_bessel_j0": ("j0", "SpecialSphericalBesselJ0Backward0", "sin(input) / input, and 1 at 0"),
}
_OF_TWO = {
    "gammainc": ("gammainc", "IgammaBackward0", "The regularized lower incomplete gamma function"),
    "gammaincc": ("gammaincc", "IgammacBackward0", "The regularized upper incomplete gamma function"),
    "zeta": ("zeta", "SpecialZetaBackward0", "The Hurwitz zeta function"),
}
# The names of functions in messages, and which operands must be Tensors.
_TENSORS = {"gammainc": ("igamma", "both"), "gammaincc": ("igammac", "both"), "zeta": ("special_zeta", "one")}


def _scipys(name: str, *xs: Array) -> Any:
    from scipy import special

    if name == "spherical":
        return np.sinc(xs[0] / math.pi)
    result = getattr(special, name)(*xs)
    result = result[0] if name == "airy" else result
    return result if isinstance(result, Carrier) else np.asarray(result)


def _define(name: str, scipys: str, node: str, doc: str, operands: int) -> Callable[..., Array]:
    rule = TensorOperands(*_TENSORS.get(name, (name,)))
    apply = partial(_scipys, "spherical" if name.startswith("spherical") else scipys)

    def of_one(input: Array) -> Array:
        result: Array = as_node(node, apply, floating(input))
        return result

    def of_two(input: Array, other: Array) -> Array:
        result: Array = as_node(node, apply, *map(floating, pair(input, other, rule)))
        return result

    call = of_one if operands == 1 else of_two
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{doc}, element by element."
    return call


(
    airy_ai,
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    erfcx,
    i0,
    i0e,
    i1,
    i1e,
    log_ndtr,
    modified_bessel_i0,
    modified_bessel_i1,
    modified_bessel_k0,
    modified_bessel_k1,
    ndtr,
    ndtri,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    spherical_bessel_j0,
) = [_define(_name, *_row, 1) for _name, _row in _OF_ONE.items()]
gammainc, gammaincc, zeta = [_define(_name, *_row, 2) for _name, _row in _OF_TWO.items()]


def multigammaln(input: Array, p: int) -> Array:
    """Return the logarithm of the multivariate gamma function of dimension `p`.

    RuntimeError if an element is too small.

    >>> round(float(multigammaln(np.array(3.0), 1)), 12) == round(math.log(2.0), 12)
    True
    """
    x = floating(input)
    if p < 1:
        raise RuntimeError(located("p has to be greater than or equal to 1"))
    result: Array = as_node("AddBackward0", _multigammaln, x, p)
    return result


def _multigammaln(x: Array, p: int) -> Array:
    total: Any = p * (p - 1) / 4 * math.log(math.pi)
    for k in range(p):
        total = add(FUNCTIONS["lgamma"](add(x, -k / 2)), total)
    result: Array = total
    return result


function("i0", in_place=True)(i0)
function("mvlgamma", in_place=True)(multigammaln)
function("igamma", in_place=True)(gammainc)
function("igammac", in_place=True)(gammaincc)
