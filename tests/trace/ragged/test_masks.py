"""Masks and shapes that depend on values: what NumPy gives, for each count, and derivatives of both orders."""

import numpy as np
import pytest
from along import replayed

import tracegrad as tg
from tracegrad.runtime.execution.program import machine_code_count


def replaced(x, mask, value):
    y = x * 2.0
    y[mask] = value
    return y


def added(x):
    y = x * 2.0
    y[y > 0] += x[x > 0] ** 2
    y[y < 0] *= 3.0
    return y


def clipped_rows(x):
    m = x.reshape(-1, 3).copy()
    m[m.sum(1) > 0, 1:] *= 2.0
    m[:, x[:3] > 0] -= 1.0
    m[0, m[0] > 0.5] = -x[0]
    return m


def by_parts(x):
    return np.concatenate([x[x > 0] ** 2, x[x <= 0]])


def uniques(x):
    values, first, inverse, counts = np.unique(np.round(x), True, True, True)
    return values * counts + first, values[inverse], x[first]


# Functions of a vector of 12 elements, whose results have a shape that depends on values.
SHAPED = {
    "x[mask]": lambda x: x[x > 0] * 3.0,
    "x[~mask]": lambda x: np.exp(x[~(x > 0)]),
    "of a matrix": lambda x: x.reshape(3, 4)[x.reshape(3, 4) > 0] ** 2,
    "rows": lambda x: x.reshape(6, 2)[x.reshape(6, 2).sum(1) > 0],
    "columns": lambda x: np.sin(x.reshape(3, 4)[:, x[:4] > 0]),
    "beside an integer": lambda x: x.reshape(3, 4)[x[:3] > 0, 1],
    "integer apart": lambda x: x.reshape(2, 2, 3)[0, :, x[:3] > 0],
    "after ellipsis": lambda x: x.reshape(2, 2, 3)[..., x[:3] > 0],
    "new axis": lambda x: x[None, x > 0],
    "mask of a choice": lambda x: x[x > 0][x[x > 0] > 0.5],
    "element of a choice": lambda x: x[x > 0][0] + x[x > 0][-1],
    "slice of a choice": lambda x: x[x > 0][1:],
    "reversed choice": lambda x: x[x > 0][::-1],
    "column of a choice": lambda x: x[x > 0][:, None] * x[:2],
    "sorted choice": lambda x: np.sort(x[x > 0]),
    "two masks": lambda x: np.append(x[x > 0], x[x < 0]),
    "by_parts": by_parts,
    "cumsum": lambda x: np.cumsum(x[x > 0]),
    "argmax": lambda x: x[x > 0][np.argmax(x[x > 0])],
    "np.where": lambda x: x[np.where(x > 0)] * 2.0,
    "np.nonzero": lambda x: x.reshape(3, 4)[np.nonzero(x.reshape(3, 4) > 0)],
    "nonzero": lambda x: x[(x > 0).nonzero()[0]],
    "flatnonzero": lambda x: x[np.flatnonzero(x.reshape(3, 4) > 0)] ** 2,
    "argwhere": lambda x: np.argwhere(x.reshape(3, 4) > 0) * x[0],
    "compress": lambda x: np.compress(x > 0, x),
    "compress rows": lambda x: x.reshape(4, 3).compress(x[:4] > 0, axis=0),
    "compress short": lambda x: np.compress(x[:2] > 0, x.reshape(3, 4), axis=1),
    "extract": lambda x: np.extract(x.reshape(3, 4) > 0, x.reshape(3, 4)) ** 3,
    "repeat": lambda x: np.repeat(x, np.abs(np.round(x)).astype(int)),
    "repeat rows": lambda x: np.repeat(x.reshape(4, 3), (x[:4] > 0) + 1, axis=0),
    "unique": lambda x: np.unique(np.maximum(x, 0)) ** 2,
    "uniques": lambda x: np.concatenate([v.ravel() for v in uniques(x)]),
    "zeros_like": lambda x: np.zeros_like(x[x > 0]) + x[x > 0],
    "len": lambda x: x.sum() / len(x[x > 0]),
    "added": added,
    "in two steps": lambda x: (lambda y: y - y.mean())(x[x > 0]),
}
# Functions whose results have one shape: nothing but a truth is asked for.
REDUCED = {
    "sum": lambda x: (x[x > 0] ** 2).sum(),
    "sum of logs": lambda x: np.log(x[x > 0]).sum(),
    "mean": lambda x: np.mean(np.sqrt(x[x > 0])),
    "std": lambda x: x[x > 0].std(),
    "var": lambda x: np.var(x[x > 0], ddof=1),
    "var of complex numbers": lambda x: np.var((x + 1j * x**2)[x > 0]),
    "max": lambda x: x[x > 0].max() - np.min(x[x < 0.5]),
    "prod": lambda x: np.prod(x[x > 0]),
    "any": lambda x: np.any(x[x > 0] > 1) * x[0],
    "all": lambda x: np.all(x[x > 0] > 0.1) * x[0],
    "dot": lambda x: np.dot(x[x > 0], np.sin(x[x > 0])),
    "norm": lambda x: np.linalg.norm(x[x > 0]),
    "columns": lambda x: x.reshape(6, 2)[x.reshape(6, 2).sum(1) > 0].sum(axis=0),
    "rows": lambda x: x.reshape(3, 4)[:, x[:4] > 0].mean(axis=1),
    "two arrays": lambda x: np.sum(x[x > 0] * np.arange(12.0)[x > 0]),
    "centred": lambda x: np.sum((x[x > 0] - x[x > 0].mean()) ** 3),
    "size": lambda x: x.sum() / x[x > 0].size,
    "choice of a choice": lambda x: np.where(x[x > 0] > 1, x[x > 0], x[x > 0] ** 2).sum(),
    "assigned": lambda x: replaced(x, x > 0, 0.5),
    "assigned values": lambda x: replaced(x, x > 0, x[x > 0] ** 2),
    "clipped_rows": clipped_rows,
    "loop": lambda x: sum([np.abs(x[x > k] ** 3 * k).sum() for k in (0.5, -0.25, -1.0)]),
}
ALL = {**{f"shaped {k}": f for k, f in SHAPED.items()}, **{f"reduced {k}": f for k, f in REDUCED.items()}}


def inputs():
    rng = np.random.default_rng(3)
    xs = [rng.normal(size=12) * 1.3 for _ in range(4)]
    xs = [np.where(np.abs(x) < 0.1, 0.3, x) + 1e-3 * np.arange(12) for x in xs]
    for x in xs:
        x[0] = np.abs(x[0])
    return xs


def differences(f, x, h=1e-6):
    return np.array([(np.sum(f(x + h * e)) - np.sum(f(x - h * e))) / (2 * h) for e in np.eye(x.size)])


@pytest.mark.parametrize("name", ALL)
def test_values_and_both_derivatives_are_those_of_numpy(name):
    f = ALL[name]
    weights = np.cos(np.arange(100.0))

    def total(x):
        y = f(x)
        return np.sum(np.ravel(y) ** 2 * weights[: y.size])

    traced, derivative = tg.trace(f), tg.grad(total)
    curved = tg.grad(lambda x: np.sum(derivative(x) * np.sin(np.arange(12.0))))
    for x in inputs():
        np.testing.assert_allclose(traced(x.copy()), f(x.copy()), rtol=1e-12, atol=1e-14)
        first = differences(total, x)
        np.testing.assert_allclose(derivative(x), first, rtol=1e-6, atol=1e-6)
        wanted = differences(lambda x: derivative(x) * np.sin(np.arange(12.0)), x)
        np.testing.assert_allclose(curved(x), wanted, rtol=1e-5, atol=1e-5)
        t = np.cos(np.arange(12.0))
        with replayed():
            np.testing.assert_allclose(tg.jvp(total, (x,), (t,))[1], derivative(x) @ t, rtol=1e-10, atol=1e-12)
        with tg.disable_jit():
            np.testing.assert_allclose(tg.grad(total)(x), derivative(x), rtol=1e-10, atol=1e-12)


# What Tensors have no method for, or one of PyTorch's that is another.
OTHERS = {"shaped nonzero", "shaped compress rows", "reduced std", "reduced size", "reduced clipped_rows"}


@pytest.mark.parametrize("name", sorted(ALL.keys() - OTHERS))
def test_tensors_inside_a_trace_give_the_same(name):
    f = ALL[name]
    traced = tg.trace(f)
    for x in inputs()[:2]:
        t = tg.tensor(x, requires_grad=True)
        got = traced(t)
        np.testing.assert_allclose(got.detach().numpy(), f(x.copy()), rtol=1e-12, atol=1e-14)
        if got.requires_grad:
            got.sum().backward()
            np.testing.assert_allclose(t.grad.numpy(), differences(f, x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", REDUCED)
def test_a_reduction_asks_for_no_count(name):
    traced = tg.trace(REDUCED[name])
    for x in inputs():
        traced(x)
    assert traced.cache_info().traces == 1


def test_another_count_is_another_trace_and_no_compilation():
    f = tg.trace(lambda x: x[x > 0] ** 2 * 3)
    x = np.where(np.arange(400) % 3, 1.5, -1.0) * np.arange(400)
    for n in (100, 101):
        f(x[: 2 * n])
        f(x[: 2 * n])
    before = machine_code_count()
    for shift in range(20, 30):
        y = x[:200] - shift
        for _ in range(2):
            np.testing.assert_allclose(f(y), y[y > 0] ** 2 * 3, rtol=1e-15)
    assert machine_code_count() == before


def test_counts_that_come_again_are_no_new_traces():
    f = tg.trace(lambda x: x[x > 0])
    xs = inputs()
    for _ in range(3):
        for x in xs:
            assert np.array_equal(f(x), x[x > 0])
    assert f.cache_info().traces == len({np.sum(x > 0) for x in xs})


def test_nothing_chosen_is_what_numpy_says():
    x = -np.ones(5)
    assert tg.trace(lambda x: x[x > 0])(x).shape == (0,)
    assert tg.trace(lambda x: x[x > 0].sum())(x) == 0.0
    assert tg.trace(lambda x: np.where(x > 0)[0])(x).shape == (0,)
    biggest = tg.trace(lambda x: x[x > 0].max())
    assert biggest(-x) == 1.0
    for _ in range(2):
        with pytest.raises(ValueError, match="zero-size"):
            biggest(x)
    assert biggest(-x) == 1.0


def test_values_that_are_too_few_raise_as_in_numpy():
    def f(x, v):
        y = x.copy()
        y[x > 0] = v
        return y

    traced, v = tg.trace(f), np.arange(2.0)
    x = np.array([1.0, -1.0, 2.0])
    assert np.array_equal(traced(x, v), f(x, v))
    with pytest.raises(ValueError, match="cannot assign 2 input values to the 3 output values"):
        traced(np.abs(x), v)
    assert np.array_equal(traced(x, v + 1), f(x, v + 1))


def test_arguments_are_updated_where_a_mask_is_true():
    def f(x, v):
        x[x < 0] = v[x < 0] ** 2
        x[x > 4] -= 1.0

    x, v = np.array([1.0, -2.0, 5.0, -3.0]), np.arange(4.0)
    y = x.copy()
    for _ in range(3):
        tg.trace(f)(x, v)
        f(y, v)
        assert np.array_equal(x, y)
        x[:2], y[:2] = -1.0, -1.0


def test_a_choice_is_a_copy():
    def f(x):
        y = x * 1.0
        mask = y > 0
        z = y[mask]
        y[0], mask[1] = 100.0, False
        z += 1.0
        return z.sum(), y, mask, z

    x = np.array([1.0, 2.0, -3.0])
    for got, wanted in zip(tg.trace(f)(x), f(x)):
        assert np.array_equal(got, wanted)


def test_a_reduction_of_a_choice_is_batched_and_runs_in_loops():
    x = np.random.default_rng(0).normal(size=(5, 9))
    means = tg.vmap(lambda r: r[r > 0].mean())(x)
    np.testing.assert_allclose(means, [r[r > 0].mean() for r in x], rtol=1e-14)
    total, _ = tg.trace(lambda x: tg.scan(lambda c, r: (c + r[r > c].sum(), c), 0.0, x))(x)
    wanted = 0.0
    for r in x:
        wanted += r[r > wanted].sum()
    np.testing.assert_allclose(total, wanted, rtol=1e-14)
    with pytest.raises(tg.TraceError, match="shape would depend"):
        tg.vmap(lambda r: np.sort(r[r > 0]))(x)


def test_repeats_that_are_negative_raise():
    with pytest.raises(ValueError, match="may not contain negative"):
        tg.trace(lambda x, n: np.repeat(x, n))(np.ones(3), np.array([1, -1, 2]))


def test_jacobians_go_through_masks():
    def f(x):
        return x[x > 0] ** 2

    x = np.array([1.0, -1.0, 3.0])
    wanted = np.array([[2.0, 0, 0], [0, 0, 6.0]])
    assert np.array_equal(tg.jacrev(f)(x), wanted)
    assert np.array_equal(tg.jacfwd(f)(x), wanted)
    assert np.array_equal(tg.hessian(lambda x: np.sum(f(x) ** 2))(x), np.diag([12.0, 0, 108.0]))
