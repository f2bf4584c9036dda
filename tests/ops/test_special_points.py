"""Derivatives of functions of one number at zeros, infinities, nan, the ends of domains and where formulas
have removable singularities: of the first and second order, by every way, against the limits that mpmath has.

A derivative is the limit, or nan where that has no formula, and each such place is named below with the reason.
`pytest tests/ops/test_special_points.py --points` compiles every function, not one of eight.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as st
from special_functions import FUNCTIONS, INF, NAN

import tracegrad as tg

# Where a derivative is nan though there is a limit: the function, the point and the order, by the reason.
UNKNOWN: dict[str, dict[str, tuple[list[float], tuple[int, ...]]]] = {
    "the function itself is nan, or jumps": {
        "np.sinc(x)": ([INF, -INF], (1, 2)),
    },
    "the rule multiplies what vanishes by what is infinite": {
        "st.norm.logcdf(x)": ([-INF], (2,)),
        "st.norm.logsf(x)": ([INF], (2,)),
        "st.t.logpdf(x, 2.0)": ([INF], (1, 2)),
        "st.cauchy.logpdf(x)": ([INF], (1, 2)),
    },
    "the slope of a quantile is the reciprocal of a density, which is infinite": {
        "st.gamma.ppf(x, 0.5)": ([0.0], (2,)),
        "sp.gammaincinv(x, 0.0)": ([1.0, 2.0], (2,)),
    },
}


def _is_unknown(text: str, x: float, order: int) -> bool:
    rows = [row[text] for row in UNKNOWN.values() if text in row]
    return any(x in points and order in orders for points, orders in rows)


def limit(function: Callable[[Any], Any], x: float, order: int) -> float | None:
    """The derivative at points ever nearer to `x`, if both sides that belong to the domain have the same limit."""
    if np.isinf(x):
        return _side(function, x, 0, order)
    sides = [_side(function, x, sign, order) for sign in (-1, 1)]
    known = [side for side in sides if side is not None]
    if not known or any(np.isnan(side) for side in known):
        return None
    return known[0] if np.allclose(known[0], known[-1], rtol=1e-3, atol=1e-6) else None


def _side(function: Callable[[Any], Any], x: float, sign: int, order: int) -> float | None:
    """None outside of the domain, nan where nothing can be said."""
    values = []
    for k in (5, 10, 15):
        step = mp.mpf(10) ** -k
        at = mp.sign(x) / step if np.isinf(x) else mp.mpf(x) + sign * step
        h = abs(at) * mp.mpf(10) ** -15 if np.isinf(x) else step * mp.mpf(10) ** -15
        try:
            low, middle, high = (function(at + i * h) for i in (-1, 0, 1))
            value = (high - low) / (2 * h) if order == 1 else (high - 2 * middle + low) / (h * h)
        except (ValueError, ZeroDivisionError):
            return None
        if mp.im(value):
            return None
        values.append(mp.re(value))
    first, second, last = values
    if abs(last) > 5 * abs(second) > 25 * abs(first) or (abs(last) > 10 and _is_even(first, second, last)):
        return float(mp.sign(last)) * INF
    if abs(last) < abs(second) / 5 < abs(first) / 25:
        return 0.0
    return float(last) if mp.almosteq(second, last, 1e-4, 1e-8) else NAN


def _is_even(first: Any, second: Any, last: Any) -> bool:
    """Whether a logarithm grows."""
    return bool(abs(second) > abs(first) and mp.almosteq(last - second, second - first, 1e-2))


def _every_way(function: Callable[[Any], Any], x: Any, order: int, compiled: bool) -> list[Any]:
    """By reverse and forward mode without compilation, and if asked for replayed and compiled."""

    def nth(f: Callable[[Any], Any]) -> Any:
        derivative = tg.grad(lambda x: np.sum(f(x)))
        return derivative if order == 1 else tg.grad(lambda x: np.sum(derivative(x)))

    def forward() -> Any:
        before = function if order == 1 else tg.grad(lambda x: np.sum(function(x)))
        return tg.jvp(before, (x,), (np.ones_like(x),))[1]

    with tg.disable_jit():
        results = [nth(function)(x), forward()]
    if compiled:
        of_program = nth(function)
        results += [of_program(x), of_program(x), forward()]
    return results


def _is_chosen(text: str) -> bool:
    """Whether a function is compiled in every run of the tests: one of eight."""
    return zlib.crc32(text.encode()) % 8 == 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("text", FUNCTIONS)
def test_a_derivative_is_the_limit_or_nan(text: str, order: int, request: pytest.FixtureRequest) -> None:
    exact, points = FUNCTIONS[text]
    function = eval(f"lambda x: {text}", {"np": np, "sp": sp, "st": st})
    with np.errstate(all="ignore"):
        compiled = request.config.getoption("--points") or _is_chosen(text)
        results = np.array(_every_way(function, np.array(points), order, compiled))
    with mp.workdps(120):  # a second difference takes twice the digits of a step
        for x, result in zip(points, results.T, strict=True):
            expected = NAN if np.isnan(x) else limit(exact, x, order)
            if expected is None:
                continue
            if _is_unknown(text, x, order):
                assert np.isnan(result).all(), f"{text} at {x} has its derivative {result}: it is unknown no more"
            elif np.isinf(expected):  # where each way has its own indefinite forms
                assert not np.isfinite(result).any(), (x, result, expected)
                assert not (result == -expected).any(), (x, result, expected)
            else:
                np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-10, err_msg=f"{text} at {x}")


@pytest.mark.parametrize("base", [NAN, 0.0, -0.0, INF, -INF, -2.0])
def test_the_power_zero_is_constant_whatever_the_base_is(base: float) -> None:
    x, zero = np.array([base, base]), np.array([0.0, 0.0])
    for f in (tg.trace(lambda x, y: np.power(x, y).sum()), lambda x, y: np.power(x, y).sum()):
        for _ in range(3):
            np.testing.assert_array_equal(tg.grad(f)(x, zero), zero)
    v = tg.tensor(x, requires_grad=True)
    (v ** tg.tensor(zero)).sum().backward()
    np.testing.assert_array_equal(v.grad, zero)


# x**y in both: where the base is 0 or infinite, and where neither is. The domain is that of its logarithm.
IN_BOTH = [
    (0.0, 0.0),
    (0.0, 0.5),
    (0.0, 1.0),
    (0.0, 1.5),
    (0.0, 2.0),
    (0.0, -1.0),
    (-0.0, 0.5),
    (-0.0, 1.0),
    (-0.0, 3.0),
    (INF, 0.0),
    (INF, 0.5),
    (INF, 1.0),
    (INF, 2.0),
    (INF, -1.0),
    (1.0, 0.0),
    (1.0, 1.0),
    (1.0, 2.0),
    (2.0, 0.5),
    (NAN, 1.0),
    (NAN, 0.0),
    (2.0, NAN),
]


def _mixed_ways(power: Callable[[Any, Any], Any], x: Any, y: Any) -> list[Any]:
    """The slopes in the base of those in the exponent, and the other way round."""

    def in_base(x: Any, y: Any) -> Any:
        return tg.grad(lambda x: np.sum(power(x, y)))(x)

    def in_exponent(x: Any, y: Any) -> Any:
        return tg.grad(lambda y: np.sum(power(x, y)))(y)

    def forward(x: Any, y: Any) -> Any:
        return tg.jvp(lambda y: tg.jvp(lambda x: power(x, y), (x,), (np.ones_like(x),))[1], (y,), (np.ones_like(y),))[1]

    return [
        tg.grad(lambda x: np.sum(in_exponent(x, y)))(x),
        tg.grad(lambda y: np.sum(in_base(x, y)))(y),
        tg.jvp(lambda x: in_exponent(x, y), (x,), (np.ones_like(x),))[1],
        forward(x, y),
    ]


def _student(df: Any, t: Any) -> Any:
    scale = mp.gamma((df + 1) / 2) / mp.sqrt(mp.pi * df) / mp.gamma(df / 2)
    return 0.5 + t * scale * mp.hyp2f1(0.5, (df + 1) / 2, 1.5, -t * t / df)


# Functions of two numbers that have a mixed derivative at these points.
OF_TWO: dict[str, tuple[Callable[[Any, Any], Any], list[tuple[float, float]]]] = {
    "sp.powm1(x, y)": (mp.power, [(1.0, 0.0), (2.0, 0.0), (0.5, -0.0), (2.0, 1.5)]),
    "sp.poch(x, y)": (mp.rf, [(0.37, 0.0), (0.37, -1.0), (0.2, 1.0), (0.7, 0.0), (1.3, 0.4)]),
    "sp.stdtr(x, y)": (_student, [(1.0, 0.0), (2.0, -0.0), (4.5, 0.0), (2.0, 0.7)]),
    "st.t.logcdf(y, x)": (lambda df, t: mp.log(_student(df, t)), [(1.0, 0.0), (2.0, 0.0), (4.5, -0.3)]),
    "st.t.sf(y, x)": (lambda df, t: -_student(df, t), [(1.0, 0.0), (2.0, 0.0), (4.5, -0.3)]),
    "sp.betainc(1.0, x, y)": (lambda b, x: -((1 - x) ** b), [(1.0, 0.0), (2.0, 0.0), (3.0, 0.3)]),
    "sp.betainc(x, 1.0, y)": (lambda a, x: x**a, [(1.0, 1.0), (2.0, 1.0), (0.5, 1.0), (2.0, 0.4)]),
    "sp.betaincc(1.0, x, y)": (lambda b, x: (1 - x) ** b, [(1.0, 0.0), (2.0, 0.0)]),
    "sp.gammainc(x, y)": (lambda a, x: mp.gammainc(a, 0, x, regularized=True), [(1.0, 0.7), (2.5, 3.0)]),
}


@pytest.mark.parametrize("text", OF_TWO)
def test_a_mixed_derivative_of_a_special_function_is_the_limit_in_both_orders(text: str) -> None:
    exact, points = OF_TWO[text]
    function = eval(f"lambda x, y: {text}", {"sp": sp, "st": st})
    x, y = np.array(points).T.copy()
    with tg.disable_jit():
        results = _mixed_ways(function, x, y)
    if _is_chosen(text):
        results += _mixed_ways(tg.trace(function), x, y)
    with mp.workdps(40):
        expected = [float(mp.diff(exact, (mp.mpf(a), mp.mpf(b)), (1, 1))) for a, b in points]
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=1e-8)


@pytest.mark.parametrize("power", [np.power, np.float_power, lambda x, y: x**y], ids=["power", "float_power", "**"])
def test_the_mixed_derivative_of_a_power_is_the_limit(power: Callable[[Any, Any], Any]) -> None:
    x, y = np.array(IN_BOTH).T.copy()
    with np.errstate(all="ignore"):
        with tg.disable_jit():
            results = _mixed_ways(power, x, y)
        for _ in range(2):
            results += _mixed_ways(tg.trace(power), x, y)
        results += [tg.vmap(lambda x, y, k=k: _mixed_ways(power, x, y)[k])(x, y) for k in range(2)]
    with mp.workdps(120):
        for k, (base, exponent) in enumerate(IN_BOTH):
            derivative: Callable[[Any], Any] = lambda x, p=exponent: mp.power(x, p) * mp.log(x)  # noqa: E731
            expected = NAN if np.isnan(base + exponent) else _side(derivative, base, 1, 1)
            assert expected is not None
            mixed = [result[k] for result in results]
            np.testing.assert_allclose(mixed, expected, rtol=1e-12, err_msg=f"at {base}**{exponent}")


def test_the_mixed_derivative_of_a_power_of_tensors_is_the_limit_where_it_is_asked_by_way_of_the_base() -> None:
    # The slope in the exponent is a function of the answer, as PyTorch's; by way of it, PyTorch has nan at 0.
    x = tg.tensor([0.0, 0.0, 0.0, 2.0], requires_grad=True)
    y = tg.tensor([1.0, 0.5, 2.0, 3.0], requires_grad=True)
    (derivative,) = tg.autograd.grad((x**y).sum(), x, create_graph=True)
    (mixed,) = tg.autograd.grad(derivative.sum(), y)
    np.testing.assert_allclose(mixed, [-INF, -INF, 0.0, 4 * (1 + 3 * np.log(2.0))], rtol=1e-6)


def test_the_second_derivative_of_a_power_of_broadcast_operands() -> None:
    x, y, step = np.array([1.3, 0.7, 1.0]), np.arange(6.0).reshape(2, 3) * 0.3 + 0.5, 1e-5
    derivatives = tg.grad(lambda x, y: (x**y).sum(), argnums=(0, 1))
    second = tg.hessian(lambda x, y: (x**y).sum(), argnums=(0, 1))(x, y)
    for k, d in enumerate(np.eye(3) * step):
        up, down = derivatives(x + d, y), derivatives(x - d, y)
        np.testing.assert_allclose(second[0][0][k], (up[0] - down[0]) / (2 * step), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(second[1][0][..., k], (up[1] - down[1]) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("of", "by"), [("float32", "float64"), ("float64", "float32"), ("float32", "int64")])
def test_second_derivatives_of_a_power_of_tensors_have_the_dtypes_of_the_operands(of: str, by: str) -> None:
    x = tg.tensor(np.array([2.0, 3.0], of), requires_grad=True)
    y = tg.tensor(np.array([2, 3], by))
    inputs = [x, y.requires_grad_()] if by != "int64" else [x]
    for first in inputs:
        (derivative,) = tg.autograd.grad((x**y).sum(), first, create_graph=True)
        result = tg.autograd.grad(derivative.sum(), inputs)
        assert [v.dtype for v in result] == [v.dtype for v in inputs]
    np.testing.assert_allclose(tg.autograd.grad((x**y).sum(), x)[0], [4.0, 27.0])
    z = tg.tensor([1.0 + 1.0j, 2.0], requires_grad=True)
    (derivative,) = tg.autograd.grad((z ** tg.tensor([2.0, 3.0])).real.sum(), z, create_graph=True)
    np.testing.assert_allclose(tg.autograd.grad(derivative.real.sum(), z)[0], [2.0, 12.0])
