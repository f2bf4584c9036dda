"""Traced code means what NumPy means: arrays from outside that are updated in place, run plainly and traced."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from meaning import attempt, program

import tracegrad as tg

ALL = ("traced", "disabled", "tensors")
TABLE = np.zeros(3)


@program(modes=ALL)
def test_arguments_are_updated(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        x += 1
        x[0] = 5.0
        x[1:] *= 2
        return x.sum()

    x = np.arange(4.0)
    for _ in range(3):
        yield f(x), x


@program
def test_methods_and_functions_that_update(trace: Any) -> Any:
    @trace
    def f(x: Any, i: Any) -> Any:
        np.add.at(x, i, 1.0)
        np.multiply(x, 2.0, out=x)
        np.copyto(x[:2], x[2:4])
        return x * 1

    @trace
    def g(x: Any) -> Any:
        x.sort()
        y = x.copy()
        x.fill(0)
        return y

    x = np.array([3.0, -1.0, 2.0, 7.0])
    for _ in range(2):
        yield f(x, np.array([0, 0, 2])), x
    yield g(x), x


@program
def test_captured_arrays_are_updated(trace: Any) -> Any:
    TABLE[:] = 0.0
    table, held = np.zeros(3), {"a": [np.ones(2)]}

    class Thing:
        w = np.ones(3)

        def __init__(self) -> None:
            self.x = np.arange(3.0)

    thing = Thing()

    @trace
    def f(x: Any) -> Any:
        table[:] += x
        held["a"][0] -= 1.0
        thing.x[1] = x[0]
        thing.w *= 2.0
        TABLE[0] += 1.0
        return table.sum() + thing.x.sum()

    for k in range(3):
        yield f(np.full(3, float(k))), table, held, thing.x, thing.w, TABLE


@program(modes=ALL)
def test_views_of_arguments_are_updated(trace: Any) -> Any:
    @trace
    def rk4(y: Any, h: Any) -> Any:
        x, v = y[0], y[1]
        x += h * v
        v -= h * np.sin(x)
        return np.sum(v**2)

    @trace
    def centre(img: Any) -> Any:
        patch = img[1:3, 1:3]
        patch -= patch.mean()
        return img.sum()

    y = np.array([[1.0, 2.0], [0.5, -0.5]])
    for _ in range(3):
        yield rk4(y, 0.1), y
    img = np.arange(16.0).reshape(4, 4)
    for _ in range(2):
        yield centre(img), img


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
@program
def test_overlapping_arguments(trace: Any) -> Any:
    @trace
    def f(x: Any, y: Any) -> Any:
        x += 1
        return y * 2

    base = np.arange(6.0)
    yield f(base[:3], base[3:]), base
    yield f(base[:4], base[2:]), base
    yield f(base, base), base
    yield f(base[:4], base[2:]), base


@program
def test_one_array_in_two_places(trace: Any) -> Any:
    shared = np.zeros(3)
    held = {"a": shared, "b": shared}

    @trace
    def f(x: Any) -> Any:
        held["a"] += x
        return held["b"] * 2

    for _ in range(2):
        yield f(np.ones(3)), held
    held["b"] = np.ones(3)
    for _ in range(2):
        yield f(np.ones(3)), held
    held["b"] = held["a"][::-1]
    yield f(np.arange(3.0)), held


@program
def test_arrays_of_other_layouts_and_dtypes(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        x[..., 0] += 1
        x *= 3
        return x.sum()

    for x in (
        np.arange(6.0).reshape(2, 3).T,
        np.arange(12.0).reshape(3, 4)[:, ::2],
        np.arange(6)[::-1],
        np.arange(6, dtype=np.float32),
        np.array(2.0),
        np.zeros((0, 3)),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ):
        yield attempt(f, x), x
        yield attempt(f, x), x


@pytest.mark.filterwarnings("ignore:.*cannot be written to:tracegrad.PerformanceWarning")
@program
def test_arrays_that_cannot_be_written(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        x[0] = 1.0
        return x * 2

    writeable, fixed = np.zeros(3), np.zeros(3)
    fixed.flags.writeable = False
    for x in (writeable, fixed, writeable, fixed):
        yield attempt(f, x, text=True), x


@program
def test_results_that_are_arguments(trace: Any) -> Any:
    @trace
    def f(x: Any, y: Any) -> Any:
        x += y
        return x, y, {"x": x}

    x, y = np.ones(2), np.ones(2)
    for _ in range(2):
        a, b, c = f(x, y)
        yield a is x, b is y, c["x"] is x, x


@program
def test_an_update_that_does_not_fit(trace: Any) -> Any:
    @trace
    def f(x: Any, y: Any) -> Any:
        x[0] = 7.0
        x += y
        return x

    x = np.zeros(3)
    yield attempt(f, x, np.ones(3)), x
    yield attempt(f, x, np.ones(2)), x
    yield attempt(f, x, np.ones((2, 3))), x
    yield attempt(f, x, np.ones(1)), x


@program
def test_an_optimiser_that_updates_its_parameters(trace: Any) -> Any:
    class Momentum:
        def __init__(self, params: Any) -> None:
            self.params, self.velocity = params, [np.zeros_like(p) for p in params]

        def step(self, grads: Any) -> Any:
            for p, v, g in zip(self.params, self.velocity, grads):
                v *= 0.9
                v += g
                p -= 0.1 * v

    params = [np.ones(3), np.arange(4.0).reshape(2, 2)]
    optimiser = Momentum(params)
    step = trace(optimiser.step)
    for k in range(3):
        yield step([np.full(3, float(k)), np.ones((2, 2))]), params, optimiser.velocity


def _updating(x: Any) -> Any:
    x *= 2.0
    x[0] = 1.0
    return np.sum(x**3)


def test_a_gradient_of_a_function_that_updates_its_argument() -> None:
    expected = np.array([0.0, 24.0 * 4.0, 24.0 * 9.0])
    for disabled in (False, True):
        x = np.array([1.0, 2.0, 3.0])
        gradient = tg.grad(_updating)
        for k in range(2):
            before = x.copy()
            if disabled:
                with tg.disable_jit():
                    result = gradient(x)
            else:
                result = gradient(x)
            wanted = 24.0 * before**2 * np.array([0.0, 1.0, 1.0])
            np.testing.assert_allclose(result, wanted if k else expected)
            np.testing.assert_array_equal(x, [1.0, *(2.0 * before[1:])])


def test_a_gradient_through_a_captured_array_that_is_updated() -> None:
    state = np.ones(3)

    def f(x: Any) -> Any:
        state[:] = state * 0.5 + x**2
        return np.sum(state * x)

    x = np.arange(1.0, 4.0)
    gradient = tg.value_and_grad(f)
    for _ in range(3):
        before = state.copy()
        value, result = gradient(x)
        np.testing.assert_allclose(result, 0.5 * before + 3 * x**2)
        np.testing.assert_allclose(state, before * 0.5 + x**2)
        np.testing.assert_allclose(value, np.sum(state * x))


def test_what_an_update_costs_no_trace() -> None:
    @tg.trace
    def f(x: Any) -> Any:
        x += 1
        return x.sum()

    x = np.zeros(3)
    for _ in range(5):
        f(x)
    assert f.cache_info().traces == 1
    np.testing.assert_array_equal(x, np.full(3, 5.0))


@program
def test_rows_are_views(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        for row in x:
            row += 1
        a, b = x
        a *= 2
        b[...] = a
        for i, v in enumerate(x[0]):
            x[1, i] = v + i
        x.T[0] = 5.0
        x.flat[3] = 9.0
        return x.sum()

    x = np.arange(6.0).reshape(2, 3)
    for _ in range(2):
        yield attempt(f, x), x


@program
def test_functions_that_write_into_out(trace: Any) -> Any:
    @trace
    def f(x: Any, y: Any, z: Any) -> Any:
        np.exp(x, out=x)
        np.add(x, y, x)
        r = np.clip(x, 0.0, 2.0, out=y)
        np.sum(x, axis=0, out=z)
        np.cumsum(z, out=z)
        x.clip(0.0, 1.5, out=x)
        np.matmul(x, x.T[:, :2] * 1.0, out=x[:, :2])
        np.maximum(x, y, out=x)
        return r is y, z.sum()

    x, y, z = np.arange(6.0).reshape(2, 3) / 5, np.ones((2, 3)), np.zeros(3)
    for _ in range(2):
        yield attempt(f, x, y, z), x, y, z


@program
def test_out_that_does_not_fit(trace: Any) -> Any:
    @trace
    def f(x: Any, out: Any) -> Any:
        return np.sum(x, axis=0, out=out)

    for out in (np.zeros(2), np.zeros(3, int), np.zeros(3, np.float32), np.zeros(3)):
        yield attempt(f, np.ones((2, 3)), out), out


@program(modes=("traced",))
def test_copyto(trace: Any) -> Any:
    @trace
    def f(x: Any, y: Any, m: Any) -> Any:
        np.copyto(x, y)
        np.copyto(x, 3.0, where=m)
        np.copyto(x[1:], y[:-1] * 2, where=m[1:])
        return x * 2

    @trace
    def g(n: Any, y: Any) -> Any:
        np.copyto(n, y, casting="unsafe")
        np.copyto(n, y)
        return n

    x, y, m = np.zeros(3), np.array([1.5, 2.5, -0.0]), np.array([True, False, True])
    yield f(x, y, m), x
    n = np.zeros(3, int)
    yield attempt(g, n, y), n
    yield attempt(g, n, np.arange(3)), n


@program
def test_what_numpy_refuses_or_gives_of_values_at_the_edge(trace: Any) -> Any:
    @trace
    def averaged(x: Any, w: Any) -> Any:
        return np.average(x, weights=w)

    @trace
    def masked(y: Any, v: Any) -> Any:
        np.putmask(y, y > 0, v)
        return y

    @trace
    def placed(y: Any, v: Any) -> Any:
        np.place(y, y > 0, v)
        return y

    @trace
    def chosen(x: Any) -> Any:
        return np.select([x > 0.5, x > -0.5], [x, 0], default=1.5)

    @trace
    def middle(x: Any) -> Any:
        return np.median(x)

    for x, w in (([1.0, -1.0], [1.0, -1.0]), ([1.0, 2.0], [1.0, 3.0]), ([], []), ([2.0, 2.0], [0.0, 0.0])):
        yield attempt(averaged, np.array(x), np.array(w))
    for change in (masked, placed):
        for y, v in (
            (np.array([1, 2]), np.array([0.5, 1.5])),
            (np.ones(2, "f4"), np.array([0.5, 1.5])),
            (np.ones(2), np.array([1, 2])),
            (np.array([1, 2]), np.array([3, 4])),
            (np.ones(2, "f4"), np.float64(0.5)),
        ):
            yield attempt(change, y, v)
            yield y
    yield chosen(np.array([1.0, -1.0, 0.0], "f4"))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield middle(np.zeros(0))
        yield middle(np.array([3.0, 1.0]))
