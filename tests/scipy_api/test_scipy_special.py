"""`scipy.special` in traced code: SciPy's values to the bit or nearly, slopes against differences, refusals by name."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special as sp
from along import replayed

import tracegrad as tg
from tracegrad.errors import UnsupportedError
from tracegrad.torch.tape import TapeArray

X = np.array([0.3, 0.62, 0.9])
N = np.array([0.0, 1.0, 4.0])

# Functions of one array, and where: near 0.5 if nothing is said.
ONE: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "gamma": (sp.gamma, [0.3, 2.5, -1.3]),
    "gammaln": (sp.gammaln, [0.3, 2.5, -1.3]),
    "loggamma": (sp.loggamma, X),
    "rgamma": (sp.rgamma, X),
    "gammasgn": (sp.gammasgn, [-0.5, 0.5]),
    "digamma": (sp.digamma, X),
    "psi": (sp.psi, X),
    "polygamma": (lambda x: sp.polygamma(2, x), X),
    "polygamma of several orders": (lambda x: sp.polygamma(np.array([0, 1, 3]), x), X),
    "multigammaln": (lambda x: sp.multigammaln(x, 3), [1.5, 3.0]),
    "beta": (lambda x: sp.beta(x, 1.5), X),
    "beta, second": (lambda x: sp.beta(1.5, x), X),
    "betaln": (lambda x: sp.betaln(x, 1.5) + sp.betaln(0.5, x), X),
    "binom": (lambda x: sp.binom(3 + x, x), X),
    "comb": (lambda x: sp.comb(5, x), [0.3, 2.0, 4.5]),
    "comb with repetition": (lambda x: sp.comb(x, 2, repetition=True), [3.0, 4.5]),
    "perm": (lambda x: sp.perm(x, 2), [3.0, 4.5]),
    "poch": (lambda x: sp.poch(x, 1.5) + sp.poch(2.5, x), X),
    "factorial": (sp.factorial, [0.3, 2.0, 4.0]),
    "zeta": (lambda x: sp.zeta(2.5, x), X),
    "gammainc": (lambda x: sp.gammainc(1.7, x), [0.0, 0.3, 5.0]),
    "gammaincc": (lambda x: sp.gammaincc(1.7, x), [0.3, 5.0]),
    "gammaincinv": (lambda x: sp.gammaincinv(1.7, x), X),
    "gammainccinv": (lambda x: sp.gammainccinv(1.7, x), X),
    "betainc": (lambda x: sp.betainc(1.7, 2.2, x), X),
    "betaincc": (lambda x: sp.betaincc(1.7, 2.2, x), X),
    "betaincinv": (lambda x: sp.betaincinv(1.7, 2.2, x), X),
    "betainccinv": (lambda x: sp.betainccinv(1.7, 2.2, x), X),
    "gammainc, shape": (lambda x: sp.gammainc(x, 1.7) + sp.gammainc(x * 9, 4.0), X),
    "gammaincc, shape": (lambda x: sp.gammaincc(x, 1.7), X),
    "gammaincinv, shape": (lambda x: sp.gammaincinv(3 * x, 0.3) + sp.gammainccinv(3 * x, 0.3), X),
    "betainc, shape": (lambda x: sp.betainc(x, 2 * x, 0.3) - sp.betaincc(x, 1.5, 0.8), X),
    "betaincinv, shape": (lambda x: sp.betaincinv(2 * x, x + 1, 0.3) - sp.betainccinv(2.0, x + 1, 0.8), X),
    "exp1": (sp.exp1, X),
    "expi": (sp.expi, X),
    "expn": (lambda x: sp.expn(3, x) + sp.expn(np.array([0, 1, 2]), x), X),
    "sici": (lambda x: sp.sici(x)[0] * sp.sici(x)[1], X),
    "shichi": (lambda x: sp.shichi(x)[0] * sp.shichi(x)[1], X),
    "erf": (sp.erf, X),
    "erfc": (sp.erfc, X),
    "erfcx": (sp.erfcx, X),
    "erfi": (sp.erfi, X),
    "erfinv": (sp.erfinv, X),
    "erfcinv": (sp.erfcinv, X),
    "dawsn": (sp.dawsn, X),
    "ndtr": (sp.ndtr, [-3.0, 0.4, 2.0]),
    "ndtri": (sp.ndtri, X),
    "ndtri_exp": (sp.ndtri_exp, [-3.0, -0.4]),
    "log_ndtr": (sp.log_ndtr, [-30.0, -3.0, 0.4, 2.0]),
    "fresnel": (lambda x: sp.fresnel(x)[0] * sp.fresnel(x)[1], X),
    "owens_t": (lambda x: sp.owens_t(x, 0.7) + sp.owens_t(0.7, x), X),
    "expit": (sp.expit, X),
    "logit": (sp.logit, X),
    "log_expit": (sp.log_expit, X),
    "xlogy": (lambda x: sp.xlogy(x, x), X),
    "xlog1py": (lambda x: sp.xlog1py(x, x), X),
    "entr": (sp.entr, X),
    "rel_entr": (lambda x: sp.rel_entr(x, 0.4), X),
    "kl_div": (lambda x: sp.kl_div(x, 0.4) + sp.kl_div(0.4, x), X),
    "huber": (lambda x: sp.huber(0.5, x), [-2.0, 0.3, 1.4]),
    "pseudo_huber": (lambda x: sp.pseudo_huber(0.5, x), X),
    "boxcox": (lambda x: sp.boxcox(x, 0.0) + sp.boxcox(0.4, x), X),
    "boxcox1p": (lambda x: sp.boxcox1p(x, 0.3), X),
    "inv_boxcox": (lambda x: sp.inv_boxcox(x, 0.3) + sp.inv_boxcox(x, 0.0), X),
    "inv_boxcox1p": (lambda x: sp.inv_boxcox1p(x, 0.3), X),
    "logsumexp": (lambda x: sp.logsumexp(x, b=[1.0, 0.0, 2.0]), X),
    "softmax": (lambda x: sp.softmax(x) ** 2, X),
    "log_softmax": (sp.log_softmax, X),
    "j0": (sp.j0, X),
    "j1": (sp.j1, X),
    "y0": (sp.y0, X),
    "y1": (sp.y1, X),
    "i0": (sp.i0, X),
    "i1": (sp.i1, X),
    "i0e": (sp.i0e, [-1.5, 0.3]),
    "i1e": (sp.i1e, [-1.5, 0.3]),
    "k0": (sp.k0, X),
    "k1": (sp.k1, X),
    "k0e": (sp.k0e, X),
    "k1e": (sp.k1e, X),
    "jv": (lambda x: sp.jv(1.5, x), X),
    "yv": (lambda x: sp.yv(1.5, x), X),
    "iv": (lambda x: sp.iv(N, x), X),
    "kv": (lambda x: sp.kv(1.5, x), X),
    "kn": (lambda x: sp.kn(2, x), X),
    "yn": (lambda x: sp.yn(2, x), X),
    "ive": (lambda x: sp.ive(N, x), X),
    "kve": (lambda x: sp.kve(1.5, x), X),
    "airy": (lambda x: sp.airy(x)[0] * sp.airy(x)[3], X),
    "struve": (lambda x: sp.struve(1, x), X),
    "modstruve": (lambda x: sp.modstruve(1, x), X),
    "spherical_jn": (lambda x: sp.spherical_jn(np.array([0, 1, 4]), x), X),
    "spherical_yn": (lambda x: sp.spherical_yn(2, x), X),
    "spherical_in": (lambda x: sp.spherical_in(2, x), X),
    "spherical_kn": (lambda x: sp.spherical_kn(2, x), X),
    "hyp0f1": (lambda x: sp.hyp0f1(1.5, x), X),
    "hyp1f1": (lambda x: sp.hyp1f1(0.5, 1.5, x), X),
    "hyperu": (lambda x: sp.hyperu(0.5, 1.5, x), X),
    "hyp2f1": (lambda x: sp.hyp2f1(0.5, 1.5, 2.5, x), X),
    "exprel": (sp.exprel, [-1.0, 0.0, 0.9]),
    "spence": (sp.spence, [0.3, 1.0, 3.0]),
    "ellipk": (sp.ellipk, [-2.0, 0.0, 0.9]),
    "ellipe": (sp.ellipe, [-2.0, 0.0, 0.9]),
    "ellipkm1": (sp.ellipkm1, [1e-9, 0.3, 0.9, 1.0]),
    "ellipkinc": (lambda x: sp.ellipkinc(0.7, x) + sp.ellipkinc(x, 0.3), X),
    "ellipeinc": (lambda x: sp.ellipeinc(0.7, x) + sp.ellipeinc(x, 0.3), X),
    "wright_bessel": (lambda x: sp.wright_bessel(0.5, 1.5, x), X),
    "eval_legendre": (lambda x: sp.eval_legendre(N, x), X),
    "eval_chebyt": (lambda x: sp.eval_chebyt(N, x), X),
    "eval_chebyu": (lambda x: sp.eval_chebyu(N, x), X),
    "eval_gegenbauer": (lambda x: sp.eval_gegenbauer(3, 0.5, x), X),
    "eval_jacobi": (lambda x: sp.eval_jacobi(3, 0.5, 1.5, x), X),
    "eval_hermite": (lambda x: sp.eval_hermite(3, x), X),
    "eval_hermitenorm": (lambda x: sp.eval_hermitenorm(3, x), X),
    "eval_laguerre": (lambda x: sp.eval_laguerre(3, x), X),
    "eval_genlaguerre": (lambda x: sp.eval_genlaguerre(3, 0.5, x), X),
    "stdtr": (lambda x: sp.stdtr(3.0, x), X),
    "stdtrit": (lambda x: sp.stdtrit(3.0, x), X),
    "stdtr, shape": (lambda x: sp.stdtr(9 * x, 0.7) + sp.stdtr(x, -3.0), X),
    "chdtr, shape": (lambda x: sp.chdtr(9 * x, 3.0) + sp.gdtr(1.5, x, 2.0), X),
    "fdtr, shape": (lambda x: sp.fdtr(9 * x, 4 * x, 1.3), X),
    "chdtr": (lambda x: sp.chdtr(3.0, x) - sp.chdtrc(3.0, x), X),
    "gdtr": (lambda x: sp.gdtr(1.5, 2.5, x) - sp.gdtrc(1.5, 2.5, x), X),
    "fdtr": (lambda x: sp.fdtr(3.0, 4.0, x) - sp.fdtrc(3.0, 4.0, x), X),
    "pdtr": (lambda x: sp.pdtr(2.0, x) - sp.pdtrc(2.0, x), X),
    "exp10": (sp.exp10, X),
    "cosm1": (sp.cosm1, X),
    "powm1": (lambda x: sp.powm1(x, 1.5) + sp.powm1(1.5, x), X),
    "wrightomega": (sp.wrightomega, X),
    "sindg": (lambda x: sp.sindg(x) + sp.cosdg(x) + sp.tandg(x), X),
}
if hasattr(sp, "softplus"):  # SciPy has it since 1.15
    ONE["softplus"] = (sp.softplus, [-2.0, 0.5, 40.0])


def total(f: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """The sum of `f`, as a function of its own: those of one code share the number of paths they may have."""

    def summed(x: Any) -> Any:
        return np.sum(f(x))

    return types.FunctionType(summed.__code__.replace(co_name=name), globals(), name, None, summed.__closure__)


def differences(f: Callable[[Any], Any], x: Any) -> Any:
    """The slope of the sum of `f` by differences of the fourth order."""
    out = np.empty_like(x)
    for i in range(x.size):
        step = 1e-3 * min(max(abs(x[i]), 1e-6), 1.0) if x[i] else 1e-3
        near = [float(np.sum(f(x + k * step * (np.arange(x.size) == i)))) for k in (-2, -1, 1, 2)]
        out[i] = (near[0] - 8 * near[1] + 8 * near[2] - near[3]) / (12 * step)
    return out


@pytest.mark.parametrize("name", ONE)
def test_values_are_scipys_and_slopes_those_of_differences(name: str) -> None:
    f, at = ONE[name]
    x = np.asarray(at, np.float64)
    np.testing.assert_allclose(tg.trace(f)(x), f(x), rtol=1e-14, atol=1e-15)
    inside = x if name not in ("gammainc", "ellipkm1") else x[(x > 1e-6) & (x < 1)]
    derivative = tg.grad(total(f, name))
    np.testing.assert_allclose(derivative(inside), differences(f, inside), rtol=1e-7, atol=1e-9)


ONCE_ONLY = {"factorial", "comb", "ellipkm1", "huber", "log_ndtr", "powm1"}  # kinks, or differences of no use


@pytest.mark.parametrize("name", [name for name in ONE if name not in ONCE_ONLY])
def test_second_derivatives_are_those_of_differences_forwards_and_backwards(name: str) -> None:
    f, at = ONE[name]
    x = np.asarray(at, np.float64)
    x = x[x != 0] if name in ("gammainc", "i1e", "i0e") else x
    v = np.linspace(0.5, 1.5, x.size)
    derivative = tg.grad(total(f, name))
    want = differences(lambda x: np.sum(derivative(x) * v), x)
    np.testing.assert_allclose(tg.grad(total(lambda x: derivative(x) * v, name))(x), want, rtol=2e-6, atol=1e-8)
    with replayed():
        np.testing.assert_allclose(tg.jvp(derivative, (x,), (v,))[1], want, rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("f", "exact", "x"),
    [
        (lambda x: sp.jv(1.5, x), lambda x: mpmath.besselj(1.5, x), 7.3),
        (lambda x: sp.gammainc(1.7, x), lambda x: mpmath.gammainc(1.7, 0, x, regularized=True), 2.5),
        (sp.ellipk, mpmath.ellipk, 0.7),
        (sp.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), 1.3),
        (sp.digamma, mpmath.digamma, 2.3),
        (sp.spence, lambda x: mpmath.polylog(2, 1 - x), 0.4),
        (sp.log_ndtr, lambda x: mpmath.log(mpmath.ncdf(x)), -6.0),
    ],
)
def test_the_first_three_derivatives_are_those_of_mpmath(f: Any, exact: Any, x: float) -> None:
    derived = lambda x: f(x)  # noqa: E731
    for order in range(1, 4):
        derived = tg.grad(derived)
        with mpmath.workdps(40):
            want = float(mpmath.diff(exact, mpmath.mpf(x), order))
        assert derived(x) == pytest.approx(want, rel=1e-9)


def gamma_derivative(a: float, x: float) -> float:
    """The slope in `a` of gammainc, or of minus gammaincc, which has the same, where that is small."""
    low = mpmath.gammainc(a, 0, x, regularized=True) < 0.5
    exact = lambda s: mpmath.gammainc(s, 0, x, True) if low else -mpmath.gammainc(s, x, mpmath.inf, True)  # noqa: E731
    return float(mpmath.diff(exact, a, h=a * mpmath.mpf("1e-15")))


def beta_derivative(a: float, b: float, x: float) -> float:
    low = mpmath.betainc(a, b, 0, x, regularized=True) < 0.5
    exact = lambda s: mpmath.betainc(s, b, 0, x, True) if low else -mpmath.betainc(s, b, x, 1, True)  # noqa: E731
    return float(mpmath.diff(exact, a, h=a * mpmath.mpf("1e-15")))


def test_derivatives_in_shapes_keep_their_digits_in_both_tails_and_for_small_and_large_shapes() -> None:
    q = np.array([1e-12, 1e-3, 0.4, 0.6, 0.999, 1 - 1e-12])
    for a in (0.02, 0.7, 1.0, 17.0, 2000.0):
        x = sp.gammaincinv(a, q)
        x = x[x > 1e-290]
        with mpmath.workdps(50):
            want = [gamma_derivative(a, at) for at in x]
        got = tg.grad(lambda a, x: np.sum(sp.gammainc(a, x)))(np.full(x.size, a), x)
        np.testing.assert_allclose(got, want, rtol=2e-11)
    for a, b in ((0.02, 50.0), (0.3, 2.0), (1.0, 1.0), (40.0, 0.5), (60.0, 80.0)):
        x = sp.betaincinv(a, b, q)
        x = x[(x > 1e-290) & (x < 1 - 1e-15)]
        with mpmath.workdps(50):
            want = [beta_derivative(a, b, at) for at in x]
        got = tg.grad(lambda a, b, x: np.sum(sp.betainc(a, b, x)))(np.full(x.size, a), b, x)
        np.testing.assert_allclose(got, want, rtol=2e-11)
    assert tg.grad(lambda a: sp.gammainc(a, 0.0) + sp.betainc(a, a, 1.0) + sp.stdtr(a, 0.0))(2.0) == 0.0


@pytest.mark.parametrize("name", ["gamma", "gammainc, shape", "jv", "erfcx", "betainc", "airy", "huber"])
def test_on_the_tape_universal_functions_have_the_derivative_of_compiled_code(name: str) -> None:
    f, at = ONE[name]
    x = np.asarray(at, np.float64)
    derivative = tg.grad(lambda x: np.sum(f(x)))
    compiled = derivative(x)
    with tg.disable_jit():
        np.testing.assert_allclose(derivative(x), compiled, rtol=1e-13)


def test_operands_are_broadcast_and_promoted_as_scipy_does() -> None:
    a, b = np.array([[0.5], [1.5]], np.float32), np.array([0.3, 0.7, 2.0], np.float32)
    others = b.astype(np.float64), np.array([1, 2, 3]), np.array([1, 2, 3], np.int8), 2, 2.0, True, np.float16(2)
    for x, y in ((a, b), *[(a, y) for y in others]):
        got, want = tg.trace(lambda x, y: sp.beta(x, y))(x, y), sp.beta(x, y)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_batch_of_examples_and_a_second_shape() -> None:
    f = tg.vmap(lambda v, x: sp.jv(v, x) + sp.gamma(x), in_axes=(None, 0))
    for n in (3, 11):
        x = np.linspace(0.5, 3.0, 2 * n).reshape(n, 2)
        np.testing.assert_allclose(f(1.5, x), sp.jv(1.5, x) + sp.gamma(x), rtol=1e-14)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda x: sp.jv(x, 2.0), "scipy.special.jv has no derivative with respect to argument 0"),
        (lambda x: sp.hyp1f1(x, 1.5, 2.0), "scipy.special.hyp1f1 has no derivative with respect to argument 0"),
        (lambda x: sp.zeta(1 + x), "scipy.special.riemann_zeta has no derivative"),
        (sp.kolmogorov, "scipy.special.kolmogorov has no derivative"),
    ],
)
def test_where_there_is_no_derivative_the_value_is_there_and_the_error_names_the_argument(f: Any, what: str) -> None:
    np.testing.assert_allclose(tg.trace(f)(X), f(X), rtol=1e-14)
    with pytest.raises(UnsupportedError, match=what):
        tg.grad(lambda x: np.sum(f(x)))(X)


def test_gamma_of_math_has_pythons_values_errors_and_two_derivatives() -> None:
    f = tg.trace(lambda x: math.gamma(x))
    for x in (0.5, 3.0, -1.5, 20.3, 5, math.inf):
        assert f(x) == pytest.approx(math.gamma(x), rel=1e-14)
    for x, error in ((0.0, ValueError), (-2.0, ValueError), (200.0, OverflowError)):
        with pytest.raises(error, match=r"math|expected a noninteger"):  # since Python 3.14 the latter
            f(x)
    derivative = tg.grad(lambda x: math.gamma(x))
    for x in (0.5, -1.5, 4.2):
        assert derivative(x) == pytest.approx(float(mpmath.diff(mpmath.gamma, x)), rel=1e-12)
        assert tg.grad(derivative)(x) == pytest.approx(float(mpmath.diff(mpmath.gamma, x, 2)), rel=1e-12)


def test_complex_numbers_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"scipy\.special\.erfcx of complex numbers"):
        sp.erfcx(TapeArray(np.array([1j]), requires_grad=True))


def test_lambertw_on_the_tape_is_complex_and_has_its_derivative() -> None:
    x = np.array([0.5, 2.0, -0.2, -0.9])
    with tg.disable_jit():
        derivative = tg.grad(lambda x: np.sum(sp.lambertw(x).real + 2 * sp.lambertw(x).imag))(x)
    w = sp.lambertw(x)
    exact = 1 / (np.exp(w) * (1 + w))
    np.testing.assert_allclose(derivative, exact.real + 2 * exact.imag, rtol=1e-12)


def test_what_is_known_while_tracing_is_scipys_own_answer() -> None:
    assert tg.trace(lambda x: x * sp.comb(5, 2, exact=True))(2.0) == 20.0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("shape", "axis"), [((0,), None), ((3, 0), 1), ((0, 3), 1), ((0, 3), 0)])
def test_logsumexp_of_nothing_is_minus_infinity(shape: tuple[int, ...], axis: int | None) -> None:
    x = np.zeros(shape)
    traced = tg.trace(lambda x: sp.logsumexp(x, axis=axis))
    for _ in range(2):
        np.testing.assert_array_equal(traced(x), sp.logsumexp(x, axis=axis))
    assert tg.grad(lambda x: np.sum(sp.logsumexp(x, axis=axis)))(x).shape == shape
