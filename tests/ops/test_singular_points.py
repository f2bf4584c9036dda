"""Each row of `docs/singular_points.md`: compiled, eager and under `disable_jit`, in both modes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp
import scipy.stats
from paths import ROOT

import tracegrad as tg

PAGE = ROOT / "docs" / "singular_points.md"
ROWS = re.findall(r"^\| `(.+?)` \| (\S+) \| (\S+) \|$", PAGE.read_text(encoding="utf-8"), re.M)


def test_the_page_has_its_rows() -> None:
    assert len(ROWS) >= 30


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("text", "at", "derivative"), ROWS)
def test_the_derivative_is_that_of_the_page(text: str, at: str, derivative: str) -> None:
    fun = eval(f"lambda x: {text}", {"np": np})
    x = np.array(float(at))

    def on_the_tape() -> Any:
        t = tg.tensor(x, requires_grad=True)
        value = fun(t)
        if value.requires_grad:
            value.backward()
        return 0.0 if t.grad is None else t.grad.item()

    compiled = tg.grad(fun)
    results = [compiled(x), compiled(x), on_the_tape(), tg.jvp(fun, (x,), (np.array(1.0),))[1]]
    with tg.disable_jit():
        results.append(tg.grad(fun)(x))
    np.testing.assert_array_equal([float(f) for f in results], [float(derivative)] * 5)


@pytest.mark.parametrize("function", [np.logaddexp, np.logaddexp2])
def test_log_sums_are_smooth_where_their_arguments_are_equal(function: Any) -> None:
    base = np.log(2.0) if function is np.logaddexp2 else 1.0
    second = 0.25 * base * np.array([[1.0, -1.0], [-1.0, 1.0]])
    at = np.array([0.5, 0.5])
    hessian = tg.hessian(lambda v: function(v[0], v[1]))
    for _ in range(2):
        np.testing.assert_allclose(hessian(at), second, rtol=1e-12)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.hessian(lambda v: function(v[0], v[1]))(at), second, rtol=1e-12)
    beside_a_number = tg.jvp(tg.grad(lambda v: np.sum(function(v, 0.5))), (at,), (np.ones(2),))[1]
    np.testing.assert_allclose(beside_a_number, 0.25 * base, rtol=1e-12)


TIMES = np.array([0.0, 10.0, 30.0])
MASKED: dict[str, Callable[[Any], Any]] = {
    "logsf": lambda z: scipy.stats.norm.logsf(z),
    "logcdf": lambda z: scipy.stats.norm.logcdf(z),
    "log_ndtr": sp.log_ndtr,
    "erfcx": sp.erfcx,
    "relu": lambda z: tg.nn.functional.relu(z),
    "loggamma": sp.loggamma,
    "zeta": lambda z: sp.polygamma(1, z * z),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", MASKED)
def test_what_a_mask_leaves_out_adds_nothing_to_a_derivative_though_it_is_infinite(name: str) -> None:
    function, p = MASKED[name], np.array([3.0, 0.5])

    def standardized(p: Any, t: Any) -> Any:
        return (np.log(t) - p[0]) / p[1]

    expected = tg.grad(lambda p: np.sum(function(standardized(p, TIMES[1:]))))(p)
    by_index = tg.grad(lambda p, t: np.sum(function(standardized(p, t[t > 0]))))
    by_where = tg.grad(lambda p, t: np.sum(np.where(t > 0, function(standardized(p, t)), 0.0)))
    for _ in range(2):
        np.testing.assert_allclose(by_index(p, TIMES), expected, rtol=1e-13)
        np.testing.assert_allclose(by_where(p, TIMES), expected, rtol=1e-13)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "min", "prod", "var", "std", "ptp", "average"])
@pytest.mark.parametrize("name", ["sqrt", "log"])
def test_rows_that_where_does_not_choose_add_nothing_to_a_derivative(reduction: str, name: str) -> None:
    reduce, function = getattr(np, reduction), getattr(np, name)
    x = np.array([[0.0, 0.5], [0.25, 4.0]])
    expected = np.stack([np.zeros(2), tg.grad(lambda row: reduce(function(row)))(x[1])])
    gradient = tg.grad(lambda x: np.sum(np.where(np.array([False, True]), reduce(function(x), axis=1), 0.0)))
    for _ in range(2):
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-13)
    with tg.disable_jit():
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-13)


# Functions of a matrix by its eigenvectors or singular vectors, and where, at equal values, their derivatives are nan.
WEIGHTS = np.random.default_rng(3).standard_normal((3, 3))
DIRECTION = WEIGHTS + WEIGHTS.T
TURNED = np.linalg.qr(WEIGHTS)[0]
ENDS = {
    "identity": np.eye(3),
    "two equal": np.diag([1.0, 1.0, 2.0]),
    "two zeros": np.diag([0.0, 0.0, 2.0]),
    "none equal": WEIGHTS @ WEIGHTS.T + np.eye(3),
}


def _spectral(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(a: Any) -> Any:
        w, v = np.linalg.eigh(a)
        return np.sum(WEIGHTS * ((v * f(w)) @ v.T))

    return function


def _projector(a: Any) -> Any:
    v = np.linalg.eigh(a)[1][:, :2]
    return np.sum(WEIGHTS * (v @ v.T))


def _polar(a: Any) -> Any:
    u, _, vt = np.linalg.svd(a)
    return np.sum(WEIGHTS * (u @ vt @ TURNED))


def _rebuilt(a: Any) -> Any:
    u, s, vt = np.linalg.svd(a)
    return np.sum(WEIGHTS * ((u * s) @ vt))


def _generalized(a: Any) -> Any:
    return np.sum(WEIGHTS[0] * scipy.linalg.eigh(a, np.eye(3))[1][:, -1]) ** 2


SPECTRAL: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "sum of squares of eigenvalues": (lambda a: np.sum(np.linalg.eigh(a)[0] ** 2), set()),
    "log det by eigvalsh": (lambda a: np.sum(np.log(np.linalg.eigvalsh(a + np.eye(3)))), set()),
    "sum of squares of singular values": (lambda a: np.sum(np.linalg.svd(a)[1] ** 2), set()),
    "rebuilt": (_spectral(lambda w: w), {"identity", "two equal", "two zeros"}),
    "log1p": (_spectral(np.log1p), {"identity", "two equal", "two zeros"}),
    "zero there": (_spectral(lambda w: w * (w - 1.0)), {"identity", "two equal", "two zeros"}),
    "leading vector": (lambda a: np.sum(WEIGHTS[0] * np.linalg.eigh(a)[1][:, -1]) ** 2, {"identity"}),
    "leading vector, generalized": (_generalized, {"identity"}),
    "projector": (_projector, {"identity"}),
    "polar factor": (_polar, {"two zeros"}),
    "of singular values": (_rebuilt, {"identity", "two equal", "two zeros"}),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("at", ENDS)
@pytest.mark.parametrize("name", SPECTRAL)
def test_a_derivative_by_way_of_equal_eigenvalues_is_right_or_nan(name: str, at: str) -> None:
    function, unknown = SPECTRAL[name]
    x, h = ENDS[at], 1e-5
    right = np.nan
    if at not in unknown:
        right = (function(x + h * DIRECTION) - function(x - h * DIRECTION)) / (2 * h)
    gradient = tg.grad(lambda a: function(a))
    reverse = [np.sum(gradient(x) * DIRECTION) for _ in range(2)]
    with tg.disable_jit():
        reverse.append(np.sum(tg.grad(lambda a: function(a))(x) * DIRECTION))
    batched = tg.vmap(tg.grad(lambda a: function(a)))(np.stack([x, ENDS["none equal"]]))
    reverse.append(np.sum(batched[0] * DIRECTION))
    np.testing.assert_allclose(reverse, right, rtol=1e-5, atol=1e-8)
    assert np.isfinite(batched[1]).all()
    forward = tg.jvp(lambda a: function(a), (x,), (DIRECTION,))[1]
    if not np.isnan(forward) or at == "none equal":
        np.testing.assert_allclose(forward, right, rtol=1e-5, atol=1e-8)


# Values that are equal but for rounding: of matrices that are no diagonals. What is right stays so, or becomes nan.
MIXED = np.linalg.qr(np.random.default_rng(5).standard_normal((4, 4)))[0]
NEARLY = {
    "two equal": (MIXED * [1.0, 1.0, 2.0, 2.5]) @ MIXED.T,
    "two zeros": (MIXED * [0.0, 0.0, 2.0, 2.5]) @ MIXED.T,
    "all equal": (MIXED * [1.0, 1.0, 1.0, 1.0]) @ MIXED.T,
    "three zeros": (MIXED * [0.0, 0.0, 0.0, 1.0]) @ MIXED.T,
    "none equal": (MIXED * [0.5, 1.0, 2.0, 2.5]) @ MIXED.T,
}
WEIGHTS_4, ALONG = np.random.default_rng(6).standard_normal((4, 4)), np.random.default_rng(7).standard_normal((4, 4))


def _of_vectors(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(a: Any) -> Any:
        w, v = np.linalg.eigh(a)
        return np.sum(WEIGHTS_4 * ((v * f(w)) @ v.T))

    return function


def _of_top(a: Any) -> Any:
    w, v = np.linalg.eigh(a)
    return w[-1] * np.sum(WEIGHTS_4[0] * v[:, -1]) ** 2


def _by_svd(a: Any) -> Any:
    u, s, vt = np.linalg.svd(a)
    return np.sum(WEIGHTS_4 * ((u * np.exp(-s)) @ vt))


BY_ROUNDING: dict[str, Callable[[Any], Any]] = {
    "projector": lambda a: np.sum(WEIGHTS_4 * (np.linalg.eigh(a)[1][:, :2] @ np.linalg.eigh(a)[1][:, :2].T)),
    "top": _of_top,
    "exp": _of_vectors(np.exp),
    "log1p": _of_vectors(np.log1p),
    "rebuilt": _of_vectors(lambda w: w),
    "polar": lambda a: np.sum(WEIGHTS_4 * (np.linalg.svd(a)[0] @ np.linalg.svd(a)[2])),
    "singular values": _by_svd,
    "least": lambda a: np.linalg.eigvalsh(a)[0],
    "cubes": lambda a: np.sum(np.linalg.eigvalsh(a) ** 3),
    "eigenvalues": lambda a: np.sum(np.real(np.linalg.eigvals(a)) ** 3),
}
# Where the values have another derivative on either side, that of LAPACK's vectors is given, as the page has it.
OF_ONE_SIDE = {("least", "two equal"), ("least", "two zeros"), ("least", "all equal"), ("least", "three zeros")}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("at", NEARLY)
@pytest.mark.parametrize("name", BY_ROUNDING)
def test_a_derivative_by_way_of_values_that_are_equal_but_for_rounding_is_right_or_nan(name: str, at: str) -> None:
    function, x, direction = BY_ROUNDING[name], (NEARLY[at] + NEARLY[at].T) / 2, ALONG + ALONG.T
    steps = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0]) * 2e-3
    first, second = np.polynomial.polynomial.polyfit(steps, [function(x + h * direction) for h in steps], 5)[1:3]

    def slope(a: Any) -> Any:
        return np.sum(tg.grad(function)(a) * direction)

    def along(a: Any) -> Any:
        return tg.jvp(function, (a,), (direction,))[1]

    of_first, of_second = [slope(x), along(x)], [tg.jvp(slope, (x,), (direction,))[1]]
    with tg.disable_jit():
        of_first += [slope(x), along(x)]
        of_second += [np.sum(tg.grad(slope)(x) * direction), np.sum(tg.grad(along)(x) * direction)]
    if (name, at) not in OF_ONE_SIDE:
        for value in of_first:
            assert np.isnan(value) or value == pytest.approx(first, rel=1e-3, abs=1e-3), (value, first)
    for value in of_second:
        assert np.isnan(value) or value == pytest.approx(2 * second, rel=1e-2, abs=1e-2), (value, 2 * second)
    assert at != "none equal" or np.isfinite([*of_first, *of_second]).all()
    if (name, at) in {
        ("projector", "two equal"),
        ("top", "three zeros"),
        ("log1p", "two zeros"),
        ("polar", "all equal"),
    }:
        assert np.isfinite(of_first[0])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("x", [np.ones((3, 3)), np.outer([1.0, 2.0, 3.0], [1.0, 0.5, 0.3]), np.zeros((3, 2))])
def test_a_factorization_of_lower_rank_has_no_derivative(x: Any) -> None:
    def weighted(x: Any) -> Any:
        q, r = np.linalg.qr(x)
        return np.sum(WEIGHTS[: x.shape[0], : x.shape[1]] * q) + np.sum(r)

    assert np.isnan(tg.grad(weighted)(x)).any()
    assert np.isnan(tg.jvp(weighted, (x,), (WEIGHTS[:, : x.shape[1]],))[1])
    scaled = np.array([[1.0, 1e-20], [1.0, -2e-20]])  # columns of other sizes are no lower rank
    assert np.isfinite(tg.grad(weighted)(scaled)).all()


VALUES_ALONE: dict[str, Callable[[Any], Any]] = {
    "eigvalsh": lambda a: np.sum(np.linalg.eigvalsh(a) ** 3),
    "eigh": lambda a: np.sum(np.exp(np.linalg.eigh(a)[0])),
    "svdvals": lambda a: np.sum(np.linalg.svdvals(a) ** 4),
    "svd": lambda a: np.sum(np.linalg.svd(a, compute_uv=False) ** 4),
    "eigvalsh of SciPy": lambda a: np.sum(scipy.linalg.eigvalsh(a) ** 3),
    "svdvals of SciPy": lambda a: np.sum(scipy.linalg.svdvals(a) ** 4),
    "a norm by singular values": lambda a: np.linalg.norm(a + 2.0 * np.eye(3), "nuc") ** 3,
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("at", ENDS)
@pytest.mark.parametrize("name", VALUES_ALONE)
def test_the_second_derivative_of_a_function_of_equal_values_is_right_or_nan(name: str, at: str) -> None:
    function, x, h = VALUES_ALONE[name], ENDS[at], 1e-4
    right = (function(x + h * DIRECTION) - 2 * function(x) + function(x - h * DIRECTION)) / h**2

    def slope(a: Any) -> Any:
        return np.sum(tg.grad(function)(a) * DIRECTION)

    results = [np.sum(tg.grad(slope)(x) * DIRECTION), tg.jvp(slope, (x,), (DIRECTION,))[1]]
    with tg.disable_jit():
        results.append(np.sum(tg.grad(slope)(x) * DIRECTION))
    for value in results:
        assert np.isnan(value) or value == pytest.approx(right, rel=1e-4, abs=1e-4), (value, right)
    assert at != "none equal" or np.isfinite(results).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("order", "right"), [(1.5, None), (2.5, 0.0), (3, 0.0), (4, 0.0)])
def test_the_second_derivative_of_a_norm_at_an_element_of_zero_is_that_of_its_power(order: float, right: Any) -> None:
    x = np.array([0.0, 2.0])

    def slope(x: Any) -> Any:
        return tg.grad(lambda x: np.linalg.norm(x, order))(x)[0]

    np.testing.assert_allclose(tg.grad(lambda x: np.linalg.norm(x, order))(x), [0.0, 1.0], rtol=1e-15)
    for result in (tg.grad(slope)(x)[0], tg.jvp(slope, (x,), (np.array([1.0, 0.0]),))[1]):
        assert not np.isfinite(result) if right is None else result == right


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("function", "points"), [(sp.logit, [-np.inf, -1.0, 1.5, np.inf]), (sp.entr, [-np.inf, -1.0, -1e-300])]
)
def test_outside_of_a_domain_there_is_no_derivative(function: Any, points: list[float]) -> None:
    x = np.array(points)
    value, derivative = tg.value_and_grad(lambda x: (np.sum(function(x)), function(x)), has_aux=True)(x)
    np.testing.assert_array_equal(value[1], function(x))
    results = [derivative, tg.jvp(function, (x,), (np.ones_like(x),))[1], *[tg.grad(tg.grad(function))(v) for v in x]]
    for each in results:
        np.testing.assert_array_equal(each, np.full(np.shape(each), np.nan))
    assert tg.trace(function)(x.astype(np.float32)).dtype == np.float32
