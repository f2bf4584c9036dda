"""Traces on disk of functions of Tensors: their forward and backward programs, and what these assume of Tensors."""

from __future__ import annotations

from typing import Any

import pytest
from remembered import Case, both_ways, changed, check, same

# The gradient of a Tensor that is an argument, and of one that is read.
READ = """
    import tracegrad as tg
    w = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    scale = 2.0
    def loss(x):
        return (tg.sin(x * w) ** 2).sum() * scale
    def make(tg):
        traced = tg.trace(loss)
        def made(x):
            w.grad, given = None, tg.tensor(x, requires_grad=True)
            out = traced(given)
            out.backward()
            return out.detach().numpy(), given.grad.numpy(), None if w.grad is None else w.grad.numpy()
        made.cache_info = traced.cache_info
        return made
    def function(x):
        k = w.detach().numpy()
        slope = 2.0 * scale * np.sin(x * k) * np.cos(x * k)
        return np.asarray(np.sum(np.sin(x * k) ** 2) * scale), slope * k, slope * x
"""
WITHIN = """
    import tracegrad as tg
    class Model:
        def __init__(self, w):
            self.w = tg.tensor(w, requires_grad=True)
        def loss(self, x):
            return (x * self.w ** 2).sum()
    model = Model([1.0, 2.0, 3.0])
    def step(x):
        model.w.grad = None
        loss = model.loss(x)
        loss.backward()
        return loss
    def make(tg):
        traced = tg.trace(step)
        def made(x):
            out = traced(tg.tensor(x))
            return out.detach().numpy(), model.w.grad.numpy()
        made.cache_info = traced.cache_info
        return made
    def function(x):
        k = model.w.detach().numpy()
        return np.asarray(np.sum(x * k**2)), 2.0 * x * k
"""
MADE = """
    import tracegrad as tg
    extra = 1
    def scaled(x):
        return x * tg.tensor([1.0, 2.0, 3.0])
    def make(tg):
        traced = tg.trace(scaled)
        def made(x):
            return traced(tg.tensor(x)).numpy()
        made.cache_info = traced.cache_info
        return made
    def function(x):
        return scaled(tg.tensor(x)).numpy()
"""
TWICE = """
    import tracegrad as tg
    def cube(x):
        return (x**3).sum()
    def make(tg):
        traced = tg.trace(cube)
        def made(x):
            given = tg.tensor(x, requires_grad=True)
            slope, = tg.autograd.grad(traced(given), given, create_graph=True)
            again, = tg.autograd.grad(slope.sum(), given)
            return slope.detach().numpy(), again.numpy()
        made.cache_info = traced.cache_info
        return made
    def function(x):
        return 3.0 * x**2, 6.0 * x
"""
UPDATE = """
    import tracegrad as tg
    w = tg.tensor([1.0, 2.0, 3.0])
    def update(x):
        w.mul_(x)
        return w.sum()
    def make(tg):
        traced = tg.trace(update)
        def made(x):
            w.copy_(tg.tensor([1.0, 2.0, 3.0]))
            return traced(tg.tensor(x)).numpy(), w.numpy().copy()
        made.cache_info = traced.cache_info
        return made
    def function(x):
        return np.asarray(np.sum(x * np.array([1.0, 2.0, 3.0]))), x * np.array([1.0, 2.0, 3.0])
"""
DECORATED = """
    import tracegrad as tg
    scale = 2.0
    @tg.no_grad()
    def scaled(x):
        return x**2 * scale
    def outer(x):
        return scaled(x).sum(), tg.is_grad_enabled()
    def make(tg):
        traced = tg.trace(outer)
        def made(x):
            found, enabled = traced(tg.tensor(x))
            return found.numpy(), enabled
        made.cache_info = traced.cache_info
        return made
    def function(x):
        return np.asarray(np.sum(x**2 * scale)), True
"""
WANTED = "slope * k, slope * x"
CASES = {
    "tensors": same(READ),
    "tensor_function": Case(READ, READ.replace("tg.sin(x * w) ** 2).sum()", "tg.sin(x * w) ** 2).sum() * 2.0").replace(
        "k) ** 2) * scale", "k) ** 2) * scale * 2.0").replace("2.0 * scale * np", "4.0 * scale * np"), 1),
    "tensor_elements": Case(READ, READ.replace("1.0, 2.0, 3.0]", "1.5, 2.5, 3.5]"), 0),
    "number_beside_a_tensor": changed(READ, "scale = 2.0", "scale = 3.0"),
    "tensor_without_derivative": Case(
        READ, READ.replace("3.0], requires_grad=True", "3.0]").replace(WANTED, "slope * k, None"), 1
    ),
    "tensor_that_is_no_leaf": Case(
        READ, READ.replace("True)\n    scale", "True) * 1.0\n    w.retain_grad()\n    scale"), 1
    ),
    "tensor_of_another_dtype": Case(
        READ, READ.replace("3.0], requires_grad", "3.0], dtype=tg.float32, requires_grad").replace(
            "k, slope * x", "k, (slope * x).astype(np.float32)"), 1
    ),
    "tensor_of_another_shape": Case(
        READ, READ.replace("[1.0, 2.0, 3.0]", "[[1.0, 2.0, 3.0]]").replace("slope * k,", "(slope * k)[0],"), 1
    ),
    "argument_without_derivative": Case(
        READ, READ.replace("tg.tensor(x, requires_grad=True)", "tg.tensor(x)").replace(
            "given.grad.numpy()", "given.grad").replace(WANTED, "None, slope * x"), 1
    ),
    "no_grad": Case(
        READ, READ.replace("out = traced(given)\n            out.backward()", "with tg.no_grad():\n"
                           "                out = traced(given)").replace("given.grad.numpy()", "given.grad").replace(
            WANTED, "None, None"), 1
    ),
    "backward_within": same(WITHIN),
    "parameter_elements": Case(WITHIN, WITHIN.replace("1.0, 2.0, 3.0]", "1.5, 2.5, 3.5]"), 0),
    "method_of_a_model": Case(WITHIN, WITHIN.replace("self.w ** 2", "self.w ** 3").replace("k**2", "k**3").replace(
        "2.0 * x * k", "3.0 * x * k**2"), 1),
    "frozen_parameter": Case(
        WITHIN, WITHIN.replace("loss.backward()", "loss.backward() if loss.requires_grad else None"), 1
    ),
    "gradient_that_is_added_to": Case(
        WITHIN, WITHIN.replace("w.grad = None", "w.grad = tg.ones(3)").replace("2.0 * x * k", "2.0 * x * k + 1.0"), 1
    ),
    "hook_of_a_parameter": Case(
        WITHIN, WITHIN.replace("def step(", "model.w.register_hook(lambda g: 3.0 * g)\n    def step(").replace(
            "2.0 * x * k", "6.0 * x * k"), 1
    ),
    "decorated_function": same(DECORATED),
    "number_in_a_decorated_function": changed(DECORATED, "scale = 2.0", "scale = 3.0"),
    "code_of_a_decorated_function": Case(DECORATED, DECORATED.replace("x**2 * scale", "x**3 * scale"), 1),
    "other_decorator": changed(DECORATED, "@tg.no_grad()", "@tg.enable_grad()"),
    "tensors_made_within": same(MADE),
    "default_dtype": changed(MADE, "extra = 1", "tg.set_default_dtype(tg.float32)"),
    "second_derivatives": same(TWICE),
    "second_derivative": Case(TWICE, TWICE.replace("x**3).sum()", "x**4).sum()").replace(
        "3.0 * x**2, 6.0 * x", "4.0 * x**3, 12.0 * x**2"), 1),
    "updates_in_place": Case(UPDATE, UPDATE, 1),
}  # fmt: skip
# It changes what Tensors are made of for all that come after it.
APART = ("default_dtype",)
both = both_ways(CASES, APART)


@pytest.mark.parametrize("name", CASES)
def test_a_trace_of_tensors_is_used_again_just_where_nothing_has_changed(both: Any, name: str) -> None:
    check(both[name], CASES[name])
