"""What `scipy.stats` says of samples, in traced code: SciPy's values, and derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import check_along
from scipy import stats

import tracegrad as tg
from tracegrad.errors import UnsupportedError

X = np.array(
    [[0.3, 1.7, 0.9, 2.2], [1.1, 0.4, 1.5, 0.8], [2.6, 0.7, 1.2, 1.9], [0.5, 2.4, 0.6, 1.3], [1.6, 1.0, 2.1, 0.2]]
)
X = X + 0.01 * np.sin(7.0 * np.arange(20)).reshape(5, 4)  # no ties
W = np.array([0.5, 1.0, 2.0, 0.7, 1.3])
Y = X[:, 0] * 0.4 + np.array([0.1, 0.9, 0.3, 0.6, 0.2])

CASES: dict[str, Callable[[Any], Any]] = {
    "moment": lambda x: stats.moment(x, 3) + stats.moment(x, order=2, axis=0, center=0.5),
    "moments": lambda x: stats.moment(x, [1, 2, 4], axis=1),
    "skew": stats.skew,
    "skew of all, unbiased": lambda x: stats.skew(x, axis=None, bias=False, keepdims=True),
    "kurtosis": lambda x: stats.kurtosis(x, axis=1),
    "kurtosis, unbiased": lambda x: stats.kurtosis(x, fisher=False, bias=False),
    "sem": lambda x: stats.sem(x, axis=1, ddof=0, keepdims=True),
    "variation": lambda x: stats.variation(x, ddof=1),
    "zscore": lambda x: stats.zscore(x, axis=1, ddof=1),
    "zmap": lambda x: stats.zmap(x, x[:3], axis=None),
    "gzscore": stats.gzscore,
    "gmean": lambda x: stats.gmean(x, weights=W[:, None]),
    "hmean": lambda x: stats.hmean(x, axis=None),
    "hmean, weights": lambda x: stats.hmean(x, weights=np.broadcast_to(W[:, None], x.shape)),
    "pmean": lambda x: stats.pmean(x, 1.7, axis=1) + stats.pmean(x, 0, axis=1),
    "gstd": stats.gstd,
    "iqr": lambda x: stats.iqr(x, axis=0, rng=(20, 90), scale="normal"),
    "median_abs_deviation": lambda x: stats.median_abs_deviation(x, scale="normal"),
    "median_abs_deviation, center": lambda x: stats.median_abs_deviation(x, axis=1, center=np.mean),
    "trim_mean": lambda x: stats.trim_mean(x, 0.25),
    "entropy": lambda x: stats.entropy(x, axis=1, base=2),
    "entropy relative to another": lambda x: stats.entropy(x, W[:, None] * x + 0.1),
    "pearsonr": lambda x: np.array([*stats.pearsonr(x[:, 0], Y)]),
    "pearsonr, names": lambda x: stats.pearsonr(x[:, 0], x[:, 1]).statistic * stats.pearsonr(x[:, 2], Y).pvalue,
    "linregress": lambda x: np.array([*stats.linregress(x[:, 1], Y)]) * stats.linregress(x[:, 1], Y).intercept_stderr,
    "ttest_1samp": lambda x: np.array([*stats.ttest_1samp(x, 1.1)]),
    "ttest_rel": lambda x: np.array([*stats.ttest_rel(x[:, 0], Y)]),
    "ttest_ind": lambda x: np.array([*stats.ttest_ind(x[:, 0], x[:4, 1])]),
    "wasserstein_distance": lambda x: stats.wasserstein_distance(x[:, 0], x[:4, 1] * 1.1),
    "wasserstein_distance, weights": lambda x: stats.wasserstein_distance(x[:, 0], Y, u_weights=W),
    "energy_distance": lambda x: stats.energy_distance(x[:, 0], x[:4, 1] * 1.1),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_those_of_differences(name: str) -> None:
    check_along(CASES[name], X, name, (1e-12, 1e-12), (1e-6, 1e-8), (1e-5, 1e-7))


def test_welchs_test_has_the_values_of_scipy_and_a_derivative_of_the_statistic() -> None:
    def statistic(x: Any) -> Any:
        return stats.ttest_ind(x[:, 0], x[:4, 1], equal_var=False).statistic

    check_along(statistic, X, "welch", (1e-12, 1e-12), (1e-6, 1e-8))
    got = tg.trace(lambda x: stats.ttest_ind(x[:, 0], x[:4, 1], equal_var=False).pvalue)(X)
    assert got == pytest.approx(stats.ttest_ind(X[:, 0], X[:4, 1], equal_var=False).pvalue, rel=1e-12)


@pytest.mark.parametrize("name", ["skew", "entropy", "linregress"])
def test_without_a_compiler_they_are_the_same(name: str) -> None:
    with tg.disable_jit():
        check_along(CASES[name], X, name, (1e-12, 1e-12), (1e-6, 1e-8))


def test_samples_without_variance_have_no_skew() -> None:
    assert np.isnan(tg.trace(stats.skew)(np.ones(4)))
    assert np.isnan(tg.trace(stats.kurtosis)(np.full(5, 3.0)))


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"scipy\.stats\.skew with nan_policy='omit'"):
        tg.grad(lambda x: stats.skew(x, nan_policy="omit"))(Y)
    with pytest.raises(UnsupportedError, match=r"scipy\.stats\.pearsonr with alternative='less'"):
        tg.grad(lambda x: stats.pearsonr(x, Y[::-1], alternative="less").statistic)(Y)
    with pytest.raises(ValueError, match="Proportion too big"):
        tg.grad(lambda x: stats.trim_mean(x, 0.5))(X[:4, 0])
