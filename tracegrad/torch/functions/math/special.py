"""Special functions of `tracegrad.torch.special`, most of them also functions of the package."""

from __future__ import annotations

import math

import numpy as np

from tracegrad.numpy_api import selection, ufuncs
from tracegrad.ops.core.op import named
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.elementwise.table import multiply
from tracegrad.ops.special import scipy_special
from tracegrad.torch.functions.core.operands import TensorOperands, as_node, floating, in_floats, is_number, pair
from tracegrad.torch.functions.core.parameter_table import FUNCTION_DOCS
from tracegrad.torch.functions.core.registry import FUNCTIONS, function
from tracegrad.torch.functions.math.orthogonal_polynomials import (
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
)
from tracegrad.torch.functions.math.pointwise import of_one
from tracegrad.torch.functions.math.reductions import log_softmax, logsumexp, softmax
from tracegrad.torch.functions.math.special_scipy import (
    airy_ai,
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    erfcx,
    gammainc,
    gammaincc,
    i0,
    i0e,
    i1,
    i1e,
    log_ndtr,
    modified_bessel_i0,
    modified_bessel_i1,
    modified_bessel_k0,
    modified_bessel_k1,
    multigammaln,
    ndtr,
    ndtri,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    spherical_bessel_j0,
    zeta,
)
from tracegrad.typing import Array, ArrayLike

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t",
    "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr", "erf", "erfc",
    "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln", "hermite_polynomial_h",
    "hermite_polynomial_he", "i0", "i0e", "i1", "i1e", "laguerre_polynomial_l", "legendre_polynomial_p", "log1p",
    "log_ndtr", "log_softmax", "logit", "logsumexp", "modified_bessel_i0", "modified_bessel_i1",
    "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w", "sinc",
    "softmax", "spherical_bessel_j0", "xlog1py", "xlogy", "zeta",
]  # fmt: skip

for _op, _names in {
    scipy_special.digamma: ("digamma",),
    scipy_special.erfinv: ("erfinv",),
    scipy_special.lgamma: ("lgamma",),
}.items():
    of_one(_op, *_names, real=True)


@function("deg2rad", in_place=True)
def deg2rad(input: Array) -> Array:
    """Degrees in radians"""
    return named("Deg2RadBackward0", multiply(floating(input), math.pi / 180))


@function("rad2deg", in_place=True)
def rad2deg(input: ArrayLike) -> Array:
    """Radians in degrees"""
    return named("Rad2DegBackward0", multiply(floating(input), 180 / math.pi))


@function("logaddexp2")
def logaddexp2(input: ArrayLike, other: ArrayLike) -> Array:
    """log2(2**input + 2**other), without overflow"""
    x, y = pair(input, other, _LOGADDEXP2)
    return as_node("Logaddexp2Backward0", ufuncs.logaddexp2, *in_floats((x, y)))


_LOGADDEXP2 = TensorOperands("logaddexp2")
_XLOGY, _XLOG1PY = TensorOperands("xlogy", "one"), TensorOperands("special_xlog1py", "one")


@function("logit", in_place=True)
def logit(input: ArrayLike, eps: float | None = None) -> Array:
    """log(x / (1 - x)) of the input x, which is clamped to [eps, 1 - eps] if `eps` is passed."""
    return as_node("LogitBackward0", _logit, floating(input), eps)


def _logit(x: Array, eps: float | None) -> Array:
    return ufuncs.logit(x if eps is None else selection.clip(x, eps, 1 - eps))


@function("sinc", in_place=True)
def sinc(input: Array) -> Array:
    """sin(pi * x) / (pi * x), and 1 at 0."""
    return as_node("SincBackward0", selection.sinc, floating(input))


def _numbers_in_dtype(x: Array, y: Array) -> list[Array]:
    """Convert numbers to the dtype of the Tensor operands, because SciPy takes them for float64."""
    args = [v.dtype for v in (x, y) if getattr(v, "common_dtype", None) is not None]
    return [np.array(v, args[0]) if args and is_number(v) else v for v in (x, y)]


@function("xlogy", in_place=True)
def xlogy(input: ArrayLike, other: ArrayLike) -> Array:
    """input * log(other), and 0 if `input` is 0 and `other` is not nan."""
    x, y = in_floats(pair(input, other, _XLOGY))
    name = "XlogyBackward1" if is_number(x) else "XlogyBackward2" if is_number(y) else "XlogyBackward0"
    return named(name, ops.xlogy(*_numbers_in_dtype(x, y)))


@function("polygamma", methods=False)
def polygamma(n: int, input: ArrayLike) -> Array:
    """Return the n-th derivative of `digamma`."""
    x = floating(input)
    return named("PolygammaBackward0", scipy_special.polygamma(x, n=n) if n else scipy_special.digamma(x))


# -- functions of the namespace `special` alone, and its other names ---------------------------------------------
def entr(input: Array) -> Array:
    """-x * log(x) for x > 0, 0 at 0, and -inf below."""
    return as_node("SpecialEntrBackward0", ufuncs.entr, floating(input))


def xlog1py(input: Array, other: Array) -> Array:
    """input * log(1 + other), and 0 if `input` is 0 and `other` is not nan."""
    x, y = in_floats(pair(input, other, _XLOG1PY))
    name = "SpecialXlog1PyBackward1" if is_number(x) else "SpecialXlog1PyBackward2" if is_number(y) else None
    return as_node(name or "SpecialXlog1PyBackward0", ufuncs.xlog1py, *_numbers_in_dtype(x, y))


erf, erfc, erfinv = FUNCTIONS["erf"], FUNCTIONS["erfc"], FUNCTIONS["erfinv"]
exp2, expm1, log1p, expit = (FUNCTIONS[name] for name in ("exp2", "expm1", "log1p", "sigmoid"))
digamma = psi = FUNCTIONS["digamma"]
gammaln = FUNCTIONS["lgamma"]
round = FUNCTIONS["round"]


FUNCTION_DOCS.document(globals(), __all__)
