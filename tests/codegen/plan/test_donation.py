"""Arguments that are given away: results in their memory, with the values that they have without, or not at all."""

from __future__ import annotations

import functools
import gc
import sys

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import located

rng = np.random.default_rng(0)
X = rng.standard_normal((50, 30))


def owned(*shape, dtype="f8"):
    return np.array(rng.standard_normal(shape).astype(dtype))


def loss(p, x):
    return np.mean(np.tanh(x @ p["w"] + p["b"]) ** 2)


def descend(p, x):
    g = tg.grad(loss)(p, x)
    return {"w": p["w"] - 0.1 * g["w"], "b": p["b"] - 0.1 * g["b"]}


def parameters():
    return {"w": owned(30, 20), "b": owned(20)}


def warm(f, *args):
    """The results of two calls, of which the second gives its arguments away; on copies."""
    for _ in range(2):
        copies = [tg.tree.map(lambda x: np.array(x), a) for a in args]
        result = f(*copies)
    return result, copies


def near(a, b):
    """Sums are made in another order where rows are cut into other strips; nothing else may differ."""
    small = 1e-12 if a.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(a, b, rtol=small, atol=small)


def test_results_are_the_arrays_that_were_given_away():
    step, plain = tg.trace(descend, donate_argnums=0), tg.trace(descend)
    p = q = parameters()
    for k in range(5):
        old, p, q = p, step(p, X), plain(q, X)
        for name in p:
            assert (p[name] is old[name]) == (k > 0)
            near(p[name], q[name])


def test_the_first_arguments_are_as_they_were_after_the_first_call():
    p = parameters()
    before = tg.tree.map(np.copy, p)
    tg.trace(descend, donate_argnums=0)(p, X)
    assert all(np.array_equal(p[k], before[k]) for k in p)


def adam(state, x):
    g = tg.grad(loss)(state["p"], x)
    t = state["t"] + 1.0
    m = tg.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], g)
    v = tg.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], g)
    p = tg.tree.map(lambda p, m, v: p - 0.01 * m / (np.sqrt(v / (1 - 0.99**t)) + 1e-8), state["p"], m, v)
    return {"p": p, "m": m, "v": v, "t": t}


def test_a_state_of_many_arrays_stays_where_it_is():
    step = tg.trace(adam, donate_argnums=0)

    def begin():
        p = {"w": np.full((30, 20), 0.1), "b": np.full(20, 0.2)}
        return {"p": p, "m": tg.tree.map(np.zeros_like, p), "v": tg.tree.map(np.zeros_like, p), "t": 0.0}

    ours, theirs = begin(), begin()
    for k in range(4):
        old, ours, theirs = ours, step(ours, X), adam(theirs, X)
        arrays = {id(x) for x in tg.tree.leaves(old) if np.ndim(x)}
        if k > 1:  # before, the time is a Python number, and a call of another kind
            assert {id(x) for x in tg.tree.leaves(ours) if np.ndim(x)} == arrays
        for a, b in zip(tg.tree.leaves(ours), tg.tree.leaves(theirs)):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-14)


# Functions of one array whose result has its shape, which need old elements in various orders.
FUNCTIONS = {
    "elementwise": (lambda x: np.sin(x) * 2 + x, True),
    "row sums": (lambda x: x - x.sum(axis=1, keepdims=True), None),
    "column sums": (lambda x: x - x.sum(axis=0), None),
    "softmax": (lambda x: np.exp(x - x.max(1)[:, None]) / np.exp(x - x.max(1)[:, None]).sum(1)[:, None], None),
    "all": (lambda x: x / np.sqrt(np.sum(x * x)), True),
    "reversed": (lambda x: x[::-1] + x, False),
    "neighbours": (lambda x: x + np.roll(x, 1, axis=0), False),
    "transposed": (lambda x: x.T + x, False),
    "product": (lambda x: x @ x, False),
    "added product": (lambda x: x - 0.1 * (x @ x), None),
    "sorted": (lambda x: np.sort(x) + x, None),
    "part": (lambda x: np.where(np.arange(64) < 3, x * 2, x), True),
    "the same": (lambda x: x, None),
    "gathered": (lambda x: x[np.arange(64)[::-1]] * 2, False),
    "cumulative": (lambda x: np.cumsum(x, axis=0) * 0.5, None),
}


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_written_over_is_not_needed_any_more(name, dtype):
    f, in_place = FUNCTIONS[name]
    x = owned(64, 64, dtype=dtype)
    result, (args,) = warm(tg.trace(f, donate_argnums=0), x)
    near(result, tg.trace(f)(x))
    if in_place is not None:
        assert (result is args) == in_place
    if result is not args:
        np.testing.assert_array_equal(args, x)


@pytest.mark.parametrize("size", [(1000, 700), (64, 40_000)])
@pytest.mark.parametrize("name", ["row sums", "column sums", "softmax", "all"])
def test_so_it_is_where_threads_share_the_work(name, size):
    f, _ = FUNCTIONS[name]
    x = owned(*size)
    result, _ = warm(tg.trace(f, donate_argnums=0), x)
    near(result, tg.trace(f)(x))


def test_a_chain_too_long_for_one_kernel_may_be_written_over_its_argument():
    def f(x):
        y = x
        for _ in range(40):
            y = np.sin(y) + np.cos(x) * y
        return y + x, np.exp(-y) * x

    x = owned(300_000)
    result, _ = warm(tg.trace(f, donate_argnums=0), x)
    for a, b in zip(result, tg.trace(f)(x)):
        near(a, b)


def test_two_results_do_not_get_one_array():
    f = tg.trace(lambda x, y: (x + y, x - y, x * y), donate_argnums=(0, 1))
    x, y = owned(100), owned(100)
    results, args = warm(f, x, y)
    for a, b in zip(results, (x + y, x - y, x * y)):
        np.testing.assert_array_equal(a, b)
    assert len({id(r) for r in results}) == 3
    assert sum(any(r is g for g in args) for r in results) <= 2


def test_a_loop_may_run_in_the_array_that_was_given_away():
    @functools.partial(tg.trace, donate_argnums=0)
    def heat(u):
        for _ in range(50):
            u = u + 0.1 * (np.roll(u, 1) - 2 * u + np.roll(u, -1))
        return u

    u = owned(500)
    result, _ = warm(heat, u)
    np.testing.assert_array_equal(result, tg.trace(heat.fun)(u))


# -- what is not given away ------------------------------------------------------------------------------------
def double(x, y=None):
    return x * 2 + (0 if y is None else y)


def refused(f, *args):
    """Warm calls give right results, and leave what they were given as it was."""
    wanted = f.fun(*args)
    for _ in range(4):
        before = [np.copy(a) for a in args]
        result = f(*args)
        np.testing.assert_allclose(result, wanted)
        assert not any(result is a or np.shares_memory(result, a) for a in args)
        assert all(np.array_equal(a, b) for a, b in zip(args, before))


def test_views_are_not_overwritten():
    f = tg.trace(double, donate_argnums=0)
    f(owned(10))
    whole = owned(3, 10)
    refused(f, whole[1])
    refused(f, np.arange(10.0).reshape(10))


def test_read_only_arrays_are_not_overwritten():
    f = tg.trace(double, donate_argnums=0)
    f(owned(10))
    x = owned(10)
    x.flags.writeable = False
    refused(f, x)


def test_arrays_that_are_also_another_argument_are_not_overwritten():
    f = tg.trace(double, donate_argnums=0)
    f(owned(10), owned(10))
    x = owned(10)
    refused(f, x, x)
    long = owned(20)
    g = tg.trace(lambda x, y: x * 2 + y.sum(), donate_argnums=0)
    g(owned(20), owned(10))
    refused(g, long, long[5:15])


def test_one_array_that_is_given_away_twice_is_not_overwritten():
    f = tg.trace(lambda x, y: x - 2 * y, donate_argnums=(0, 1))
    f(owned(10), owned(10))
    x = owned(10)
    refused(f, x, x)


SHARED = owned(10)


def test_arrays_that_the_function_reads_from_outside_are_not_overwritten():
    f = tg.trace(lambda x: x * SHARED, donate_argnums=0)
    f(owned(10))
    refused(f, SHARED)


def test_what_follows_views_is_given_away_again():
    f = tg.trace(double, donate_argnums=0)
    f(owned(10))
    for _ in range(30):
        f(np.arange(10.0).reshape(10))
    x = owned(10)
    assert f(x) is x


def test_nothing_is_given_away_where_values_are_asked_for():
    f = tg.trace(lambda x: x * 2 if x.sum() > 0 else x - 1, donate_argnums=0)
    f(np.ones(10)), f(-np.ones(10))
    refused(f, np.ones(10))
    refused(f, -np.ones(10))


def test_nothing_is_given_away_where_something_can_fail_later():
    f = tg.trace(lambda x, i: (x * 2, x[i]), donate_argnums=0)
    for _ in range(3):
        f(owned(10), np.array([1, 2]))
    x = owned(10)
    before = x.copy()
    with pytest.raises(IndexError):
        f(x, np.array([1, 12]))
    np.testing.assert_array_equal(x, before)


def test_a_call_that_fails_before_leaves_its_arguments():
    f = tg.trace(lambda a, x: x + np.linalg.solve(a, x), donate_argnums=1)
    for _ in range(3):
        x = owned(20)
        result = f(np.eye(20), x)
    assert result is x
    x = owned(20)
    before, count = x.copy(), sys.getrefcount(x)
    with pytest.raises(np.linalg.LinAlgError):
        f(np.zeros((20, 20)), x)
    gc.collect()
    np.testing.assert_array_equal(x, before)
    assert sys.getrefcount(x) == count


def test_what_python_computes_otherwise_is_found_before_anything_is_overwritten():
    f = tg.trace(lambda x, t: x * 2.0**t, donate_argnums=0)
    for _ in range(3):
        x = owned(20)
        wanted = x * 8
        result = f(x, 3.0)
    assert result is x
    np.testing.assert_array_equal(result, wanted)
    x = owned(20)
    before = x.copy()
    with pytest.raises(OverflowError):  # of Python's floats
        f(x, 2000.0)
    np.testing.assert_array_equal(x, before)


def test_arrays_that_are_written_to_are_not_given_away():
    @functools.partial(tg.trace, donate_argnums=0)
    def f(x):
        x += 1
        return x * 2

    for _ in range(3):
        x = owned(10)
        before = x.copy()
        result = f(x)
        np.testing.assert_array_equal(x, before + 1)
        np.testing.assert_array_equal(result, 2 * (before + 1))


def test_what_a_call_leaves_behind_is_that_of_the_call():
    seen = []

    @functools.partial(tg.trace, donate_argnums=0)
    def f(x):
        seen.append(x.sum())
        return x + 1

    for k in range(4):
        x = owned(10)
        total = x.sum()
        assert (f(x) is x) == (k > 0)
        assert np.isclose(seen[k], total)


def test_other_shapes_and_dtypes_have_no_result_that_fits():
    f = tg.trace(lambda x: (x[:5] * 2, x.astype("f4"), x.sum()), donate_argnums=0)
    x = owned(10)
    results, (args,) = warm(f, x)
    assert all(r is not args for r in results)
    np.testing.assert_array_equal(args, x)


def test_looking_at_a_function_overwrites_nothing():
    f = tg.trace(double, donate_argnums=0)
    for _ in range(3):
        f(owned(10))
    x = owned(10)
    before = x.copy()
    f.explain(x), f.graph(x), f.profile(x)
    np.testing.assert_array_equal(x, before)


def test_within_other_transforms_nothing_is_given_away():
    f = tg.trace(lambda x: (x * x).sum(), donate_argnums=0)
    x = owned(10)
    before = x.copy()
    g = tg.grad(f)
    for _ in range(3):
        np.testing.assert_allclose(g(x), 2 * before)
    h = tg.trace(lambda x: tg.trace(double, donate_argnums=0)(x) + x)
    for _ in range(3):
        np.testing.assert_allclose(h(x), 3 * before)
    np.testing.assert_array_equal(x, before)


def test_tensors_are_not_overwritten():
    f = tg.trace(double, donate_argnums=0)
    x = tg.tensor(np.ones(10), requires_grad=True)
    for _ in range(3):
        f(x).sum().backward()
    assert np.array_equal(x.detach().numpy(), np.ones(10))
    assert np.array_equal(x.grad.numpy(), np.full(10, 6.0))


# -- how it is said --------------------------------------------------------------------------------------------
def test_names_keywords_and_decorators():
    @tg.trace(donate_argnames=("x", "z"))
    def f(x, y, *, z):
        return x + y, z - y

    for _ in range(3):
        x, z = owned(10), owned(10)
        wanted = x + 1.5, z - 1.5
        results = f(x, 1.5, z=z)
    assert [a is b for a, b in zip(results, (x, z))] == [True, True]
    np.testing.assert_array_equal(results, wanted)
    for _ in range(3):
        x, z = owned(10), owned(10)
        results = f(y=1.5, z=z, x=x)
    assert results[0] is x


def test_positions_count_static_arguments_and_may_be_negative():
    f = tg.trace(lambda n, x, y: x**n + y, static_argnums=0, donate_argnums=-1)
    for _ in range(3):
        x, y = owned(10), owned(10)
        before = x.copy()
        result = f(2, x, y)
    assert result is y
    np.testing.assert_array_equal(x, before)


def test_methods_count_self():
    class Model:
        rate = 0.5

        @functools.partial(tg.trace, donate_argnums=1)
        def step(self, x):
            return x * self.rate

    model = Model()
    for _ in range(3):
        x = owned(10)
        wanted = x * 0.5
        result = model.step(x)
    assert result is x
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"donate_argnums": 2}, ValueError, "donate_argnums: .* has no positional parameter 2"),
        ({"donate_argnums": -3}, ValueError, "donate_argnums: .* has no positional parameter -3"),
        ({"donate_argnums": "x"}, TypeError, "donate_argnums: expected int, got 'x'"),
        ({"donate_argnums": (0, 1.0)}, TypeError, "donate_argnums: expected int, got 1.0"),
        ({"donate_argnames": "z"}, ValueError, "donate_argnames: .* has no parameter 'z'"),
        ({"donate_argnames": (0,)}, TypeError, "donate_argnames: expected str, got 0"),
        ({"donate_argnums": 0, "static_argnums": 0}, ValueError, "is static"),
        ({"donate_argnums": 1, "static_argnames": "y"}, ValueError, "is static"),
    ],
)
def test_what_cannot_be_given_away_is_an_error(options, error, said):
    with pytest.raises(error, match=said) as raised:
        tg.trace(double, **options)
    assert located("") in str(raised.value) or __file__ in str(raised.value)
