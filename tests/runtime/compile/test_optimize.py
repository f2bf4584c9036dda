"""The option `optimize`: the same values, from other machine code."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.runtime.compile import jit
from tracegrad.runtime.execution.program import machine_code_count
from tracegrad.settings import settings

LEVELS = (1, 2, 3)


def attention(p: Any, x: Any) -> Any:
    q, k, v = (x @ w for w in p)
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    y = x + (e / e.sum(-1, keepdims=True)) @ v
    d = y - y.mean(-1, keepdims=True)
    return np.sum((d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)) ** 3)


def recurrence(w: Any, xs: Any) -> Any:
    h = np.zeros(5)
    total = 0.0
    for x in xs:
        h = np.tanh(w @ h + x)
        total = total + h @ h
    return total


def sorts(x: Any) -> Any:
    return np.sum(np.sort(np.where(x > 0.5, np.sin(x), np.cumsum(x))) * np.arange(x.size))


rng = np.random.default_rng(3)
CASES = [
    (attention, ([rng.normal(size=(12, 12)) / 4 for _ in range(3)], rng.normal(size=(3, 10, 12)))),
    (recurrence, (rng.normal(size=(5, 5)) / 3, rng.normal(size=(40, 5)))),
    (sorts, (rng.random(33),)),
]


@pytest.mark.parametrize(("function", "args"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_all_levels_give_the_same_values(function: Any, args: Any) -> None:
    want = function(*args)
    gradients = []
    for level in LEVELS:
        value, gradient = tg.value_and_grad(tg.trace(function, optimize=level))(*args)
        np.testing.assert_allclose(value, want, rtol=1e-12)
        leaves = gradient if isinstance(gradient, list) else [gradient]
        gradients.append(np.concatenate([np.ravel(x) for x in leaves]))
    scale = np.abs(gradients[1]).max()
    for each in gradients:
        np.testing.assert_allclose(each, gradients[1], rtol=1e-11, atol=1e-13 * scale)
    # Along one direction, by differences of the plain function.
    leaves = args[0] if isinstance(args[0], list) else [args[0]]
    direction = [rng.normal(size=x.shape) for x in leaves]

    def moved(step: float) -> Any:
        there = [x + step * d for x, d in zip(leaves, direction)]
        return function(there if isinstance(args[0], list) else there[0], *args[1:])

    derivative = (moved(1e-6) - moved(-1e-6)) / 2e-6
    assert gradients[0] @ np.concatenate([np.ravel(d) for d in direction]) == pytest.approx(derivative, rel=1e-5)


def products(x: Any, y: Any) -> Any:
    """Products that sums, differences and guards use, once or twice."""
    a, b = x * y, y * 1.7
    inner = np.where(x > 0.4, a + b, b - a)
    inner[1:-1] += 0.3 * (x[2:] * y[1:-1] - a[:-2])
    return inner, a - 2.0 * x, b * x + a


@pytest.mark.parametrize("n", [2, 7, 100])
def test_which_products_are_fused_does_not_depend_on_the_level(n: int) -> None:
    args = rng.random((2, n))
    first, *others = (tg.trace(products, optimize=level, tiered=False)(*args) for level in LEVELS)
    for a, b in zip(first, products(*args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)
    for each in others:
        np.testing.assert_array_equal(np.concatenate(each), np.concatenate(first))


def test_an_extremum_of_products_that_are_also_summed() -> None:
    x, y = rng.normal(size=(2, 501, 3))

    def f(x: Any, y: Any) -> Any:
        p = x * y
        return np.max(p, axis=0), np.sum(p, axis=0), np.min(p, axis=1), np.sum(p, axis=1), np.max(p)

    for a, b in zip(tg.trace(f)(x, y), f(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_each_level_has_machine_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = []
    make = jit.compile_ir

    def counted(text: Any, name: str, kind: str = "loops", optimize: int = 2) -> bytes:
        levels.append(optimize)
        return make(text, name, kind, optimize)

    monkeypatch.setattr(jit, "compile_ir", counted)

    def f(x: Any) -> Any:
        return np.sum(np.exp(x) * np.arctan(x) / 1.9375, axis=1)

    x = rng.random((30, 40))
    with settings.override(cache=False):
        saved = []
        for level in LEVELS:
            before = machine_code_count()
            saved.append(tg.trace(f, optimize=level))
            np.testing.assert_allclose(saved[-1](x), f(x), rtol=1e-13)
            assert machine_code_count() > before
            assert levels[-1] == level
        count = machine_code_count()
        again = tg.trace(lambda x: f(x), optimize=3)
        np.testing.assert_array_equal(again(x), saved[2](x))
        assert machine_code_count() == count


def test_what_is_derived_is_optimised_alike() -> None:
    f = tg.trace(lambda x: np.sum(x**3), optimize=3)
    assert [make(f).optimize for make in (tg.grad, tg.value_and_grad, tg.jacrev, tg.hessian, tg.vmap)] == [3] * 5
    assert tg.grad(lambda x: x).optimize is None
    np.testing.assert_allclose(tg.grad(tg.grad(tg.trace(lambda x: x**3, optimize=1)))(2.0), 12.0)


def test_transforms_take_the_options_of_trace() -> None:
    def f(x: Any) -> Any:
        return np.sum(x**3)

    results = [
        make(f, optimize=3, tiered=True) for make in (tg.grad, tg.value_and_grad, tg.jacrev, tg.jacfwd, tg.hessian)
    ]
    assert [(each.optimize, each.tiered) for each in results] == [(3, True)] * 5
    assert tg.grad(f, optimize=3, tiered=True) is results[0]
    assert tg.grad(f) is not results[0]
    traced = tg.trace(f, optimize=1, tiered=False)
    first = tg.grad(traced, optimize=3)
    assert (first.optimize, first.tiered) == (3, False)
    for each in (tg.grad(f, optimize=1), first, tg.jacfwd(f, tiered=False)):
        np.testing.assert_allclose(each(np.array([1.0, 2.0])), [3.0, 12.0])
    with pytest.raises(ValueError, match="grad: optimize must be 1, 2, 3 or None, got 4"):
        tg.grad(f, optimize=4)
    with pytest.raises(TypeError, match="hessian: tiered must be True, False or None, got 'no'"):
        tg.hessian(f, tiered="no")  # type: ignore[arg-type]


def test_methods_and_partial_calls_of_a_traced_function_keep_its_options() -> None:
    class Model:
        scale = 2.0

        @tg.trace(optimize=3, tiered=False)
        def loss(self, x: Any) -> Any:
            return np.sum(self.scale * x**2)

    by_method = tg.grad(Model().loss)
    by_part = tg.grad(functools.partial(tg.trace(lambda a, x: np.sum(a * x**2), optimize=3), 2.0))
    assert (by_method.optimize, by_method.tiered, by_part.optimize) == (3, False, 3)
    for derivative in (by_method, by_part):
        np.testing.assert_allclose(derivative(np.array([1.0, 2.0])), [4.0, 8.0])


def test_tensors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = []
    make = jit.compile_ir
    monkeypatch.setattr(jit, "compile_ir", lambda *args: levels.append(args[2:]) or make(*args))
    with settings.override(cache=False):
        t = tg.tensor(rng.random(200), requires_grad=True)
        tg.trace(lambda x: tg.sin(x * 1.40625).exp().sum(), optimize=1)(t).backward()
    t.grad.sub_(1.40625 * tg.cos(t.detach() * 1.40625) * tg.exp(tg.sin(t.detach() * 1.40625)))
    assert abs(t.grad).max() < 1e-13
    assert levels, "nothing was compiled"
    assert {level for kind, level in levels if kind in ("loops", "vectors")} == {1}


def test_the_setting_holds_where_nothing_is_said() -> None:
    f, g = tg.trace(lambda x: x), tg.trace(lambda x: x, optimize=2)
    for level in LEVELS:
        with settings.override(optimize=level):
            assert (f.how()[1], g.how()[1]) == (level, 2)


@pytest.mark.parametrize("wrong", [0, 4, True, "3", 2.0])
def test_another_level_is_an_error(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"trace: optimize must be 1, 2, 3 or None, got .*test_optimize"):
        tg.trace(lambda x: x, optimize=wrong)
