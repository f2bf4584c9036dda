"""Views that a loop's state holds: taken for arrays of their own, unless they or what they are of are written to."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import tracegrad as tg


def base_written_in_iterations(x: Any) -> Any:
    a = np.outer(x, x)
    r, s = a[0], 0.0
    while np.sum(r) < 100:
        s = s + r[1]
        a[0] = a[0] * 1.5
    return s + a.sum()


def view_written_in_iterations(x: Any) -> Any:
    a = np.outer(x, x)
    r, s = a[0], 0.0
    while s < 50:
        r *= 1.2
        s = s + a[0, 1]
    return s + a.sum()


def view_written_behind(x: Any) -> Any:
    a = np.outer(x, x)
    r, s = a[0], 0.0
    while s < 50:
        s = s + np.sum(r)
    r += 1.0
    return s + a.sum()


def base_written_behind(x: Any) -> Any:
    a = np.outer(x, x)
    r, s = a[0], 0.0
    while s < 50:
        s = s + np.sum(r)
    a[0] = 7.0
    return s + r.sum()


def a_view_if_there_is_no_iteration(x: Any) -> Any:
    a = np.outer(x, x)
    r, s = a[0], x[0]
    while s < 50:
        r = r * 1.1
        s = s + np.sum(r)
    r += 1.0
    return s + a.sum() + r.sum()


def two_views_of_one(x: Any) -> Any:
    a = np.outer(x, x)
    r, q, s = a[0], a[:, 0], 0.0
    while s < 50:
        s = s + np.sum(r) + q[1]
    q *= 2
    return s + r.sum()


def an_argument_written(x: Any) -> Any:
    r, s = x[1:], 0.0
    while s < 55:
        s = s + np.sum(r)
        x[1] += 0.5
    return s


def written_in_a_late_iteration(x: Any) -> Any:
    a = np.outer(x, x)
    r, s = a[0], 0.0
    while s < 200:
        s = s + np.sum(r)
        if s > 100:
            r += 1.0
    return s + a.sum()


def swapped(x: Any) -> Any:
    a = np.stack([x, x * 2])
    r, q, s = a[0], a[1], 0.0
    while s < 100:
        r, q = q, r
        s = s + r[0] + q[1]
    return s


def a_copy_of_the_base_written(x: Any) -> Any:
    a = np.stack([x, x * 2])
    r, s = a[0], 0.0
    while s < 100:
        s = s + r.sum()
        a = a * 1.1
    a[0] = 5
    return s + a.sum() + r.sum()


def another_view_in_iterations(x: Any) -> Any:
    a = np.stack([x, x * 2])
    r, s = a[0], 0.0
    while s < 100:
        s = s + r.sum()
        r = a[1]
    r[0] = 3
    return s + a.sum()


def base_of_a_tuple_written_in_iterations(x: Any) -> Any:
    a = np.outer(x, x)
    state = a[0], 0.0
    while state[1] < 100:
        r, s = state
        a[0] = a[0] * 1.5
        state = r, s + r[1]
    return state[1] + a.sum()


def view_in_a_tuple_written_in_iterations(x: Any) -> Any:
    a = np.outer(x, x)
    state = (a[0], a[1]), 0.0
    while state[1] < 50:
        (r, q), s = state
        r *= 1.2
        state = (q, r), s + a[0, 1]
    return state[1] + a.sum()


def view_in_a_tuple_written_behind(x: Any) -> Any:
    a = np.outer(x, x)
    state = a[0], 0.0
    while state[1] < 50:
        state = state[0], state[1] + np.sum(state[0])
    r, s = state
    r += 1.0
    return s + a.sum()


def base_of_a_tuple_written_behind(x: Any) -> Any:
    a = np.outer(x, x)
    state = a[0], (a[1], 0.0)
    while state[1][1] < 50:
        state = state[0] + 1.0, (state[1][0], state[1][1] + np.sum(state[0]))
    a[1] = 7.0
    return state[1][1] + state[0].sum() + state[1][0].sum()


PROGRAMS = {
    f.__name__: f
    for f in (
        base_written_in_iterations,
        view_written_in_iterations,
        view_written_behind,
        base_written_behind,
        a_view_if_there_is_no_iteration,
        two_views_of_one,
        an_argument_written,
        written_in_a_late_iteration,
        swapped,
        a_copy_of_the_base_written,
        another_view_in_iterations,
        base_of_a_tuple_written_in_iterations,
        view_in_a_tuple_written_in_iterations,
        view_in_a_tuple_written_behind,
        base_of_a_tuple_written_behind,
    )
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_views_are_seen_to_change_as_in_numpy(name: str) -> None:
    f = PROGRAMS[name]
    g = tg.trace(f)
    for scale in (1.0, 0.7, 2.0, 9.0):
        x = np.array([1.0, 2.0, 0.5]) * scale
        there, here = x.copy(), x.copy()
        np.testing.assert_allclose(g(here), f(there), rtol=1e-12)
        np.testing.assert_allclose(here, there)


def test_products_in_a_tuple_are_no_views() -> None:
    def grown(a: Any) -> Any:
        state = np.ones(2), np.eye(2)
        while state[1][0, 0] < 1e3:
            x, p = state
            state = a @ x, (1.5 * np.eye(2) + np.outer(x, x)) @ p
        return np.sum(state[0]) + np.sum(state[1])

    g = tg.value_and_grad(grown)
    for scale in (1.0, 0.9, 1.2, 0.5, 1.5):
        a = scale * np.array([[1.0, 0.2], [0.1, 0.9]])
        value, derivative = g(a)
        assert value == pytest.approx(grown(a), rel=1e-12)
        along = (grown(a + 1e-7) - grown(a - 1e-7)) / 2e-7
        assert np.sum(derivative) == pytest.approx(along, rel=1e-5)
    assert g.cache_info().traces <= 2


def test_views_that_nobody_writes_to_do_not_keep_loops_open() -> None:
    def shot(p: Any) -> Any:
        y, v, t = p[:2], p[2:], 0.0
        while y[1] > 0:
            y, v, t = y + 0.1 * v, v - np.array([0.0, 0.98]), t + 0.1
        return y[0] + t

    g = tg.value_and_grad(shot)
    for up in (1.0, 5.0, 3.0, 12.0, 0.5):
        p = np.array([0.0, 1.0, 2.0, up])
        value, derivative = g(p)
        assert value == pytest.approx(shot(p), rel=1e-12)
        np.testing.assert_allclose(derivative[::2], [1.0, 0.1 * round(value / 0.3)], rtol=1e-9)
    assert g.cache_info().traces <= 2


@pytest.mark.usefixtures("folds")
def test_a_state_that_begins_as_a_tuple_of_views_is_one_of_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    restart = importlib.import_module("tracegrad.reroll.online.restart")
    monkeypatch.delattr(restart, "_unrolled_fact")

    def final(weights: Any, starts: Any, rows: Any) -> Any:
        state = starts[0], (starts[1], 0.0)
        for row in rows:
            h, (c, total) = state
            c = np.tanh(c * weights[1] + row)
            state = h * weights[0] + c, (c, total + np.sum(c * h))
        return state[1][1] + np.sum(state[0])

    rng = np.random.default_rng(5)
    args = rng.normal(size=(4, 3)), rng.normal(size=(2, 3)), rng.normal(size=(30, 3))
    derivatives = tg.grad(final, argnums=(0, 1, 2))(*args)
    for k, (derivative, x) in enumerate(zip(derivatives, args)):
        along = rng.normal(size=x.shape)
        there, back = ([*args[:k], x + step * along, *args[k + 1 :]] for step in (1e-6, -1e-6))
        assert np.sum(derivative * along) == pytest.approx((final(*there) - final(*back)) / 2e-6, rel=1e-6)


# -- views that leave --------------------------------------------------------------------------------------------
class Holder:
    """Something that holds a view."""

    value: Any = None


HOLDER = Holder()


def a_view_of_an_argument(z: Any, s: Any) -> Any:
    c = z[:2]
    while s > 0.1:
        s = s * 0.9
    return c


def a_view_of_a_result(z: Any, s: Any) -> Any:
    y = z * 1
    c = y[:2]
    while s > 0.1:
        s = s * 0.9
    return y, c


def a_view_of_a_view(z: Any, s: Any) -> Any:
    c = z[1:]
    d = c[::-1]
    while s > 0.1:
        s = s * 0.9
    return c, d


def a_view_behind_a_break(z: Any, s: Any) -> Any:
    c = z.reshape(2, 2)[1]
    for _ in range(200):
        s = s * 0.9
        if s < 0.1:
            break
    c += 1
    return c


def a_view_returned_within_the_loop(z: Any, s: Any) -> Any:
    c = z[1:3]
    while True:
        s = s * 0.9
        if s < 0.1:
            return c


def a_view_in_a_tuple(z: Any, s: Any) -> Any:
    held = z[:2], z[2:]
    while s > 0.1:
        s = s * 0.9
    return held[1]


def a_view_kept_outside(z: Any, s: Any) -> Any:
    HOLDER.value = z[:2]
    c = HOLDER.value
    while s > 0.1:
        s = s * 0.9
    HOLDER.value = c
    c[0] = s
    return HOLDER.value


def a_view_or_a_product(z: Any, s: Any) -> Any:
    c = z[:2]
    while s > 0.1:
        s = s * 0.9
        if s < 0.3:
            c = c * 2
    return c


def one_view_or_the_other(z: Any, s: Any) -> Any:
    c, d = z[:2], z[2:]
    while s > 0.1:
        s = s * 0.9
        c, d = d, c
    return c


def a_view_made_in_iterations(z: Any, s: Any) -> Any:
    y = z * 1
    c = y[:2]
    while s > 0.1:
        s = s * 0.9
        y = y * 1.1
        c = y[:2]
    c[0] = 50
    return y, c


def a_view_around_two_loops(z: Any, s: Any) -> Any:
    c = z[:2]
    while s > 0.1:
        s = t = s * 0.9
        while t > 0.2:
            t = t * 0.7
        s = s * (1 + 0.01 * t)
    return c


def the_argument_if_there_is_no_iteration(z: Any, s: Any) -> Any:
    y = z
    while s > 0.1:
        t = s
        while t > 0.2:
            t, y = t * 0.5, y * 1.5
        s = s * 0.8
    return y


def the_base_of_a_view(z: Any, s: Any) -> Any:
    y = z * 1
    c = y[::2]
    while s > 0.1:
        s = s * 0.9
    return np.array([c.base is y, np.shares_memory(c, y), c.strides[0]])


def two_names_of_one_view(z: Any, s: Any) -> Any:
    c = z[:2]
    held = [c]
    while s > 0.1:
        s = s * 0.9
    return np.array([held[0] is c])


LEAVING = {
    f.__name__: f
    for f in (
        a_view_of_an_argument,
        a_view_of_a_result,
        a_view_of_a_view,
        a_view_behind_a_break,
        a_view_returned_within_the_loop,
        a_view_in_a_tuple,
        a_view_kept_outside,
        a_view_or_a_product,
        one_view_or_the_other,
        a_view_made_in_iterations,
        a_view_around_two_loops,
        the_argument_if_there_is_no_iteration,
        the_base_of_a_view,
        two_names_of_one_view,
    )
}


def _after_a_write(f: Any, s: float) -> list[list[float]]:
    """The argument and the results, when the last of these has been written to."""
    z = np.arange(4.0) + 1
    result = f(z, s)
    arrays = [*result] if isinstance(result, tuple) else [result]
    before = [x.tolist() for x in arrays]
    arrays[-1][...] = 77
    return [*before, *[x.tolist() for x in (z, *arrays)]]


@pytest.mark.parametrize("name", LEAVING)
def test_what_leaves_behind_a_loop_shares_memory_as_in_numpy(name: str) -> None:
    f = LEAVING[name]
    g = tg.trace(f)
    for s in (0.3, 0.05, 0.7, 0.04, 0.9, 0.15, 0.5):
        there, here = _after_a_write(f, s), _after_a_write(g, s)
        assert len(there) == len(here)
        for x, y in zip(there, here):
            np.testing.assert_allclose(y, x, rtol=1e-12)


@pytest.mark.parametrize("f", [a_view_of_an_argument, a_view_of_a_view, a_view_behind_a_break, a_view_in_a_tuple])
def test_views_that_no_iteration_changes_do_not_keep_loops_open(f: Any) -> None:
    g = tg.trace(f)
    for s in (0.3, 0.7, 0.9, 0.2, 0.5):
        g(np.arange(4.0), s)
    assert g.cache_info().traces == 1


@pytest.mark.parametrize("lines", [1, 100])
def test_a_loop_whose_jump_back_has_a_long_argument_is_closed_too(lines: int) -> None:
    """A jump over more than 255 units is of two instructions, and the jump back leads to the first of them."""
    text = f"""
def f(p):
    y, s = p[2:], 0.0
    for k in range(40):
        t = s * 0.01
        while t < 1:
            new = y * 0.9
            t, y = t + new.sum(), new + p[0]
        {"s = s + y[0] * 0.5; " * lines}
    return s
"""
    names: dict[str, Any] = {}
    exec(text, names)
    g = tg.value_and_grad(names["f"])
    for first in (0.2, 0.3, 0.5, 0.1):
        p = np.array([first, 0.3, 0.4, 0.1])
        value, gradient = g(p)
        assert value == pytest.approx(names["f"](p), rel=1e-12)
        step = 1e-6 * np.eye(4)
        np.testing.assert_allclose(
            gradient, [(names["f"](p + d) - names["f"](p - d)) / 2e-6 for d in step], rtol=1e-5, atol=1e-7
        )
    assert g.cache_info().traces == 1


def written_ahead(x: Any) -> Any:
    a, s, at = x * 1.0, 0.0, [1]
    for row in a:
        a[at[-1]] = a[at[-1]] + row
        at.append((at[-1] + 1) % len(x))
        s = s + np.sum(row * row)
    return s


def written_at_the_end(x: Any) -> Any:
    a, s = x * 1.0, 0.0
    for (k, row), other in zip(enumerate(a), a):
        a[-1] += row * k
        s = s + np.sum(row * other)
    return s


@pytest.mark.parametrize("fun", [written_ahead, written_at_the_end])
@pytest.mark.parametrize("shape", [(4,), (12,), (12, 2)])
def test_a_loop_is_given_elements_as_they_are_when_their_iteration_comes(fun: Any, shape: tuple[int, ...]) -> None:
    x = np.linspace(0.5, 1.5, np.prod(shape)).reshape(shape)
    np.testing.assert_allclose(tg.trace(fun)(x), fun(x), rtol=1e-12)


def a_row_updated_while(a: Any, x: Any) -> Any:
    r = a[0]
    while x > 1e-2:
        r += x
        x = x * 0.97
    return r.sum(), x


def a_row_updated_where_a_test_holds(a: Any, x: Any) -> Any:
    r = a[0]
    for _ in range(len(a)):
        if x > 0.5:
            r += x
        x = x * 1.1 if x < 0.7 else x * 0.4
    return a * 1, r * 1


def another_row_in_each_iteration(a: Any, x: Any) -> Any:
    i = 0
    while x > 1e-3 and i < len(a):
        r = a[i]
        r += x
        x, i = x * 0.99, i + 1
    return a * 1, x


def rows_summed_into_the_first(a: Any, x: Any) -> Any:
    v = a[0]
    for i in range(1, len(a)):
        v += a[i] * x
    return v * 1


def elements_of_a_flat_view(a: Any, x: Any) -> Any:
    f = a.reshape(-1)
    for i in range(1, len(f)):
        f[i] = f[i] + 0.5 * f[i - 1]
    return f[-1] * x


def columns_of_a_transposed_view(a: Any, x: Any) -> Any:
    b = a.T
    for i in range(b.shape[1]):
        b[:, i] = b[:, i] * x + b[:, i - 1]
    return b.sum()


def views_that_overlap_and_what_they_are_of(a: Any, x: Any) -> Any:
    r, c, v = a[0], a[:, 1], a[0][::-1]
    while x > 1e-2:
        r *= 0.9
        c += x
        if v[0] > 0.2:
            v[1:] = 0.1
        else:
            a[0, -1] = 0.3 + x
        x = x * 0.97
    return r * 1, c * 1, v * 1


def a_view_of_what_nothing_else_has(a: Any, x: Any) -> Any:
    r = np.outer(a[0], a[1])[1:]
    while x > 1e-2:
        r += x
        r[0] *= 0.5
        x = x * 0.97
    return r.T.sum(0)


WRITTEN = [
    a_row_updated_while,
    a_row_updated_where_a_test_holds,
    another_row_in_each_iteration,
    rows_summed_into_the_first,
    elements_of_a_flat_view,
    columns_of_a_transposed_view,
    views_that_overlap_and_what_they_are_of,
    a_view_of_what_nothing_else_has,
]


@pytest.mark.parametrize("f", WRITTEN)
def test_loops_that_update_a_view_are_loops_and_what_it_is_of_is_updated(f: Any) -> None:
    traced = tg.trace(f)
    for seed, x in enumerate((0.9, 0.6, 0.3, 0.8)):
        a = np.random.default_rng(seed).normal(size=(60, 4))
        there, here = a.copy(), a.copy()
        for want, got in zip(tg.tree.leaves(f(there, x)), tg.tree.leaves(traced(here, x)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(here, there, rtol=1e-12, atol=1e-12)
    if f is not views_that_overlap_and_what_they_are_of:
        assert len(traced.explain(a, 0.9).graph.nodes) < 60


@pytest.mark.parametrize("f", WRITTEN)
def test_derivatives_of_loops_that_update_a_view_are_those_of_its_iterations_one_by_one(f: Any) -> None:
    def loss(a: Any, x: Any) -> Any:
        return sum(np.sum(np.sin(part)) for part in tg.tree.leaves(f(a * 1, x)))

    a = np.random.default_rng(0).normal(size=(12, 4))
    derivative = tg.grad(loss, (0, 1))(a, 0.6)
    with tg.disable_jit():
        expected = tg.grad(loss, (0, 1))(a, 0.6)
    for got, want in zip(derivative, expected):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_a_view_that_iterations_have_updated_is_still_the_view_behind_the_loop() -> None:
    def f(a: Any, x: Any) -> Any:
        r = a[0]
        while x > 0.1:
            r += x
            x = x * 0.8
        return r

    traced = tg.trace(f)
    for x in (0.9, 0.05, 0.5):
        there, here = np.arange(8.0).reshape(2, 4), np.arange(8.0).reshape(2, 4)
        f(there, x)[1] = 7.0
        traced(here, x)[1] = 7.0
        np.testing.assert_allclose(here, there, rtol=1e-12)
