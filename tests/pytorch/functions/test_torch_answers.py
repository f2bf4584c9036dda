"""A recorded derivative depends on the answer where it does in PyTorch: `torch_answers.py` has the calls."""

from __future__ import annotations

import json

import numpy as np
import pytest
from torch_answers import CALLS, DATA, run

import tracegrad as tg

RECORDED = json.loads(DATA.read_text())


@pytest.mark.parametrize("call", CALLS)
def test_a_gradient_depends_on_the_answer_as_pytorchs_does(call: str) -> None:
    for got, want in zip(run(tg, call), RECORDED[call], strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            told = np.array(want)  # where PyTorch has nan, at a kink, it says nothing
            np.testing.assert_allclose(np.where(np.isnan(told), np.nan, got), told, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "call", ["T.prod(x,1,keepdim=True)", "T.norm(x,3)", "T.norm(x)", "T.logsumexp(x,0)", "T.std(x,1)", "T.std(x,0,1,1)"]
)
def test_an_answer_that_the_derivative_reads_must_not_be_updated(call: str) -> None:
    x = tg.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
    y = eval(call, {"T": tg, "x": x})
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_product_that_is_not_finite_or_zero_has_exact_second_derivatives() -> None:
    x = tg.tensor([1e-200, 1e-200, 1e300], requires_grad=True)  # the first two have the product 0
    (g,) = tg.autograd.grad(x.prod(), x, create_graph=True)
    (h,) = tg.autograd.grad(g[0], x)
    np.testing.assert_allclose(g.detach(), [1e100, 1e100, 0.0], rtol=1e-15)
    np.testing.assert_allclose(h, [0.0, 1e300, 1e-200], rtol=1e-15)


def test_the_second_derivative_of_a_rectified_sum_is_zeros_not_missing() -> None:
    x, w = tg.tensor([1.0, -2.0], requires_grad=True), tg.tensor([3.0, 4.0], requires_grad=True)
    (g,) = tg.autograd.grad((tg.relu(x) * w).sum(), x, create_graph=True)
    in_x, in_w = tg.autograd.grad(g.sum(), (x, w))
    assert in_x.tolist() == [0.0, 0.0]
    assert in_w.tolist() == [1.0, 0.0]
