"""Arrays in traced functions that no argument reaches: NumPy computes them, and the program has them as constants."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest
from finite_differences import gradient_of

import tracegrad as tg
from tracegrad.trace.values import array_creation

X = np.array([0.5, 1.5, -0.3, 0.8])
N = 24


# -- programs that make tables ---------------------------------------------------------------------
def transform_by_loops(x):
    table = np.zeros((N, 4))
    for i in range(N):
        for j in range(4):
            table[i, j] = np.cos(np.pi * i * (j + 0.5) / N)
    table[0] *= np.sqrt(0.5)
    return np.sum((table @ x) ** 2)


def transform_by_outer(x):
    k = np.arange(4)
    table = np.cos(np.pi / 4 * np.outer(k, k + 0.5))
    table[0] *= np.sqrt(0.5)
    return np.sum((table @ x) ** 2)


def indices_by_loops(x):
    at = np.zeros((N, N), dtype=int)
    for i in range(N):
        for j in range(N):
            at[i, j] = (i * 7 + j * 3) % 4
    return np.sum(np.sin(x[at]) * np.arange(N))


def assembly(x):
    ends = np.array([[e, e + 1] for e in range(N)])
    stiffness, element = np.zeros((N + 1, N + 1)), np.array([[1.0, -1.0], [-1.0, 1.0]])
    for e in range(N):
        stiffness[np.ix_(ends[e], ends[e])] += element
    u = np.linspace(0.0, 1.0, N + 1) ** 2 * x[0] + x[1]
    return 0.5 * u @ stiffness @ u


def assembly_of_values(x):
    ends = np.array([[e, e + 1] for e in range(N)])
    stiffness, element = np.zeros((N + 1, N + 1)), np.array([[1.0, -1.0], [-1.0, 1.0]])
    for e in range(N):
        stiffness[np.ix_(ends[e], ends[e])] += element * (1.0 + x[e % 4] ** 2)
    u = np.linspace(0.0, 1.0, N + 1) ** 2
    return 0.5 * u @ stiffness @ u


def recurrence(x):
    table = np.ones((N, 4))
    table[1] = np.linspace(-1.0, 1.0, 4)
    for k in range(2, N):
        table[k] = 2.0 * table[1] * table[k - 1] - table[k - 2]
    return np.sum(np.tanh(table @ x))


def twiddles(x):
    real, imaginary = np.empty((4, 4)), np.empty((4, 4))
    for k in range(4):
        for t in range(4):
            real[k, t], imaginary[k, t] = np.cos(-np.pi * k * t / 2), np.sin(-np.pi * k * t / 2)
    return np.sum((real @ x) ** 2 + (imaginary @ x) ** 2 * np.arange(4))


def questions(x):
    table, s = np.tri(4), 0.0
    for i in range(4):
        for j in range(4):
            if table[i, j] > 0:
                s = s + x[i] * x[j]
    while table.sum() > 5:
        table[table > 0.5] = 0.25
        s = s * 1.5
    return s if np.all(table < 1) else -s


def masks(x):
    odd = np.arange(4) % 2 == 1
    return np.sum(x[odd] ** 2) + np.sum(np.where(odd, x, 0.5))


def grid(x):
    a, b = np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 1, 3))
    return np.sum(np.sin(a * b) * x)


TABLES = [
    transform_by_loops,
    transform_by_outer,
    indices_by_loops,
    assembly,
    assembly_of_values,
    recurrence,
    twiddles,
    questions,
    masks,
    grid,
]


@pytest.mark.parametrize("f", TABLES, ids=lambda f: f.__name__)
def test_tables_have_the_values_of_numpy(f):
    g = tg.value_and_grad(f)
    for x in (X, X * 1.3):
        value, gradient = g(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-12)
        np.testing.assert_allclose(gradient, gradient_of(f, x), rtol=1e-5, atol=1e-6)
    assert g.cache_info().traces == 1


@pytest.mark.parametrize("f", [f for f in TABLES if f is not assembly_of_values], ids=lambda f: f.__name__)
def test_what_numpy_computes_is_not_in_the_program(f):
    graph = tg.trace(f).explain(X).graph
    assert not {"cos", "power", "dynamic_update_slice", "scatter"} & {n.op.name for n in graph.nodes}
    assert len(graph.nodes) < 30


def test_a_constant_is_what_numpy_computes_to_the_bit():
    def table(x=None):
        k = np.arange(50)
        result = np.exp(np.sin(np.outer(k, k)) / 3.0) ** 1.7
        return result if x is None else result * x

    assert tg.trace(table)(1.0).tobytes() == table().tobytes()


def test_questions_leave_no_guard():
    assert not tg.trace(questions).explain(X).value_guards


def test_equal_constants_are_one():
    def f(x):
        return np.cos(np.arange(4.0)) @ x + np.sum(np.cos(np.arange(4.0)) * x**2) * np.cos(np.arange(4.0))[1]

    assert len(tg.trace(f).explain(X).graph.inputs) == 2


def test_what_is_one_value_everywhere_is_no_array():
    def f(x):
        a = np.zeros(4)
        for i in range(4):
            a[i] = 2.5
        return (np.ones((4, 4)) * 3.0)[0] * a * x

    assert len(tg.trace(f).explain(X).graph.inputs) == 1


def test_large_ranges_stay_nodes():
    def f(x):
        return np.sum(np.arange(array_creation.MAX_CREATED + 1.0) * x)

    graph = tg.trace(f).explain(2.0).graph
    assert len(graph.inputs) == 1
    assert "arange" in [n.op.name for n in graph.nodes]
    np.testing.assert_allclose(tg.trace(f)(2.0), f(2.0))


def test_captured_arrays_are_read_at_each_call():
    weights = np.ones(4)

    @tg.trace
    def f(x):
        return np.sum(np.arange(4.0) * weights) * x

    assert f(1.0) == 6.0
    weights[3] = 3.0
    assert f(1.0) == 12.0


def test_another_constant_in_each_iteration_of_a_long_loop_is_none():
    def f(x):
        s = 0.0
        for k in range(60):
            s = s + np.cos(np.arange(4) * k * 0.1) @ x
        return s

    assert len(tg.trace(f).explain(X).graph.inputs) < 5
    np.testing.assert_allclose(tg.grad(f)(X), gradient_of(f, X), rtol=1e-5)


def test_tables_are_filled_in_loops_over_values():
    def f(x):
        table, k, s = np.zeros(10), 0, x[0]
        while s < 5.0:
            table[k % 10] = k
            s, k = s * 1.3, k + 1
        return s + table.sum() + np.sum(table * x[1])

    g = tg.value_and_grad(f)
    for x in (X, X * 1.1, X * 3, X * 0.2):
        value, gradient = g(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-12)
        np.testing.assert_allclose(gradient, gradient_of(f, x), rtol=1e-5, atol=1e-6)


def test_elements_that_loops_change_are_values_of_the_trace():
    def f(x):
        s, n = np.zeros(3)[0], np.arange(4)[0]
        while s < np.sum(x**2):
            s, n = s + 0.3, n + 1
        return s * x[0] + n

    g = tg.trace(f)
    for k in (1.0, 2.0, 3.0, 0.1, 0.0, 5.0):
        np.testing.assert_allclose(g(X * k), f(X * k), rtol=1e-12)
    assert g.cache_info().traces <= 2


# -- what is kept, and handed out ------------------------------------------------------------------
def test_constants_that_are_returned_are_new_arrays():
    def f(x):
        table = np.cos(np.arange(8.0)).reshape(2, 4)
        return table, table[0], np.arange(3), x

    g = tg.trace(f)
    for _ in range(3):
        table, row, count, x = g(X)
        np.testing.assert_array_equal(table, np.cos(np.arange(8.0)).reshape(2, 4))
        np.testing.assert_array_equal(count, np.arange(3))
        table[0, 1], count[1] = 5.0, 7
        assert row[1] == 5.0
        assert x is X


def test_constants_that_are_kept_outside_are_arrays():
    saved: dict[str, Any] = {}

    @tg.trace
    def f(x):
        if "table" not in saved:
            saved["table"] = np.cos(np.arange(4.0))
        return saved["table"] @ x

    for _ in range(3):
        np.testing.assert_allclose(f(X), np.cos(np.arange(4.0)) @ X)
    assert type(saved["table"]) is np.ndarray
    saved["table"][0] = 7.0
    np.testing.assert_allclose(f(X), saved["table"] @ X)


def test_objects_update_their_tables():
    class Model:
        def __init__(self):
            self.table = None

        def __call__(self, x):
            if self.table is None:
                self.table = np.linspace(0.0, 1.0, 4)
            self.table[1] += 1.0
            return np.sum(self.table * x)

    model, other = tg.trace(Model()), Model()
    for _ in range(4):
        np.testing.assert_allclose(model(X), other(X))


def test_functions_with_a_cache_make_tables():
    @functools.lru_cache
    def table(n):
        result = np.zeros((n, n))
        for i in range(n):
            for j in range(n):
                result[i, j] = np.cos(i * j)
        return result

    g = tg.trace(lambda x: table(4) @ x)
    for _ in range(3):
        np.testing.assert_allclose(g(X), table(4) @ X)


def test_loop_bodies_and_derivatives_take_constants_from_outside():
    def f(x):
        table = np.cos(np.arange(4.0))
        y = tg.fori_loop(0, 5, lambda i, c: c * 0.9 + table * x[0], x)
        z = tg.vmap(lambda a: np.sum(np.sin(a * table) * np.linspace(0, 1, 4)))(y)
        return np.sum(z) + np.sum(tg.grad(lambda a: np.sum(np.sin(a * table) ** 2))(y) * table)

    def plain(x):
        table, y = np.cos(np.arange(4.0)), x
        for _ in range(5):
            y = y * 0.9 + table * x[0]
        z = [np.sum(np.sin(a * table) * np.linspace(0, 1, 4)) for a in y]
        return np.sum(z) + np.sum(table**2 * np.sin(2 * y * table))

    np.testing.assert_allclose(tg.trace(f)(X), plain(X), rtol=1e-12)
    np.testing.assert_allclose(tg.grad(f)(X), gradient_of(plain, X), rtol=1e-5)


def test_an_array_of_constants_may_be_differentiated():
    def f(x):
        return np.sum(tg.grad(lambda a: np.sum(np.sin(a) ** 2 * x))(np.arange(4.0)))

    np.testing.assert_allclose(tg.trace(f)(X), np.sum(np.sin(2 * np.arange(4.0)) * X), rtol=1e-12)


def test_results_are_written_where_they_are_wanted():
    def f(x):
        a, b, c = np.arange(4.0), np.zeros(4), np.ones(4)
        d = a[1:] * x[0]
        np.cumsum(a, out=b)
        e = b * x[1]
        np.add(a, x, out=c)
        np.clip(b, 1.0, 2.0, out=b)
        np.multiply(a, 2.0, a)
        a.clip(0.0, 3.0, out=a)
        return [a, b, c, d, e]

    for result, expected in zip(tg.trace(f)(X), f(X)):
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_elements_are_put_together_again():
    def f(x):
        table = np.cos(np.arange(4.0))
        a, b = np.concatenate([[table[0], table[1]], [2.0]]), np.stack([table[2], table[3]])
        a[0] = x[0]
        b += x[1]
        c = np.atleast_1d(table[0])
        c[0] *= x[2]
        return [a, b, c, table]

    for result, expected in zip(tg.trace(f)(X), f(X)):
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_errors_are_those_of_numpy():
    def f(x):
        table = np.zeros(3)
        table[5] = 1.0
        return x * table

    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        tg.trace(f)(1.0)

    def g(x):
        try:
            np.zeros(3)[5] = 1.0
        except IndexError:
            return x * 2
        return x

    assert tg.trace(g)(1.0) == 2.0


# -- who shares memory with whom -------------------------------------------------------------------
MADE = """
np.zeros((3, 4)); np.arange(12).reshape(3, 4); np.arange(12.0).reshape(4, 3).T; np.ones((3, 4)); np.eye(3, 4)
np.array([[1.0, 2.0, 3.0, 4.0], [0.5, 0.25, 0.0, 1.0], [3.0, 1.0, 4.0, 1.0]]); np.linspace(0, 1, 12).reshape(3, 4)
np.full((3, 4), 2.5); np.asfortranarray(np.arange(12.0).reshape(3, 4)); np.outer(np.arange(3.0), np.arange(4))
"""
VIEWS = """
{a}[1:]; {a}[:, ::2]; {a}.T; {a}[1]; {a}.reshape(4, 3); {a}.ravel(); {a}[::-1]; {a}[...]; np.swapaxes({a}, 0, 1)
{a}[None]; np.asarray({a}); {a}.T[1:].T; np.squeeze({a}[None]); np.split({a}, 2, axis=-1)[1]; {a}.view()
"""
OTHERS = """
np.cos({a}); {a} * 2.0 + 1; np.sum({a}, axis=0); {a}.copy(); {a}.astype(float); np.array({a}); {a} @ np.ones(4)
np.where({a} > 1, {a}, 0.5); np.concatenate([{a}, {a}]); 2.0 / ({a} + 10)
{a} * x[0]; {a} + x[1]; np.sum({a} * x[2]); x[0] - {a}
"""
WRITES = """
{a}[0] = 5.0; {a}[-1] = 3; {a} += 1; {a} *= 2; {a}[{a} > 2] = 1; np.add.at({a}, 0, 1); np.copyto({a}, 2); {a}.fill(1.5)
np.negative({a}, out={a}); {a}[0] = x[0]; {a} += x[1]; {a}[..., 0] = x[2] * 2; {a}[1:] *= x[0]
"""


def several(text: str) -> list[str]:
    return [x.strip() for line in text.strip().splitlines() for x in line.split(";")]


def program(seed: int) -> Any:
    """A function that makes arrays of constants, views of them, and writes to both what is traced and what is not."""
    rng, lines, names = random.Random(seed), ["def f(x):"], []

    def new(text: str) -> None:
        names.append(f"v{len(names)}")
        lines.append(f"    {names[-1]} = {text}")

    new(rng.choice(several(MADE)))
    for _ in range(rng.randint(4, 12)):
        name = rng.choice(names)
        kind = rng.choice([MADE, VIEWS, VIEWS, OTHERS, WRITES, WRITES])
        text = rng.choice(several(kind)).format(a=name)
        if kind is WRITES:
            lines.append(f"    {text}")
        else:
            new(text)
    lines.append(f"    return [{', '.join(names)}]")
    space: dict[str, Any] = {"np": np}
    exec("\n".join(lines), space)
    return space["f"]


def outcome(f: Any) -> Any:
    try:
        result = f(X.copy())
    except (ValueError, IndexError, TypeError) as error:
        return type(error)
    shared = [[np.shares_memory(a, b) for a in result] for b in result]
    return [(type(a), np.shape(a), np.asarray(a).dtype) for a in result], shared, result


@pytest.mark.parametrize("seed", range(150))
def test_memory_is_shared_as_in_numpy(seed):
    f = program(seed)
    expected = outcome(f)
    result = outcome(tg.trace(f))
    if isinstance(expected, type):
        assert issubclass(result, expected)
        return
    assert result[:2] == expected[:2]
    for x, y in zip(result[2], expected[2]):
        np.testing.assert_allclose(x, y, rtol=1e-12)
