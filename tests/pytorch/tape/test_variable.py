"""`autograd.Variable`: a Tensor of its own with the memory of another one."""

from __future__ import annotations

from typing import Any

import pytest

import tracegrad as tg
from tracegrad.autograd import Variable


def step(x: Any) -> Any:
    w = Variable(x, requires_grad=True)
    loss = (w * w * x).sum()
    loss.backward()
    if isinstance(x, Variable):
        Variable(x).mul_(2.0)
    return w.grad, isinstance(w, Variable), isinstance(3.0, Variable)


@pytest.mark.parametrize("wrap", [lambda f: f, tg.trace], ids=["eager", "traced"])
def test_a_variable_is_a_leaf_with_the_memory_of_the_tensor(wrap: Any) -> None:
    traced = wrap(step)
    for _ in range(2):
        x = tg.tensor([1.0, 2.0])
        gradient, of_variable, of_float = traced(x)
        assert (gradient.tolist(), of_variable, of_float) == ([2.0, 8.0], True, False)
        assert x.tolist() == [2.0, 4.0]


def test_no_derivative_flows_through_a_variable() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    (Variable(x) * x).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0]
    assert type(Variable(x)) is tg.Tensor
    assert not Variable(x).requires_grad
    with pytest.raises(TypeError, match="has to be a tensor, but got list"):
        Variable([1.0])
