"""Functions of PyTorch that few programs need, and rare arguments of others: results and texts are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.nn import functional as F

X = np.cos(np.arange(12.0)).reshape(3, 4)


def lists(result: Any) -> Any:
    return [lists(x) for x in result] if isinstance(result, tuple) else result.tolist()


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: tg.tril_indices(3, 2), [[0, 1, 1, 2, 2], [0, 0, 1, 0, 1]]),
        (lambda: tg.tril_indices(2, 3, 1), [[0, 0, 1, 1, 1], [0, 1, 0, 1, 2]]),
        (lambda: tg.triu_indices(2, 3, 1), [[0, 0, 1], [1, 2, 2]]),
        (lambda: tg.triu_indices(0, 3), [[], []]),
        (lambda: tg.unique_consecutive(tg.tensor([])), []),
        (lambda: tg.unique_consecutive(tg.tensor([1, 1, 2, 2, 1])), [1, 2, 1]),
        (
            lambda: tg.unique_consecutive(tg.tensor([[1, 1], [2, 1]]), True, True),
            [[1, 2, 1], [[0, 0], [1, 2]], [2, 1, 1]],
        ),
        (lambda: tg.unique_consecutive(tg.tensor([[1, 2], [1, 2], [3, 2]]), dim=0), [[1, 2], [3, 2]]),
        (lambda: tg.unique_consecutive(tg.tensor([[1, 1], [2, 2]]), dim=1, return_counts=True), [[[1], [2]], [2]]),
        (lambda: F.channel_shuffle(tg.arange(6).reshape(1, 6, 1), 3).flatten(), [0, 2, 4, 1, 3, 5]),
        (lambda: tg.channel_shuffle(tg.arange(4).reshape(1, 4, 1), 1).flatten(), [0, 1, 2, 3]),
        (lambda: F.upsample(tg.tensor([[[1.0, 2.0]]]), scale_factor=2), [[[1.0, 1.0, 2.0, 2.0]]]),
        (lambda: F.upsample_nearest(tg.tensor([[[1.0, 2.0]]]), 3), [[[1.0, 1.0, 2.0]]]),
        (lambda: F.upsample_bilinear(tg.tensor([[[[1.0, 3.0]]]]), (1, 3)), [[[[1.0, 2.0, 3.0]]]]),
        (lambda: tg.diagonal_scatter(tg.zeros(2, 3), tg.ones(2), 1), [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (lambda: tg.diagonal_scatter(tg.zeros(3, 2), tg.ones(1), -2), [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]),
        (lambda: tg.diff(tg.tensor([1, 4]), 0, prepend=tg.tensor([7])), [1, 4]),
        (lambda: tg.heaviside(tg.tensor([-1, 0, 2]), tg.tensor(5)), [0, 5, 1]),
        (lambda: tg.linspace(-2, 0, 5, dtype=tg.int64), [-2, -1, -1, 0, 0]),
        (lambda: tg.linspace(tg.tensor(0, dtype=tg.float32), 1, 3, dtype=tg.float64), [0.0, 0.5, 1.0]),
        (
            lambda: tg.masked_scatter(tg.zeros(2), tg.tensor([[True, False], [False, True]]), tg.ones(2)),
            [[1, 0], [0, 1]],
        ),
        (lambda: tg.gather(tg.ones(3), 0, tg.empty(2, 0, dtype=tg.int64)), [[], []]),
        (lambda: tg.gather(tg.tensor(3.0), 0, tg.tensor([0]), sparse_grad=False), [3.0]),
        (lambda: tg.gradient(tg.tensor([1.0, 4.0, 9.0]), spacing=None)[0], [3.0, 4.0, 5.0]),
        (lambda: tg.tensor_split(tg.arange(4), tg.tensor([1, 3])), [[0], [1, 2], [3]]),
        (lambda: tg.tensor_split(tg.arange(4), tg.tensor(2)), [[0, 1], [2, 3]]),
        (lambda: tg.linalg.vander(tg.tensor(2.0), N=3), [[1.0, 2.0, 4.0]]),
        (lambda: F.prelu(tg.tensor(-2.0), tg.tensor([0.5])), -1.0),
        (lambda: F.multi_margin_loss(tg.tensor([0.5, 0.0]), tg.tensor([1])), 0.75),
        (lambda: F.multi_margin_loss(tg.tensor(0.5), tg.tensor(0)), 0.0),
        (lambda: F.multilabel_margin_loss(tg.tensor(0.5), tg.tensor(0)), 0.0),
        (lambda: tg.unsafe_chunk(tg.arange(3), 2), [[0, 1], [2]]),
        (lambda: tg.unsafe_split(tg.arange(3), 2), [[0, 1], [2]]),
    ],
)
def test_results_are_pytorchs(call: Callable[[], Any], expected: Any) -> None:
    assert lists(call()) == expected


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tg.tril_indices(-1, 2), RuntimeError, "row must be non-negative"),
        (lambda: F.channel_shuffle(tg.ones(1, 3, 1), 2), RuntimeError, "Got 3 channels and 2 groups"),
        (lambda: F.channel_shuffle(tg.ones(4, 4), 2), RuntimeError, "input with > 2 dims"),
        (lambda: tg.diagonal_scatter(tg.ones(2, 2), tg.ones(3)), RuntimeError, "equal to the slice of self"),
        (lambda: tg.heaviside(tg.ones(2), tg.tensor(1)), RuntimeError, "tensors with different dtypes"),
        (lambda: tg.linspace(tg.ones(1), 2, 3), RuntimeError, "linspace only supports 0-dimensional start and end"),
        (lambda: tg.logspace(0, tg.ones(1), 3), RuntimeError, "logspace only supports 0-dimensional start and end"),
        (lambda: tg.narrow(tg.tensor(1.0), 0, 0, 1), RuntimeError, "cannot be applied to a 0-dim tensor"),
        (lambda: tg.roll(tg.ones(2), ()), RuntimeError, "`shifts` required"),
        (lambda: F.group_norm(tg.ones(4), 2), RuntimeError, "Expected at least 2 dimensions for input tensor"),
        (lambda: F.conv1d(tg.ones(1, 1, 4), tg.ones(1, 1, 2), stride=0), RuntimeError, "non-positive stride"),
        (lambda: F.conv2d(tg.ones(1, 1, 4, 4), tg.ones(1, 1, 2, 2), dilation=0), RuntimeError, "dilation should be"),
        (lambda: F.conv1d(tg.ones(1, 1, 4), tg.ones(1, 1, 2), padding=-1), RuntimeError, "negative padding is not"),
        (lambda: F.max_pool1d(tg.ones(1, 4), 2, stride=0), RuntimeError, "stride must be greater than zero, but got 0"),
        (lambda: F.max_pool1d(tg.ones(1, 4), 2, padding=-1), RuntimeError, "padding must be non-negative, but got -1"),
        (lambda: F.avg_pool2d(tg.ones(1, 4, 4), 0), RuntimeError, "kernel_size must be greater than zero"),
        (lambda: F.max_pool2d(tg.ones(1, 4, 4), 2, dilation=0), RuntimeError, "dilation must be greater than zero"),
        (lambda: F.adaptive_avg_pool2d(tg.ones(4, 4), 2), RuntimeError, r"Expected 3D or 4D tensor, but got \[4, 4\]"),
        (lambda: F.adaptive_avg_pool2d(tg.ones(1, 4, 4), (2,)), RuntimeError, "output_size must be 2"),
        (lambda: F.adaptive_max_pool1d(tg.ones(1, 4), -1), RuntimeError, "must be greater than or equal to 0"),
        (
            lambda: F.multi_margin_loss(tg.ones(2), tg.tensor(0), weight=tg.ones(3)),
            RuntimeError,
            "inconsistent weight size, expected 2 but got",
        ),
        (lambda: tg.linalg.cross(tg.ones(3), tg.ones(2, 3)), RuntimeError, "must have the same number of dimensions"),
    ],
)
def test_errors_are_pytorchs(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unitriangular", [False, True])
def test_triangular_solve(upper: bool, transpose: bool, unitriangular: bool) -> None:
    a = np.cos(np.arange(9.0)).reshape(3, 3) + 2 * np.eye(3)
    triangle = np.triu(a) if upper else np.tril(a)
    if unitriangular:
        np.fill_diagonal(triangle, 1)
    result = tg.triangular_solve(tg.tensor(X), tg.tensor(a), upper, transpose, unitriangular)
    np.testing.assert_allclose((triangle.T if transpose else triangle) @ result.solution.numpy(), X, rtol=1e-12)
    np.testing.assert_array_equal(result.cloned_coefficient.numpy(), a)


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_inverse(upper: bool) -> None:
    a = X @ X.T + np.eye(3)
    factor = tg.linalg.cholesky(tg.tensor(a), upper=upper)
    np.testing.assert_allclose(tg.cholesky_inverse(factor, upper).numpy(), np.linalg.inv(a), rtol=1e-12)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: tg.triangular_solve(x[:, :2], x[:, :3]).solution,
        lambda x: tg.cholesky_inverse(x[:, :3] + 3 * tg.eye(3)),
        lambda x: tg.diagonal_scatter(x, x[:, 0] * 2),
        lambda x: tg.unique_consecutive(x),
        lambda x: F.channel_shuffle(x.reshape(1, 6, 2), 3) ** 2,
        lambda x: tg.masked_scatter(x[0], x > 0, x * 2),
    ],
)
def test_gradients_are_those_of_differences(f: Callable[[Any], Any]) -> None:
    assert tg.autograd.gradcheck(f, (tg.tensor(X, requires_grad=True),))


def test_triangle_indices_in_a_traced_function() -> None:
    f = tg.trace(lambda x: x[tuple(tg.triu_indices(3, 4, 1))])
    for _ in range(3):
        np.testing.assert_array_equal(f(tg.tensor(X)).numpy(), X[np.triu_indices(3, 1, 4)])
