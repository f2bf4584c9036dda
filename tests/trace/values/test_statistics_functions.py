"""The functions of `statistics` in traced code: values and types are Python's, derivatives those of differences."""

from __future__ import annotations

import statistics as st
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

X = np.array([1.5, 3.0, 2.0, 7.0, 0.5])
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "mean": st.mean,
    "fmean": st.fmean,
    "fmean with weights": lambda x: st.fmean(x, [1.0, 2.0, 0.5, 1.0, 3.0]),
    "geometric_mean": st.geometric_mean,
    "harmonic_mean": st.harmonic_mean,
    "harmonic_mean with weights": lambda x: st.harmonic_mean(x, weights=[1.0, 2.0, 0.5, 1.0, 3.0]),
    "median": st.median,
    "median of four": lambda x: st.median(x[1:]),
    "median_low": lambda x: st.median_low(x[1:]),
    "median_high": lambda x: st.median_high(x[1:]),
    "quantiles": lambda x: sum(k * q for k, q in enumerate(st.quantiles(x, n=7))),
    "quantiles of a population": lambda x: sum(k * q for k, q in enumerate(st.quantiles(x, method="inclusive"))),
    "variance": st.variance,
    "variance about a point": lambda x: st.variance(x, x[0]),
    "pvariance": st.pvariance,
    "stdev": st.stdev,
    "pstdev": lambda x: st.pstdev(x, 2.0),
    "covariance": lambda x: st.covariance(x, [v * v for v in x]),
    "correlation": lambda x: st.correlation(x, [v * v for v in x]),
    "slope": lambda x: st.linear_regression(x, [v * v for v in x]).slope,
    "intercept": lambda x: st.linear_regression(x, [v * v for v in x])[1],
    "slope through zero": lambda x: st.linear_regression(x, [v * v for v in x], proportional=True).slope,
}
DATA: dict[str, Callable[[Any], Any]] = {
    "an array": lambda x: x,
    "a list of scalars": list,
    "a list of floats": lambda x: [float(v) for v in x],
    "mixed": lambda x: [float(v) if k % 2 else v for k, v in enumerate(x)],
    "with a whole one": lambda x: [*[float(v) for v in x[:4]], 2],
}


def _differences(function: Callable[[Any], Any]) -> Any:
    steps = 1e-6 * np.eye(len(X))
    return np.array([(function(X + h) - function(X - h)) / 2e-6 for h in steps])


# Where the order of the numbers decides which class the result has.
OF_ORDER = ("median", "median of four", "median_low", "median_high", "quantiles", "quantiles of a population")
MIXED = ("mixed", "with a whole one")
CASES = [(name, data) for name in FUNCTIONS for data in DATA if name not in OF_ORDER or data not in MIXED]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "data"), CASES)
def test_a_function_of_statistics_has_its_value_and_type_and_the_derivative_of_differences(
    name: str, data: str
) -> None:
    def function(x: Any) -> Any:
        return FUNCTIONS[name](DATA[data](x))

    traced, derivative = tg.trace(function), tg.grad(function)
    for x in (X, X + 0.25, X * 3.0):
        expected, result = function(x), traced(x)
        assert type(result) is type(expected)
        np.testing.assert_allclose(result, expected, rtol=4e-15)
    np.testing.assert_allclose(derivative(X), _differences(function), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(tg.jvp(function, (X,), (X,))[1], derivative(X) @ X, rtol=1e-12, atol=1e-12)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(function)(X), derivative(X), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ["mean", "variance", "geometric_mean", "harmonic_mean", "correlation"])
def test_a_function_of_statistics_has_second_derivatives(name: str) -> None:
    derivative = tg.grad(FUNCTIONS[name])
    result = tg.grad(lambda x: np.sum(derivative(x) * X[::-1]))(X)
    expected = _differences(lambda x: np.sum(derivative(x) * X[::-1]))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_an_iterator_is_gone_through_once() -> None:
    seen = []

    def squares(x: Any) -> Any:
        for v in x:
            seen.append(1)
            yield v * v

    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(lambda x: st.mean(squares(x)))(X), 2 * X / 5, rtol=1e-14)
    assert len(seen) == 5


def test_other_data_take_the_same_program() -> None:
    traced = tg.trace(lambda x: st.fmean(x) + st.stdev(x))
    for k in range(5):
        traced(X + k)
    assert traced.cache_info().traces == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: st.mean(x[:0]),
        lambda x: st.variance(x[:1]),
        lambda x: st.geometric_mean(x - 1.0),
        lambda x: st.harmonic_mean(list(x - 1.0)),
        lambda x: st.correlation([float(v) for v in x], [float(v) * 0.0 for v in x]),
        lambda x: st.linear_regression([float(v) * 0.0 for v in x], [float(v) for v in x]),
        lambda x: st.covariance(x, x[:3]),
        lambda x: st.quantiles(x, n=0),
        lambda x: st.median(x[:0]),
    ],
)
def test_what_python_refuses_is_refused_so(function: Callable[[Any], Any]) -> None:
    with pytest.raises(st.StatisticsError) as expected:
        function(X)
    for call in (tg.trace(function), tg.grad(function)):
        with pytest.raises(st.StatisticsError) as result:
            call(X)
        assert str(result.value) == str(expected.value)


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("function", [st.mean, st.variance, st.median, st.fmean])
def test_infinite_data_have_pythons_value_and_no_derivative(function: Callable[[Any], Any]) -> None:
    x = np.array([1.0, np.inf, 2.0])
    np.testing.assert_equal(tg.trace(function)(x), function(x))
    if function is not st.median:
        with pytest.raises(tg.LostDerivativeError, match=function.__name__):
            tg.grad(function)(x)


def test_of_what_has_no_formula_no_derivative_is_lost_in_silence() -> None:
    for function in (st.mode, st.median_grouped, lambda x: st.multimode(x)[0]):
        with pytest.raises(tg.LostDerivativeError):
            tg.grad(function)(X)
