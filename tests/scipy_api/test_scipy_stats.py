"""`scipy.stats` in traced code: SciPy's values, derivatives by differences, frozen distributions, refusals by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats as st
from along import named, replayed

import tracegrad as tg
from tracegrad.errors import UnsupportedError

X = np.array([-1.5, -0.2, 0.0, 0.3, 0.95, 1.0, 2.5])
Q = np.array([0.1, 0.4, 0.77])
# The distribution, and parameters of its shape.
CONTINUOUS: dict[str, tuple[float, ...]] = {
    "norm": (),
    "halfnorm": (),
    "t": (3.5,),
    "gamma": (2.2,),
    "invgamma": (2.2,),
    "beta": (1.5, 2.5),
    "expon": (),
    "uniform": (),
    "lognorm": (0.7,),
    "laplace": (),
    "logistic": (),
    "cauchy": (),
    "chi2": (3.5,),
    "f": (3.5, 5.0),
    "weibull_min": (1.7,),
    "pareto": (1.7,),
    "rayleigh": (),
    "gumbel_r": (),
    "gumbel_l": (),
}
DISCRETE: dict[str, tuple[float, ...]] = {
    "poisson": (1.7,),
    "binom": (4.0, 0.3),
    "bernoulli": (0.3,),
    "nbinom": (2.5, 0.4),
    "geom": (0.3,),
}
METHODS = ("logpdf", "pdf", "cdf", "sf", "logcdf", "logsf", "ppf", "isf")


def weighted(f: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A sum of the elements of `f`, as a function of its own."""

    def summed(*xs: Any) -> Any:
        y = f(*xs)
        return np.sum(y * np.cos(np.arange(y.size)).reshape(y.shape))

    return named(summed, name)


def differences(f: Callable[..., Any], xs: list[float], i: int) -> float:
    step = 1e-3
    near = [f(*xs[:i], xs[i] + k * step, *xs[i + 1 :]) for k in (-2, -1, 1, 2)]
    return float(near[0] - 8 * near[1] + 8 * near[2] - near[3]) / (12 * step)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_values_of_continuous_distributions_are_scipys(name: str, method: str) -> None:
    dist, shapes = getattr(st, name), CONTINUOUS[name]
    x = Q if method in ("ppf", "isf") else X[X != 0] if name == "invgamma" else X
    for given in ((), (0.25, 1.5)):
        f = named(lambda x, given=given: getattr(dist, method)(x, *shapes, *given), f"{name}_{method}")
        f.__defaults__ = (given,)
        want, got = f(x), tg.trace(f)(x)
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_derivatives_of_continuous_distributions_are_those_of_differences(name: str, method: str) -> None:
    dist, shapes = getattr(st, name), CONTINUOUS[name]
    at = Q if method in ("ppf", "isf") else np.array([0.31, 0.52, 0.77]) + (1.0 if name == "pareto" else 0.0)

    def f(shift: Any, loc: Any, scale: Any, *parameters: Any) -> Any:
        return getattr(dist, method)(at + shift, *(parameters or shapes), loc=loc, scale=scale)

    of, xs = weighted(f, f"{name}_{method}"), [0.0, 0.05, 1.1, *shapes]
    gradient = tg.grad(of, argnums=tuple(range(len(xs))))
    for i, derivative in enumerate(gradient(*xs)):
        assert derivative == pytest.approx(differences(of, xs, i), rel=1e-7, abs=1e-8)
    want = differences(lambda *xs: gradient(*xs)[0], xs, 0)
    first = tg.grad(of)
    with replayed():
        second = tg.grad(named(lambda x: first(x, *xs[1:]), f"{name}_{method}"))(0.0)
    assert second == pytest.approx(want, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", [name for name in CONTINUOUS if name not in ("beta", "uniform")])
def test_the_inverse_of_what_is_beyond_keeps_its_digits_in_the_tail(name: str) -> None:
    dist, shapes, q = getattr(st, name), CONTINUOUS[name], np.array([1e-20, 1e-12, 1e-5])
    f = named(lambda q: dist.isf(q, *shapes), f"{name}_isf")
    x = tg.trace(f)(q)
    np.testing.assert_allclose(dist.sf(x, *shapes), q, rtol=1e-10)
    np.testing.assert_allclose(tg.grad(weighted(f, name))(q), -np.cos(np.arange(3)) / dist.pdf(x, *shapes), rtol=1e-9)
    ends = np.array([0.0, 1.0])
    for inverse in ("ppf", "isf"):
        of = named(lambda q: getattr(dist, inverse)(q, *shapes), f"{name}_{inverse}_ends")  # noqa: B023
        np.testing.assert_array_equal(tg.trace(of)(ends), of(ends))


@pytest.mark.parametrize("method", ["logpmf", "pmf", "cdf", "sf", "logcdf", "logsf"])
@pytest.mark.parametrize("name", DISCRETE)
def test_values_of_discrete_distributions_are_scipys(name: str, method: str) -> None:
    dist, shapes = getattr(st, name), DISCRETE[name]
    k = np.array([-1, 0, 1, 2, 4, 5])
    for x in (k, k + 0.5):
        for loc in ((), (1,)):
            f = named(lambda p, x, *loc: getattr(dist, method)(x, *shapes[:-1], p, *loc), f"{name}_{method}")
            want, got = f(shapes[-1], x, *loc), tg.trace(f)(shapes[-1], x, *loc)
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("name", DISCRETE)
def test_derivatives_of_discrete_distributions_in_their_last_parameter(name: str) -> None:
    dist, shapes = getattr(st, name), DISCRETE[name]
    k = np.array([1, 1, 0]) if name == "bernoulli" else np.array([1, 2, 4])
    for method in ("logpmf", "cdf", "sf"):
        of = weighted(lambda p, method=method: getattr(dist, method)(k, *shapes[:-1], p), f"{name}_{method}")
        assert tg.grad(of)(shapes[-1]) == pytest.approx(differences(of, [shapes[-1]], 0), rel=1e-7)


COV = np.array([[2.0, 0.3], [0.3, 1.0]])
POINTS = np.array([[0.1, 0.2], [1.0, -0.4], [0.0, 0.0]])
SIMPLEX = np.array([[0.2, 0.5], [0.3, 0.1], [0.5, 0.4]])
VECTORS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "normal": (lambda x, c: st.multivariate_normal.logpdf(x, [0.5, -0.2], (c + c.T) / 2), (POINTS, COV)),
    "normal, density": (lambda x, c: st.multivariate_normal.pdf(x, c[0], 2.0), (POINTS[0], COV)),
    "normal, frozen": (lambda x, c: st.multivariate_normal(c[0], (c + c.T) / 2).logpdf(x), (POINTS, COV)),
    "normal, of one dimension": (lambda x, c: st.multivariate_normal.logpdf(x, 0.3, c), (POINTS[0], np.array(2.0))),
    "normal, one point of one dimension": (
        lambda x, c: st.multivariate_normal.logpdf(x[:1], None, c),
        (POINTS[0], np.array(2.0)),
    ),
    "normal, with an axis of one": (
        lambda x, c: st.multivariate_normal.pdf(x[None], [0.5, 0.1], (c + c.T) / 2),
        (POINTS, COV),
    ),
    "dirichlet": (lambda x, a: st.dirichlet.logpdf(x / np.sum(x, axis=0), a), (SIMPLEX, np.array([1.5, 2.0, 0.7]))),
    "dirichlet, without the last": (lambda x, a: st.dirichlet.pdf(x, a), (SIMPLEX[:2], np.array([1.5, 2.0, 0.7]))),
    "multinomial": (
        lambda p, q: st.multinomial.logpmf([[1, 2, 3], [1, 1, 1]], 6, p / np.sum(p)),
        (SIMPLEX[:, 0], SIMPLEX),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_distributions_of_vectors(name: str) -> None:
    f, xs = VECTORS[name]
    exact = st.dirichlet.logpdf if name == "dirichlet" else None
    want = np.array([exact(c / np.sum(c), xs[1]) for c in xs[0].T]) if exact else f(*xs)
    got = tg.trace(f)(*xs)
    assert np.shape(got) == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    if name.startswith("dirichlet") or "multinomial" in name:
        f = {"dirichlet": lambda x, a: st.dirichlet.logpdf(x[:2, 0], a)}.get(name, f)
    of = weighted(lambda *xs: np.where(np.isfinite(y := f(*xs)), y, 0.0), name)
    for i, derivative in enumerate(tg.grad(of, argnums=(0, 1))(*xs)):
        v = np.sin(1.0 + np.arange(xs[i].size)).reshape(xs[i].shape)
        along = lambda t, i=i, v=v: of(*xs[:i], xs[i] + t * v, *xs[i + 1 :])  # noqa: E731
        assert np.sum(derivative * v) == pytest.approx(differences(along, [0.0], 0), rel=1e-6, abs=1e-9)


FROZEN = st.norm(0.5, scale=2.0)


def test_frozen_distributions_from_outside_and_from_inside() -> None:
    x = np.array([0.1, 0.7])
    want = st.norm.logpdf(x, 0.5, 2.0)
    np.testing.assert_allclose(tg.trace(lambda x: FROZEN.logpdf(x))(x), want)
    np.testing.assert_allclose(tg.trace(lambda x: st.norm(0.5, scale=2.0).logpdf(x))(x), want)
    np.testing.assert_allclose(tg.trace(lambda x, s: st.norm(loc=0.5, scale=s).logpdf(x))(x, 2.0), want)
    derivative = tg.grad(lambda s: np.sum(st.norm(loc=0.5, scale=s).logpdf(x)))(2.0)
    assert derivative == pytest.approx(np.sum(((x - 0.5) ** 2 / 4 - 1) / 2))


def test_another_frozen_distribution_is_another_trace() -> None:
    held = {"prior": st.gamma(2.0)}
    f = tg.trace(lambda x: held["prior"].logpdf(x))
    assert f(0.7) == pytest.approx(st.gamma.logpdf(0.7, 2.0))
    held["prior"] = st.gamma(3.0)
    assert f(0.7) == pytest.approx(st.gamma.logpdf(0.7, 3.0))


def test_of_a_number_it_is_a_number() -> None:
    for f in (lambda x: st.gamma.logpdf(x, 2.0), lambda x: st.norm.cdf(x), lambda x: st.norm(0.2).ppf(x)):
        assert type(tg.trace(f)(0.7)) is type(f(0.7)) is np.float64


def test_parameters_that_are_none_give_nan() -> None:
    assert math.isnan(tg.trace(lambda s: st.norm.logpdf(0.3, 0.0, s))(-1.0))
    assert math.isnan(tg.trace(lambda a: st.gamma.logpdf(0.3, a))(-1.0))


def test_no_nan_leaks_from_outside_of_the_support() -> None:
    x = np.array([-1.0, 0.5])
    derivative = tg.grad(lambda a: np.sum(np.exp(st.gamma.logpdf(x, a))))(2.0)
    assert derivative == pytest.approx(differences(lambda a: np.sum(st.gamma.pdf(x, a)), [2.0], 0), rel=1e-8)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda x: st.skewnorm.logpdf(x, 2.0), "scipy.stats.skewnorm.logpdf"),
        (lambda x: st.norm.expect(lambda y: y, loc=x), "scipy.stats.norm.expect"),
        (lambda x: st.poisson(x).entropy(), "scipy.stats.poisson.entropy"),
        (lambda x: x + st.norm.rvs(), "scipy.stats.norm.rvs in a traced function would be drawn once"),
    ],
)
def test_what_is_not_known_is_refused_by_name(f: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what.replace(".", r"\.")):
        tg.trace(f)(0.3)


# -- moments, and how arguments are given ----------------------------------------------------------------------------
# Parameters with which there are means and variances.
FINITE = CONTINUOUS | {"f": (3.5, 9.0), "pareto": (2.7,)}


@pytest.mark.parametrize("name", [*CONTINUOUS, *DISCRETE])
def test_moments_are_scipys_and_have_the_derivatives_of_differences(name: str) -> None:
    dist, shapes = getattr(st, name), [*(FINITE | DISCRETE)[name]]
    discrete, whole = name in DISCRETE, name == "binom"
    methods = ["mean", "var", "std", *([] if name in ("poisson", "binom", "nbinom") else ["entropy"])]

    def all_of(*given: Any) -> Any:
        given = given if not whole else (4, *given)
        own = [getattr(dist, method)(*given) for method in methods]
        return np.array([*own, *([] if discrete else [*dist.interval(0.8, *given), dist(*given).median()])])

    parameters = [*shapes[whole:], 0.3, *([] if discrete else [1.4])]
    of = weighted(lambda *xs: all_of(*xs), name)
    with replayed():
        np.testing.assert_allclose(tg.trace(named(all_of, name))(*parameters), all_of(*parameters), rtol=1e-12)
        if name == "cauchy":
            return  # which has no mean
        derivatives = tg.grad(of, argnums=tuple(range(len(parameters))))(*parameters)
        both = named(lambda *xs: dist.stats(*((4,) if whole else ()), *xs, moments="mv"), name)
        np.testing.assert_allclose(tg.trace(both)(*parameters), both(*parameters), rtol=1e-12)
    for i, derivative in enumerate(derivatives):
        assert derivative == pytest.approx(differences(of, parameters, i), rel=1e-8, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "shapes"), [("t", (1.0,)), ("t", (1.5,)), ("f", (3.0, 2.0)), ("pareto", (0.5,)), ("invgamma", (1.0,))]
)
def test_moments_that_there_are_not_are_scipys(name: str, shapes: tuple[float, ...]) -> None:
    dist = getattr(st, name)
    f = named(lambda *a: (dist.mean(*a), dist.var(*a)), name)
    with replayed():
        np.testing.assert_array_equal(tg.trace(f)(*map(np.array, shapes)), f(*shapes))


def test_moments_have_the_shapes_of_all_parameters() -> None:
    locs, scales = np.array([0.5, 1.5]), np.array([[1.0], [2.0], [-1.0]])
    f = tg.trace(lambda m, s: (st.norm.mean(m, s), st.norm(m, s).var(), st.norm.entropy(m, s), st.gamma.std(m, 0, s)))
    for got, want in zip(f(locs, scales), f.__wrapped__(locs, scales)):
        np.testing.assert_allclose(got, want, rtol=1e-13)


BEYOND: dict[str, tuple[Any, ...]] = {
    "bernoulli": (1.5,),
    "geom": (1.2,),
    "nbinom": (2.0, 1.1),
    "binom": (4.0, 1.1),
    "binom, half": (4.5, 0.3),
    "binom, none": (-1.0, 0.3),
    "poisson": (-0.1,),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_no_probability_and_no_number_of_trials_gives_nan_as_in_scipy(name: str) -> None:
    dist, k = getattr(st, name.partition(",")[0]), np.array([0, 1, 3])
    f = named(lambda *p: np.array([dist.logpmf(k, *p), dist.pmf(k, *p), dist.cdf(k, *p), dist.logsf(k, *p)]), name)
    with replayed():
        np.testing.assert_array_equal(tg.trace(f)(*map(np.float64, BEYOND[name])), f(*BEYOND[name]))


def test_arguments_have_scipys_names_in_frozen_distributions_too() -> None:
    def f(x: Any, a: Any) -> Any:
        ours = st.gamma(a, scale=2.0).logpdf(x=x) + st.norm.cdf(x=x, loc=a) + st.beta.ppf(q=x, a=a, b=2.0)
        return ours + st.poisson(mu=a).logpmf(k=3) + st.binom.logpmf(k=2, n=5, p=x)

    x = np.array([0.2, 0.4])
    with replayed():
        np.testing.assert_allclose(tg.trace(f)(x, 1.7), f(x, 1.7), rtol=1e-12)


def test_densities_of_single_precision_are_doubles_as_scipys() -> None:
    x = np.float32([0.5, 1.5])
    f = tg.trace(lambda x: (st.norm.logpdf(x, x, 2), st.gamma.cdf(x, x), st.multivariate_normal.logpdf(x, x)))
    for got, want in zip(f(x), f.__wrapped__(x)):
        assert got.dtype == want.dtype == np.float64
        np.testing.assert_allclose(got, want, rtol=1e-13)


C = np.array([[0.7, 0.2], [0.2, 1.1]])
P = np.array([0.9, 1.7, 2.6])
OF_VECTORS: dict[str, Callable[[Any], Any]] = {
    "normal entropy": lambda p: st.multivariate_normal(p[:2], C * p[2]).entropy(),
    "normal entropy of numbers": lambda p: st.multivariate_normal.entropy(cov=p[0]),
    "normal that may be singular": lambda p: st.multivariate_normal.logpdf(C, p[:2], C * p[2], allow_singular=True),
    "dirichlet": lambda p: np.concatenate([st.dirichlet.mean(p), st.dirichlet(p).var(), [st.dirichlet.entropy(p)]]),
    "multinomial": lambda p: st.multinomial.cov(4, p / np.sum(p)),
}


@pytest.mark.parametrize("name", OF_VECTORS)
def test_moments_of_vectors_are_scipys(name: str) -> None:
    f, v = OF_VECTORS[name], np.array([0.3, -0.2, 0.5])
    of, along = weighted(lambda p: np.asarray(f(p)), name), lambda t: of(P + t * v)
    with replayed():
        np.testing.assert_allclose(tg.trace(named(f, name))(P), f(P), rtol=1e-12)
        assert np.sum(tg.grad(of)(P) * v) == pytest.approx(differences(along, [0.0], 0), rel=1e-8)


def test_results_of_one_column_have_no_axes() -> None:
    column, alpha = SIMPLEX[:, :1], np.array([1.5, 2.0, 0.7])
    got = tg.trace(lambda a: (st.dirichlet.logpdf(column, a), st.dirichlet.mean(a[:1])))(alpha)
    assert [np.shape(x) for x in got] == [np.shape(st.dirichlet.logpdf(column, alpha)), ()]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: st.multivariate_normal.logpdf(x, [0.1, 0.2], [1.0]),
        lambda x: st.multivariate_normal.logpdf(x, None, x),
        lambda x: st.multinomial.logpmf([1, 2, 0], 3, x),
    ],
)
def test_parameters_of_vectors_that_do_not_fit_raise_as_in_scipy(f: Callable[..., Any]) -> None:
    for each in (f, tg.trace(f)):
        with pytest.raises(ValueError, match=r"shape|mismatch|[Ss]ize"):
            each(np.array([0.5, 0.5]))


def test_a_normal_distribution_on_a_line_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"scipy\.stats\.multivariate_normal with a singular matrix"):
        tg.trace(lambda c: st.multivariate_normal.logpdf([0.1, 0.1], cov=c, allow_singular=True))(np.ones((2, 2)))


@pytest.mark.parametrize("name", DISCRETE)
def test_quantiles_of_discrete_distributions_are_scipys_and_have_no_derivatives(name: str) -> None:
    dist, shapes = getattr(st, name), DISCRETE[name]
    q = np.array([-0.5, 0.0, 1e-12, 0.1, 0.3, 0.5, 0.9, 0.999, 1.0, 2.0])
    for method in ("ppf", "isf"):
        f = named(lambda q, loc, *p, method=method: getattr(dist, method)(q, *p, loc), f"{name} {method}")
        f.__kwdefaults__ = {"method": method}
        with replayed():
            np.testing.assert_array_equal(tg.trace(f)(q, 2, *map(np.float64, shapes)), f(q, 2, *shapes))
            of = weighted(lambda q, *p, f=f: f(q, 0, *p), f"{name} {method} slopes")
            of.__closure__[0].cell_contents.__kwdefaults__ = {"f": f}
            derivatives = tg.grad(of, argnums=(0, len(shapes)))(q[3:7], *map(float, shapes))
        np.testing.assert_array_equal(np.concatenate([derivatives[0], [derivatives[1]]]), 0.0)
    with replayed():
        frozen = named(lambda *p: np.array([*dist(*p).interval(0.6), dist(*p).median()]), name)
        np.testing.assert_array_equal(tg.trace(frozen)(*map(np.float64, shapes)), frozen(*shapes))


def test_methods_that_are_held_are_those_of_the_distribution() -> None:
    pdf, table, frozen = st.norm.pdf, {"logpdf": st.t.logpdf}, st.gamma(2.2).cdf

    def held(x: Any) -> Any:
        return np.sum(pdf(x) * table["logpdf"](x, 3.5) + frozen(np.exp(x)))

    def direct(x: Any) -> Any:
        return np.sum(st.norm.pdf(x) * st.t.logpdf(x, 3.5) + st.gamma(2.2).cdf(np.exp(x)))

    for _ in range(2):
        np.testing.assert_allclose(tg.trace(held)(X), direct(X), rtol=1e-12)
        np.testing.assert_allclose(tg.grad(held)(X), tg.grad(direct)(X), rtol=1e-12)
    np.testing.assert_allclose(tg.grad(st.norm.logpdf)(1.5), -1.5)


def test_what_a_method_gives_for_a_python_number_is_a_number_of_numpys() -> None:
    for x in (1.5, np.float64(1.5), np.array(1.5)):
        assert tg.grad(lambda x: st.norm.logpdf(x))(x) == -1.5
        assert tg.trace(lambda x: type(st.norm.logpdf(x)) is np.float64)(x)
