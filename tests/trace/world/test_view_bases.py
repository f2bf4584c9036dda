"""Views among arrays from outside, of which a call writes to one and reads another: compiled, and as in NumPy."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from meaning import program

import tracegrad as tg
from tracegrad.errors import TracegradError

STEP = 1e-6


@program
def test_views_of_one_array_are_written_and_read(trace):
    grid = np.arange(6.0).reshape(2, 3) * 0.2
    row, views = grid[0], [grid[:, 1], grid.T, grid[::-1, ::2]]

    @trace
    def step(x):
        for k in range(2):
            row[:] = row * 0.5 + k * 0.1
        views[1][0] += x[:2]
        views[2][1, 1] *= 2.0
        return x * grid.sum(0) + views[0][0]

    for k in range(3):
        yield step(np.ones(3) * k), grid, row, views


@program
def test_views_that_are_handed_out_are_the_same_arrays(trace):
    whole = np.arange(4.0)
    head = whole[:2]

    @trace
    def step(x):
        head[1] = x
        return head, whole, head[1:], (head is whole, whole[:2] is head)

    for k in range(3):
        result = step(k * 1.5)
        yield result, result[0] is head, result[1] is whole, np.shares_memory(result[2], whole)


@program
def test_views_in_other_orders_of_memory(trace):
    columns = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    transposed, corner = columns.T[::-1], columns[1:, ::-2]
    deep = np.moveaxis(np.arange(24.0).reshape(2, 3, 4), 0, 1)
    face = deep[1]

    @trace
    def step(x):
        corner[0] = x
        face[...] *= 0.5
        return transposed + x.sum(), columns * 2, deep.sum(1), face

    for k in range(3):
        yield step(np.ones(2) * k), columns, deep


@program
def test_a_view_that_cannot_be_written_shows_what_is_written(trace):
    whole = np.zeros(4)
    shown = whole[::2]
    shown.flags.writeable = False

    @trace
    def step(x):
        whole[:] += x
        try:
            shown[0] = 3.0
        except ValueError:
            return shown * 2, True
        return shown, False

    for _ in range(3):
        yield step(1.5), whole


@program
def test_a_view_that_is_moved_to_other_places(trace):
    world = types.SimpleNamespace(whole=np.arange(6.0))
    world.part = world.whole[:2]

    @trace
    def step(x):
        world.part[0] = x
        return world.whole * world.part[1]

    for k in (0, 1, 2):
        yield step(9.0), world.whole
        world.part = world.whole[k : k + 4 : 2][:2]
    world.part = np.ones(2)  # which lies elsewhere
    for _ in range(2):
        yield step(7.0), world.whole, world.part
    world.part = world.whole[:0]
    with pytest.raises(IndexError):
        step(7.0)
    yield world.whole


def _world() -> dict[str, Any]:
    grid = np.arange(6.0).reshape(2, 3) * 0.2
    return {"grid": grid, "row": grid[0], "column": grid[:, 1]}


def _loss(world: dict[str, Any]) -> Any:
    def loss(x):
        for k in range(2):
            world["row"][:] = world["row"] * 0.5 + k * 0.1 + x * 0.01
        return x.sum() * world["grid"].sum() + (world["column"] ** 2).sum()

    return loss


def _differences(x: Any, calls: int) -> list[Any]:
    """By central differences, the gradients of so many calls in turn."""
    world, result = _world(), []
    for _ in range(calls):
        before, gradient = world["grid"].copy(), []
        for e in np.eye(x.size) * STEP:
            ends = []
            for at in (x + e, x - e):
                world["grid"][...] = before
                ends.append(_loss(world)(at))
            gradient.append((ends[0] - ends[1]) / (2 * STEP))
        world["grid"][...] = before
        _loss(world)(x)
        result.append((gradient, world["grid"].copy()))
    return result


@pytest.mark.parametrize("jit", [True, False])
def test_the_derivative_passes_through_what_is_written_to_a_view(jit):
    world, x = _world(), np.array([1.0, 2.0, 3.0])
    gradient = tg.grad(_loss(world))
    gradient = gradient if jit else tg.disable_jit()(gradient)
    for wanted, left in _differences(x, 3):
        np.testing.assert_allclose(gradient(x), wanted, rtol=1e-6)
        np.testing.assert_allclose(world["grid"], left, rtol=1e-12)


def test_tangents_pass_through_what_is_written_to_a_view():
    world, x = _world(), np.array([1.0, 2.0, 3.0])
    for wanted, _ in _differences(x, 3):
        _, derivative = tg.jvp(_loss(world), (x,), (np.array([0.5, -1.0, 2.0]),))
        np.testing.assert_allclose(derivative, np.dot(wanted, [0.5, -1.0, 2.0]), rtol=1e-6)


def test_such_calls_are_compiled(capsys):
    world = _world()
    traced = tg.trace(_loss(world))
    for _ in range(4):
        traced(np.ones(3))
    assert traced.cache_info().traces == 2
    assert traced.cache_info().limited == 0


def test_what_such_a_call_prints_is_printed_once(capsys):
    world = _world()

    @tg.trace
    def f(x):
        print("called")  # noqa: T201
        world["row"][0] = 2.0
        return x * world["grid"]

    f(1.0)
    assert capsys.readouterr().out == "called\n"
    tg.disable_jit()(tg.grad(lambda x: f(x).sum()))(1.0)
    assert capsys.readouterr().out == "called\n"


def test_classes_are_asked_of_values_as_in_python():
    from collections.abc import Hashable

    world = _world()

    def f(x):
        world["row"][0] = x
        return (world["grid"] * x).sum() * (2.0 if isinstance(x * 1.0, Hashable) else 3.0) * (type(x) is float)

    value, gradient = tg.value_and_grad(f)(0.5)
    other = _world()
    other["row"][0] = 0.5
    total = other["grid"].sum()
    assert value == pytest.approx(2 * 0.5 * total)
    assert gradient == pytest.approx(2 * (total + 0.5))


def _scaled_by_bits() -> tuple[Any, Any]:
    """A function that writes to an array, and reads its bytes."""
    whole = np.arange(3.0)
    bits = whole.view(np.int64)

    def f(x):
        whole[0] = x
        return x * float(bits[0] // 10**15)

    return f, whole


def test_a_call_that_reads_the_bytes_of_what_it_writes_runs_plainly_with_one_warning():
    (f, whole), (traced, other) = _scaled_by_bits(), _scaled_by_bits()
    traced = tg.trace(traced)
    with pytest.warns(tg.PerformanceWarning, match=r"variable whole, which it writes to, shares .*\.py:\d+"):
        assert traced(0.5) == f(0.5)
    for x in (0.25, 3.0):
        assert traced(x) == f(x)
        np.testing.assert_array_equal(whole, other)


def test_a_call_that_writes_to_an_array_that_is_read_only_now_runs_plainly_with_one_warning():
    sealed = np.zeros(2)

    @tg.trace
    def f(x):
        sealed[0] = x
        return sealed * 2.0

    f(1.0)
    sealed.flags.writeable = False
    with (
        pytest.warns(tg.PerformanceWarning, match="sealed cannot be written to: the array is read-only"),
        pytest.raises(ValueError, match="read-only"),
    ):
        f(2.0)


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
def test_an_error_of_a_call_on_the_tape_says_that_memory_is_shared():
    f, _ = _scaled_by_bits()
    with pytest.raises(TracegradError, match="shares memory with something else"):
        tg.grad(f)(0.5)


@program
def test_a_number_in_the_place_of_an_array(trace):
    world = types.SimpleNamespace(whole=np.arange(3.0), other=np.ones(3))

    @trace
    def step(x):
        world.whole += x
        return world.other * 2.0

    for other in (np.ones(3), np.ones(3), 2.5, world.whole[:2], np.ones(3)):
        world.other = other
        yield step(1.0), world.whole


def _views(rng: np.random.Generator) -> tuple[Any, Any]:
    """An array and a view of it, by some of NumPy's ways."""
    base = rng.normal(size=tuple(rng.integers(1, 4, size=rng.integers(1, 4))))
    base = np.asfortranarray(base) if rng.random() < 0.3 else base
    view = base[...]
    for way in rng.integers(0, 4, size=3):
        if way == 0:
            view = view.T
        elif way == 1:
            view = view[tuple(slice(None, None, int(rng.choice([1, 2, -1, -2]))) for _ in view.shape)]
        elif way == 2 and view.ndim > 1:
            view = view[int(rng.integers(view.shape[0]))]
        elif way == 3:
            view = view[None]
    return base, view


@pytest.mark.parametrize("seed", range(30))
def test_any_view_shows_what_is_written_to_its_base_and_the_other_way_round(seed):
    def run(trace):
        base, view = _views(np.random.default_rng(seed))

        @trace
        def write(x):
            base[...] = base * 2 + x
            view[...] -= np.arange(view.size).reshape(view.shape)
            return base * 1.0, view * 3.0

        return [(write(k * 0.5), base.copy(), view.copy()) for k in range(2)]

    for (a, *left), (b, *right) in zip(run(tg.trace), run(lambda f: f)):
        for u, v in zip((*a, *left), (*b, *right)):
            np.testing.assert_allclose(u, v, rtol=1e-14)
