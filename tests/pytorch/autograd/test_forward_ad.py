"""Forward mode on the tape: dual Tensors against two backward passes, both modes over each other, and when it ends."""

from __future__ import annotations

import gc
import math
import re
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch_cases

import tracegrad as tg
from tracegrad.autograd import forward_ad as fw
from tracegrad.autograd import functional
from tracegrad.torch.functions.core.generator import default_generator
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.math import special
from tracegrad.torch.functions.nn import nn_functional
from tracegrad.torch.modes import STATE

RNG = np.random.default_rng(5)
SPACE = {**FUNCTIONS, "F": nn_functional, "S": special, "inf": math.inf}
CALLS = [call for group in torch_cases.GROUPS for call in torch_cases.calls(group)]


def _moved(fn: Callable[..., Any], primals: Any, tangents: Any) -> list[Any]:
    """The tangents of the results of `fn`; None for zero."""
    with fw.dual_level():
        results = fn(*[fw.make_dual(x, t) for x, t in zip(primals, tangents)])
        several = isinstance(results, tuple | list)
        tangents_out = [fw.unpack_dual(y).tangent for y in (results if several else (results,)) if y.dtype.kind in "fc"]
        return [None if t is None else t.detach() for t in tangents_out]


def _function(call: str) -> tuple[Callable[..., Any], list[str]]:
    """A call as a function of the inputs that derivatives are taken of, and the names of these."""
    names = [name for name in torch_cases.INPUTS if re.search(rf"\b{name}\b", call)]
    arrays = {name: torch_cases.INPUTS[name] for name in names}
    wanted = [k for k, x in arrays.items() if x.dtype.kind == "f" and k not in torch_cases.CONSTANT]
    fixed = {k: tg.tensor(x) for k, x in arrays.items() if k not in wanted}

    def fn(*xs: Any) -> Any:
        default_generator.manual_seed(3)
        result = eval(call, {**SPACE, **fixed, **dict(zip(wanted, xs))})
        results = tuple(result) if isinstance(result, tuple | list) else (result,)
        return tuple([y for y in results if isinstance(y, tg.Tensor) and y.dtype.kind in "fc"])

    return fn, wanted


@pytest.mark.parametrize("call", CALLS)
def test_tangents_are_those_of_two_backward_passes(call: str) -> None:
    fn, names = _function(call)
    primals = tuple([tg.tensor(torch_cases.INPUTS[name]) for name in names])
    tangents = tuple([tg.tensor(RNG.uniform(-1.0, 1.0, x.shape)) for x in primals])
    if not primals or not fn(*primals):
        return
    values, expected = functional.jvp(fn, primals, tangents)
    for t, value, wanted in zip(_moved(fn, primals, tangents), values, expected):
        result = np.zeros(value.shape) if t is None else t.numpy()
        assert result.shape == value.shape
        np.testing.assert_allclose(result, wanted.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x * y,
        lambda x, y: x + y,
        lambda x, y: y - x,
        lambda x, y: tg.where(x > 0.5, y, x),
        lambda x, y: tg.maximum(x, y),
        lambda x, y: (x.to("float32") * y).to("float64"),
        lambda x, y: x**y,
    ],
)
def test_tangents_are_broadcast_and_promoted_as_values_are(fn: Callable[..., Any]) -> None:
    x, y = tg.tensor(RNG.uniform(0.2, 1.0, (2, 3))), tg.tensor(RNG.uniform(0.2, 1.0, 3))
    for tangents in ((tg.ones(2, 3), tg.ones(3)), (tg.zeros(2, 3), tg.ones(3)), (tg.ones(2, 3), tg.zeros(3))):
        (expected,) = functional.jvp(lambda a, b: (fn(a, b),), (x, y), tangents)[1]
        (result,) = _moved(fn, (x, y), tangents)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-6)
    (alone,) = _moved(lambda b: fn(x, b), (y,), (tg.ones(3),))
    assert alone.shape == (2, 3)


SCALARS: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: (x * x * tg.sin(x)).sum(),
    "answers": lambda x: (x.exp() * x.tanh() * x.sqrt()).sum(),
    "quotient": lambda x: (x / (1.0 + x.sum())).square().sum(),
    "functions of several ops": lambda x: tg.logsumexp(x, 0) * x.std() + tg.softmax(x, 0).square().sum(),
    "picks": lambda x: (x[1:] * x[:-1]).sum() + x[0] ** 3 + sum(part.exp().sum() for part in x.unbind(0)),
    "shapes": lambda x: (x.reshape(2, 2) @ x.reshape(2, 2).T).logsumexp(0).prod(),
    "joined": lambda x: (tg.stack([x, x.exp()], 1) * tg.cat([x, x]).reshape(4, 2)).cumsum(0).square().mean(),
    "updates": lambda x: _updated(x).sum(),
    "several results": lambda x: tg.linalg.eigh(x.reshape(2, 2) + x.reshape(2, 2).T)[0].exp().sum() * x.sum(),
    "extrema": lambda x: x.max() ** 2 * tg.sort(x).values[0],
    "linear algebra": lambda x: tg.linalg.inv(x.reshape(2, 2) + 2.0 * tg.eye(2)).square().sum(),
}


def _updated(x: Any) -> Any:
    y = x * x
    y.sin_()
    y[1:].add_(x[:-1] * x[1:])
    y[0] = x[2] * x[3]
    y.add_(x).mul_(x)
    return y


@pytest.mark.parametrize("name", SCALARS)
def test_both_modes_over_each_other_give_the_product_of_the_hessian_with_a_vector(name: str) -> None:
    fn = SCALARS[name]
    point, direction = RNG.uniform(0.2, 1.0, 4), RNG.uniform(-1.0, 1.0, 4)
    _, expected = functional.hvp(fn, tg.tensor(point), tg.tensor(direction))
    x = tg.tensor(point, requires_grad=True)
    with fw.dual_level():
        value = fn(fw.make_dual(x, tg.tensor(direction)))
        derivative = fw.unpack_dual(value).tangent
    backward_over_forward = tg.autograd.grad(derivative, x, retain_graph=True)[0]
    with fw.dual_level():
        d = fw.make_dual(x, tg.tensor(direction))
        gradient = tg.autograd.grad(fn(d), d)[0]
        forward_over_backward = fw.unpack_dual(gradient).tangent
    assert not gradient.requires_grad
    for result in (backward_over_forward, forward_over_backward):
        np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)


def test_third_derivatives_by_backward_over_forward_over_backward() -> None:
    x = tg.tensor([0.3, 0.7], requires_grad=True)
    with fw.dual_level():
        d = fw.make_dual(x, tg.ones(2))
        (derivative,) = tg.autograd.grad((d.exp() * d**2).sum(), d, create_graph=True)
        (third,) = tg.autograd.grad(fw.unpack_dual(derivative).tangent.sum(), x)
    a = np.array([0.3, 0.7])
    np.testing.assert_allclose(third.numpy(), np.exp(a) * (a**2 + 6 * a + 6))


def test_gradients_that_are_added_up_in_a_level_have_tangents() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with fw.dual_level():
        y = fw.make_dual(x, tg.tensor([1.0, 0.0]))
        (y**3).sum().backward()
        assert fw.unpack_dual(x.grad).tangent.tolist() == [6.0, 0.0]
    assert x.grad.tolist() == [3.0, 12.0]
    assert fw.unpack_dual(x.grad).tangent is None


def test_a_traced_function_passes_tangents_on() -> None:
    f = tg.trace(lambda v: (v * v).sum() * v)
    x = tg.tensor([1.0, 2.0])
    f(x)
    (result,) = _moved(f, (x,), (tg.tensor([1.0, 0.0]),))
    assert result.tolist() == [7.0, 4.0]


def test_a_rule_for_tangents_can_be_differentiated_backwards() -> None:
    class Cube(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_forward(x)
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return 3 * ctx.saved_tensors[0] ** 2 * t

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return 3 * ctx.saved_tensors[0] ** 2 * ct

    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with fw.dual_level():
        t = fw.unpack_dual(Cube.apply(fw.make_dual(x, tg.tensor([1.0, 3.0])))).tangent
        (second,) = tg.autograd.grad(t.sum(), x)
        d = fw.make_dual(x, tg.tensor([1.0, 3.0]))
        (derivative,) = tg.autograd.grad(Cube.apply(d).sum(), d)
        assert fw.unpack_dual(derivative).tangent.tolist() == [6.0, 36.0]
    assert second.tolist() == [6.0, 36.0]


@pytest.mark.parametrize("is_constant", [True, False])
def test_a_rule_for_tangents_gives_none_to_what_has_no_derivative(is_constant: bool) -> None:
    class Two(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, k: Any) -> Any:
            y = k.clone()
            if is_constant:
                ctx.mark_non_differentiable(y)
            return x * 2.0, y

        @staticmethod
        def jvp(ctx: Any, t: Any, of_k: Any) -> Any:
            assert is_constant or of_k is None
            return t * 2.0, t if refused else None

    k = tg.tensor([3.0]) if is_constant else tg.tensor([3])
    with fw.dual_level():
        x = fw.make_dual(tg.tensor([1.0]), tg.tensor([5.0]))
        refused = False
        y, z = Two.apply(x, k)
        assert fw.unpack_dual(y).tangent.tolist() == [10.0]
        assert fw.unpack_dual(z).tangent is None
        refused = True
        with pytest.raises(RuntimeError, match=r"gradient at position 1, .* You should return None at that position"):
            Two.apply(x, k)


def test_a_rule_for_tangents_updates_in_place_what_forward_does() -> None:
    class Doubled(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x.mul_(2.0))
            return x

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return t.mul_(2.0) if updates else t

    with fw.dual_level():
        t = tg.tensor([5.0])
        x = fw.make_dual(tg.tensor([1.0]), t)
        updates = True
        assert fw.unpack_dual(Doubled.apply(x)).tangent.tolist() == [10.0]
        updates = False
        with pytest.raises(RuntimeError, match="must modify the corresponding gradient inplace"):
            Doubled.apply(x)


def test_primal_and_tangent_are_updated_apart() -> None:
    x, t = tg.tensor([1.0, 2.0]), tg.tensor([5.0, 6.0])
    with fw.dual_level():
        d = fw.make_dual(x, t)
        primal, tangent = fw.unpack_dual(d)
        assert fw.unpack_dual(primal).tangent is None
        primal.mul_(2.0)
        assert fw.unpack_dual(d).tangent.tolist() == [5.0, 6.0]
        tangent.mul_(10.0)
        assert (x.tolist(), d.tolist()) == ([2.0, 4.0], [2.0, 4.0])
        assert fw.unpack_dual(d).tangent.tolist() == [50.0, 60.0]
        d[0] = d[1]
        assert fw.unpack_dual(d).tangent.tolist() == [60.0, 60.0]
        y = d.clone()
        assert fw.unpack_dual(y.detach_() * 2.0).tangent is None
        with pytest.raises(RuntimeError, match="a forward gradient at the same level"):
            fw.make_dual(tg.zeros(2), d)
        for args, out in (((d, x), tg.zeros(2)), ((x, x), d)):
            with pytest.raises(RuntimeError, match="an out= function does not support forward mode"):
                tg.add(*args, out=out)


def _of_part(forward: Any, factor: int, t: Any) -> Any:
    return forward(t[:]) if factor == 1 else forward(t) * factor


@pytest.mark.parametrize("forward", [lambda x: x, lambda x: x[1:]], ids=["input", "view"])
def test_a_rule_for_tangents_of_a_view_returns_a_view(forward: Any) -> None:
    class Part(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return forward(x)

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return rule(t)

    with fw.dual_level():
        x = fw.make_dual(tg.ones(3), tg.arange(3.0))
        rule: Any = partial(_of_part, forward, 1)
        assert fw.unpack_dual(Part.apply(x)).tangent.tolist() == forward(tg.arange(3.0)).tolist()
        rule = partial(_of_part, forward, 2)
        with pytest.raises(RuntimeError, match=r"forward is returning a view .* but the jvp is not returning a view"):
            Part.apply(x)


def test_nothing_is_left_of_a_level() -> None:
    gc.collect()
    gc.disable()
    try:
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        with fw.dual_level():
            t = tg.ones(2)
            y = (fw.make_dual(x, t) * 2.0).exp()
            inside = weakref.ref(fw.unpack_dual(y).tangent)
            short = weakref.ref(fw.unpack_dual(fw.make_dual(x, t) * 3.0).tangent)
            assert short() is None
            assert STATE.unusual
        assert (inside(), STATE.unusual, STATE.level) == (None, False, None)
        y.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), 2.0 * np.exp([2.0, 4.0]))
    finally:
        gc.enable()


def test_each_thread_has_levels_of_its_own() -> None:
    seen: list[Any] = []
    with fw.dual_level():
        thread = threading.Thread(target=lambda: seen.append(fw.enter_dual_level()))
        thread.start()
        thread.join()
    assert seen == [0]
