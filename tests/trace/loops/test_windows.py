"""Windows at computed places: loops that read and write parts of arrays, against NumPy's, and what an iteration
costs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_strategies import arrays_and_indices

import tracegrad as tg
from tracegrad.ir import parse, run, verify
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from tracegrad.passes import optimize

rng = np.random.default_rng(0)
N = 20


def read(x: Any, *starts: Any, sizes: Any = None) -> Any:
    return dynamic_slice(x, *starts, sizes=sizes or (1,) * x.ndim, step=(1,) * x.ndim)


def write(x: Any, update: Any, *starts: Any) -> Any:
    return dynamic_update_slice(x, update, *starts, step=(1,) * x.ndim)


def turns(length: int, body: Any, *init: Any) -> Any:
    """The last values of `body(k, *values)` for k from 0 on."""
    last, _ = tg.scan(lambda c, _: ((c[0] + 1, *body(*c)), None), (0, *init), None, length=length)
    return last[1:]


def row(x: Any, k: Any) -> Any:
    return read(x, k, 0, sizes=(1, N))


# Each as a loop of windows, and as NumPy has it.
def gauss_seidel(u: Any) -> Any:
    def relax(u: Any, i: Any, j: Any) -> Any:
        around = read(u, i - 1, j) + read(u, i + 1, j) + read(u, i, j - 1) + read(u, i, j + 1)
        return write(u, 0.25 * around + np.sin(read(u, i, j)), i, j)

    def sweep(i: Any, u: Any) -> Any:
        return turns(N - 2, lambda j, u: (relax(u, i + 1, j + 1),), u)

    return np.sum(turns(N - 2, sweep, u)[0] ** 3)


def gauss_seidel_plain(u: Any) -> Any:
    for i in range(1, N - 1):
        for j in range(1, N - 1):
            u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]) + np.sin(u[i, j])
    return np.sum(u**3)


def rows_of_results(u: Any) -> Any:
    def turn(k: Any, x: Any, out: Any) -> Any:
        x = 1.1 * np.sin(x)
        return x, write(out, x, k, 0)

    _, out = turns(N, turn, u[:1], np.zeros((N, N)))
    return np.sum(out**2 * np.arange(N))


def rows_of_results_plain(u: Any) -> Any:
    x, out = u[0], np.zeros((N, N))
    for k in range(N):
        out[k] = x = 1.1 * np.sin(x)
    return np.sum(out**2 * np.arange(N))


def stencil(u: Any) -> Any:
    def turn(_: Any, u: Any) -> Any:
        def near(i: int, j: int) -> Any:
            return read(u, i, j, sizes=(N - 2, N - 2))

        flow = near(0, 1) + near(2, 1) + near(1, 0) + near(1, 2) - 4 * near(1, 1)
        return (write(u, near(1, 1) + 0.1 * flow + 0.01 * near(1, 1) ** 3, 1, 1),)

    return np.sum(turns(10, turn, u)[0] ** 2)


def stencil_plain(u: Any) -> Any:
    for _ in range(10):
        inner = u[1:-1, 1:-1]
        flow = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner
        u[1:-1, 1:-1] = inner + 0.1 * flow + 0.01 * inner**3
    return np.sum(u**2)


def swapped(u: Any) -> Any:
    def turn(k: Any, u: Any) -> Any:
        a, b = row(u, k), row(u, N - 1 - k)
        return (write(write(u, 2 * b, k, 0), a * a, N - 1 - k, 0),)

    return np.sum(turns(N // 2, turn, u)[0] * np.arange(N))


def swapped_plain(u: Any) -> Any:
    for k in range(N // 2):
        u[k], u[N - 1 - k] = 2 * u[N - 1 - k], u[k] ** 2
    return np.sum(u * np.arange(N))


def old_beside_new(u: Any) -> Any:
    def turn(k: Any, u: Any) -> Any:
        v = write(u, row(u, k) ** 2, k, 0)
        return (write(v, row(u, k + 1) * np.cos(row(v, k)) + row(u, k), k + 1, 0),)

    return np.sum(turns(N - 1, turn, u)[0] * np.arange(N))


def old_beside_new_plain(u: Any) -> Any:
    for k in range(N - 1):
        old = u[k].copy()
        u[k] = old**2
        u[k + 1] = u[k + 1] * np.cos(u[k]) + old
    return np.sum(u * np.arange(N))


def prefix(u: Any) -> Any:
    def turn(k: Any, x: Any) -> Any:
        return (write(x, np.sin(read(x, k)) + read(x, k + 1), k + 1),)

    return np.sum(turns(N - 1, turn, u[0])[0] ** 2)


def prefix_plain(u: Any) -> Any:
    x = u[0]
    for k in range(1, N):
        x[k] += np.sin(x[k - 1])
    return np.sum(x**2)


def every_other_row(u: Any) -> Any:
    def turn(c: Any) -> Any:
        return c[0] + 2, c[1] + np.sum(np.sin(row(u, c[0])) * c[1])

    return tg.while_loop(lambda c: c[0] < N, turn, (0, 1.0))[1]


def every_other_row_plain(u: Any) -> Any:
    total = 1.0
    for k in range(0, N, 2):
        total += np.sum(np.sin(u[k]) * total)
    return total


PROGRAMS = [
    (gauss_seidel, gauss_seidel_plain),
    (rows_of_results, rows_of_results_plain),
    (stencil, stencil_plain),
    (swapped, swapped_plain),
    (old_beside_new, old_beside_new_plain),
    (prefix, prefix_plain),
    (every_other_row, every_other_row_plain),
]


@pytest.mark.parametrize(("f", "plain"), PROGRAMS)
def test_loops_over_windows_are_numpys_and_copy_no_array(f: Any, plain: Any) -> None:
    """But for the stencil backwards, which adds five arrays into each iteration's."""
    u, t = 0.1 * rng.normal(size=(N, N)), rng.normal(size=(N, N))
    gradient = tg.grad(f)
    second = tg.grad(lambda u: np.sum(tg.grad(f)(u) * t))
    for g in (tg.trace(f), gradient)[: 1 + (f is not stencil)]:
        assert not [kernel for kernel in g.explain(u).kernels if "copy b" in kernel]
    np.testing.assert_allclose(tg.trace(f)(u), plain(u.copy()), rtol=1e-12)
    h = 1e-5
    ahead, behind = u + h * t, u - h * t
    derivative = (plain(ahead.copy()) - plain(behind.copy())) / (2 * h)
    np.testing.assert_allclose(np.sum(gradient(u) * t), derivative, rtol=1e-6)
    np.testing.assert_allclose(second(u), (gradient(ahead) - gradient(behind)) / (2 * h), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("f", "plain"), PROGRAMS)
def test_a_batch_of_loops_over_windows(f: Any, plain: Any) -> None:
    u = 0.1 * rng.normal(size=(3, N, N))
    got = tg.trace(tg.vmap(f))(u)
    np.testing.assert_allclose(got, [plain(x.copy()) for x in u], rtol=1e-12)


def corner(x: Any, i: int, j: int) -> Any:
    return read(x, i, j, sizes=(9, 9))


# What becomes of arrays x and y, a row and two places; those that give rows come first.
STEPS = (
    lambda x, y, r, i, j, loop: row(x, i),
    lambda x, y, r, i, j, loop: x[2:3],
    lambda x, y, r, i, j, loop: r + np.sin(row(y, j)),
    lambda x, y, r, i, j, loop: write(x, r, i, 0),
    lambda x, y, r, i, j, loop: write(x, np.sin(r), j, 0),
    lambda x, y, r, i, j, loop: write(y, read(x, i, j) + 1.0, j, i),
    lambda x, y, r, i, j, loop: write(y, 0.7 * read(x, 0, i, sizes=(N, 1)), 0, j),
    lambda x, y, r, i, j, loop: write(y, corner(x, 0, 1) + corner(y, 1, 0), 1, 1),
    lambda x, y, r, i, j, loop: 0.5 * (x + y),
    lambda x, y, r, i, j, loop: x + r,
    lambda x, y, r, i, j, loop: 0.05 * (x @ y),
    lambda x, y, r, i, j, loop: turns(3, lambda k, x: (performed(loop, [x], [r * 1.0], [k, i])[-1],), x)[0],
)
Step = tuple[int, tuple[int, ...], Any]


def drawn(r: random.Random, inner: bool = False) -> tuple[Step, ...]:
    """A program of numbers of steps, and of what they are given, the last ones counted from 0."""
    return tuple(
        [
            (r.randrange(len(STEPS) - inner), tuple([r.randrange(n) for n in (4, 3, 4, 2, 2)]), inner or drawn(r, True))
            for _ in range(r.randint(4, 10))
        ]
    )


def performed(program: tuple[Step, ...], arrays: list[Any], rows: list[Any], places: list[Any]) -> list[Any]:
    for number, picks, loop in program:
        args = [xs[-1 - pick % len(xs)] for xs, pick in zip((arrays, arrays, rows, places, places), picks)]
        (rows if number < 3 else arrays).append(STEPS[number](*args, loop))
    return arrays


@pytest.mark.parametrize("seed", range(6))
def test_random_iterations_compute_the_same_whatever_is_written_in_place(seed: int) -> None:
    program = drawn(random.Random(seed))

    def turn(k: Any, x: Any, y: Any) -> Any:
        arrays = performed(program, [x, y], [row(y, k)], [k, N - 1 - k])
        return arrays[-1], arrays[-1 - seed % 3]

    def f(x: Any, y: Any) -> Any:
        return turns(3, turn, x, y)

    x, y = rng.normal(size=(2, N, N))
    for got, want in zip(tg.trace(f)(x, y), f(x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_what_is_read_elsewhere_is_not_written_over() -> None:
    def f(u: Any, v: Any) -> Any:
        w = write(u, v, 2, 0)
        return w, u + w, write(w, v, 3, 0), write(np.sin(u), v, 1, 0)

    u, v = rng.normal(size=(N, N)), rng.normal(size=(1, N))
    for got, want in zip(tg.trace(f)(u, v), f(u, v), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-14)


ROW = "dynamic_slice(%0, %1, 0) {sizes=(1, 12), step=(1, 1)} : f64[1,12]"


@pytest.mark.parametrize(
    ("body", "simpler"),
    [
        (
            f"%3 = dynamic_update_slice(%0, %2, %1, 0) {{step=(1, 1)}} : f64[9,12]\n  %4 = {ROW.replace('%0', '%3')}",
            "return %2",
        ),
        (f"%3 = {ROW}\n  %4 = dynamic_update_slice(%0, %3, %1, 0) {{step=(1, 1)}} : f64[9,12]", "return %0"),
        (
            "%3 = dynamic_slice(%0, 2, 0) {sizes=(1, 12), step=(1, 1)} : f64[1,12]\n  %4 = negative(%3) : f64[1,12]",
            "slice(%0)",
        ),
        (
            "%3 = full() {dtype='float64', shape=(9, 12), value=0.0} : f64[9,12]\n"
            "  %5 = dynamic_update_slice(%3, %2, %1, 0) {step=(1, 1)} : f64[9,12]\n"
            "  %4 = accumulate(%0, %5) : f64[9,12]",
            "dynamic_update_slice(%0, ",
        ),
    ],
    ids=["read back", "written back", "known place", "sum of cotangents"],
)
def test_simplification(body: str, simpler: str) -> None:
    graph = verify(parse(f"graph(%0: f64[9,12], %1: i64[], %2: f64[1,12]) {{\n  {body}\n  return %4\n}}"))
    after = optimize(graph)
    assert simpler in str(after)
    operands = [rng.normal(size=(9, 12)), np.array(5), rng.normal(size=(1, 12))]
    for got, want in zip(run(after, operands), run(graph, operands), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float32", "int64", "int8", "bool"])
def test_windows_of_other_dtypes(dtype: str) -> None:
    x = (3 * rng.normal(size=(4, 30))).astype(dtype)
    y = (3 * rng.normal(size=(2, 10))).astype(dtype)

    def f(x: Any, y: Any, k: Any) -> Any:
        out = dynamic_update_slice(x, y, k, k + 1, step=(2, 3))
        return out, dynamic_slice(out, k, 0, sizes=(3, 10), step=(1, 2))

    got = tg.trace(f)(x, y, np.array(1))
    want = x.copy()
    want[1:4:2, 2:32:3] = y
    for a, b in zip(got, (want, want[1:4, :20:2]), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def borders(u: Any) -> Any:
    def turn(c: Any, _: Any) -> Any:
        u, x = c[0].copy(), np.sin(c[1]) + c[0][3]
        u[0] = 0.0
        u[-1, ::2] = x[::2]
        u[:, 0] = 0.5 * u[:, 1]
        u[5, 7] += x[3]
        return (u, x), None

    (u, x), _ = tg.scan(turn, (u, u[2]), None, length=9)
    return np.sum(u**2) + np.sum(x)


def borders_plain(u: Any) -> Any:
    x = u[2].copy()
    for _ in range(9):
        x = np.sin(x) + u[3]
        u[0] = 0.0
        u[-1, ::2] = x[::2]
        u[:, 0] = 0.5 * u[:, 1]
        u[5, 7] += x[3]
    return np.sum(u**2) + np.sum(x)


def test_small_windows_at_known_places_cost_a_loop_what_they_touch() -> None:
    u, t, h = rng.normal(size=(40, 40)), rng.normal(size=(40, 40)), 1e-6
    gradient = tg.grad(borders)
    (loop,) = [kernel for kernel in tg.trace(borders).explain(u).kernels if kernel.startswith("repeat")]
    assert "guard" not in loop
    assert "copy b" not in loop
    np.testing.assert_allclose(tg.trace(borders)(u), borders_plain(u.copy()), rtol=1e-12)
    derivative = (borders_plain(u + h * t) - borders_plain(u - h * t)) / (2 * h)
    np.testing.assert_allclose(np.sum(gradient(u) * t), derivative, rtol=1e-6)


# -- what users write ----------------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(arrays_and_indices(advanced=False), st.data())
def test_integers_of_an_index_may_be_traced(case: Any, data: Any) -> None:
    x, index = case
    entries = list(index) if isinstance(index, tuple) else [index]
    at = [k for k, e in enumerate(entries) if type(e) is int]
    try:
        if not (at and x[index] is not None):
            return
    except IndexError:
        return

    def f(x: Any, *places: Any) -> Any:
        for k, place in zip(at, places):
            entries[k] = place
        index = tuple(entries)
        first, second, third = x + 0.0, x + 1.0, x + 2.0
        view = first[index]
        read = view * 1.0
        if view.ndim:
            view *= 3.0
        second[index] = -read
        third[index] -= 5.0
        first[...] = first + 1.0
        return read, view * 1.0, first, second, third

    given_ints = [entries[k] for k in at]
    graph = tg.trace(f).graph(x, *given_ints)
    assert not {"gather", "scatter_add"} & {node.name for node in graph.nodes}
    axes = index_axes(x, entries)
    for _ in range(2):
        places = [data.draw(st.integers(-x.shape[axes[k]], x.shape[axes[k]] - 1)) for k in at]
        for got, want in zip(run(graph, [x, *map(np.array, places)]), f(x.copy(), *places), strict=False):
            np.testing.assert_array_equal(got, want)


def index_axes(x: Any, entries: Any) -> dict[int, int]:
    """The axis of `x` that each entry of a basic index picks from."""
    dots = next((k for k, e in enumerate(entries) if e is Ellipsis), len(entries))
    front = [k for k in range(dots) if entries[k] is not None]
    back = [k for k in range(dots + 1, len(entries)) if entries[k] is not None]
    return dict(zip(front, range(len(front)))) | dict(zip(back, range(x.ndim - len(back), x.ndim)))


@pytest.mark.parametrize("kind", [int, np.int64, np.int32, lambda k: np.array(k)])
def test_what_a_traced_index_picks_shares_memory_as_in_numpy(kind: Any) -> None:
    def f(x: Any, k: Any) -> Any:
        y = x * 2.0
        row, block = y[k], y[k, 1:][::-1]
        row[0] = -1.0
        y[k - 1, 1] = 7.0
        block += 1.0
        x[k] += 1.0
        copy = y[np.array(0) + k]
        return y, row, block, x[k], y[k, 0], copy[1:]

    traced = tg.trace(f)
    for k in (1, 0, 2, -1, -2):
        own, theirs = np.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(3, 4)
        got, want = traced(own, kind(k)), f(theirs, kind(k))
        np.testing.assert_array_equal(own, theirs)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)
            assert np.shares_memory(a, own) == np.shares_memory(b, theirs)
            assert np.shares_memory(a, got[0]) == np.shares_memory(b, want[0])
        got[1][...], want[1][...] = 100.0, 100.0
        np.testing.assert_array_equal(got[0], want[0])
    assert traced.cache_info().traces <= 2


def test_a_place_stays_what_it_was_when_the_array_that_it_was_read_from_changes() -> None:
    def f(x: Any) -> Any:
        row = x[int(x[0, 0])]
        x[0, 0] = 2.0
        row += 10.0
        return row * 1.0, x

    x = np.ones((3, 4))
    for a, b in zip(tg.trace(f)(x.copy()), f(x.copy()), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_traced_index_out_of_range_raises_at_the_line_of_the_user() -> None:
    def read(x: Any, k: Any) -> Any:
        return np.sum(x[k])

    def update(x: Any, k: Any) -> Any:
        x[k, 1] = 0.0

    def unused(x: Any, k: Any) -> Any:
        x[k]
        return x * 2.0

    def caught(x: Any, k: Any) -> Any:
        try:
            return x[k] * 1.0
        except IndexError:
            return x[0] * 0.0

    def in_a_loop(x: Any, k: Any) -> Any:
        return tg.fori_loop(0, k, lambda i, s: s + np.sum(x[i]), 0.0)

    for f in (read, update, unused, tg.grad(read), in_a_loop):
        traced = tg.trace(f)
        x = np.ones((3, 4))
        traced(x, 2)
        for k in (4, -4)[: 1 + (f is not in_a_loop)]:
            before = x.copy()
            with pytest.raises(IndexError, match="out of bounds for axis 0 with size 3"):
                traced(x, k)
            np.testing.assert_array_equal(x, before)
    traced = tg.trace(caught)
    for k in (1, 3, 2, -4):
        np.testing.assert_array_equal(traced(x, k), caught(x, k))


def _written(n: int, k: Any) -> Any:
    x = np.ones(n)
    x[k] = 1.0
    return x


@pytest.mark.parametrize(
    ("size", "read"),
    [
        (3, lambda k: np.ones(3)[k]),
        (3, lambda k: np.full((3, 2), 2.0)[k]),
        (1, lambda k: np.array([5.0])[k]),
        (3, lambda k: _written(3, k)),
        (1, lambda k: _written(1, k)),
    ],
)
def test_indices_are_checked_where_all_elements_are_the_same(size: int, read: Any) -> None:
    f = tg.trace(read)
    np.testing.assert_array_equal(f(np.array(size - 1)), read(size - 1))
    for k in (size, -size - 1):
        with pytest.raises(IndexError, match=f"index {k} is out of bounds for axis 0 with size {size}"):
            f(np.array(k))


def test_loops_of_control_functions_read_and_write_by_their_counter() -> None:
    def cholesky(a: Any) -> Any:
        n = a.shape[0]
        below = np.arange(n)

        def column(k: Any, a: Any) -> Any:
            c = a[:, k] / np.sqrt(a[k, k])
            rest = c * (below > k)
            a = a - rest[:, None] * rest[None, :]
            a[:, k] = c * (below >= k)
            return a

        return np.sum(np.tril(tg.fori_loop(0, n, column, a)))

    m = rng.normal(size=(12, 12))
    a = m @ m.T + 12 * np.eye(12)
    np.testing.assert_allclose(tg.trace(cholesky)(a), np.sum(np.linalg.cholesky(a)), rtol=1e-12)
    t, h = rng.normal(size=(12, 12)), 1e-6
    derivative = (cholesky(a + h * t) - cholesky(a - h * t)) / (2 * h)
    np.testing.assert_allclose(np.sum(tg.grad(cholesky)(a) * t), derivative, rtol=1e-6)


def test_literals_are_added_to_windows_of_what_has_been_added_up() -> None:
    def fun(x: Any, a: int) -> Any:
        e = x.reshape(8, 5)
        s = e[0].copy()
        for i in range(1, 8):
            new = np.zeros(5)
            new[a] = s[a] + np.sin(e[i, a])
            new[0] = s[0] + e[i, 0]
            s = new
        p = s[a]
        for i in range(7, 0, -1):
            p = p + 0.1 * e[i - 1, a] + e[i - 1, (a + 1) % 5]
        return p

    x, direction = np.random.default_rng(0).uniform(0, 1, (2, 8, 5))
    for a in (1, 2):
        along = (fun(x + 1e-6 * direction, a) - fun(x - 1e-6 * direction, a)) / 2e-6
        np.testing.assert_allclose(np.sum(tg.grad(fun)(x, a) * direction), along, rtol=1e-8)


def test_tensors_are_picked_and_written_by_traced_indices() -> None:
    def f(x: Any, k: Any) -> Any:
        y = x * 2.0
        row = y[k]
        row.mul_(3.0)
        y[k - 1, 1:] = 7.0
        return (y**2).sum() + y[k].exp().sum()

    traced = tg.trace(f)
    x = tg.tensor(0.1 * rng.normal(size=(3, 4)), requires_grad=True)
    for k in (1, 0, -1, tg.tensor(2), tg.tensor(-2)):
        derivatives = []
        for g in (traced, f):
            x.grad = None
            g(x, k).backward()
            derivatives.append(x.grad.numpy())
        np.testing.assert_allclose(*derivatives, rtol=1e-12)
    assert traced.cache_info().traces == 2
