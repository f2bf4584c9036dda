"""Random numbers of keys: published bits, distributions, and the same numbers under every transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats as st

import tracegrad as tg
from tracegrad import random
from tracegrad.random.keys import threefry

KEY = random.key(1)


@pytest.mark.parametrize(
    ("key", "counter", "block"),
    [  # of Random123's known answers
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_bits_are_those_ofthreefry(key: Any, counter: Any, block: Any) -> None:
    def of(key: Any, counter: Any) -> Any:
        return np.stack(threefry(key, counter[0], counter[1]))

    for f in (of, tg.trace(of)):
        assert np.array_equal(f(np.array(key, np.uint32), np.array(counter, np.uint32)), block)


# A function of a key and a number of elements, and the distribution.
CONTINUOUS: dict[str, tuple[Callable[..., Any], Any]] = {
    "uniform": (lambda k, n: random.uniform(k, (n,), minval=-1.0, maxval=2.0), st.uniform(-1, 3)),
    "uniform32": (lambda k, n: random.uniform(k, (n,), np.float32), st.uniform()),
    "normal": (lambda k, n: random.normal(k, (n,)), st.norm()),
    "normal32": (lambda k, n: random.normal(k, (n,), np.float32), st.norm()),
    "exponential": (lambda k, n: random.exponential(k, (n,)), st.expon()),
    "gumbel": (lambda k, n: random.gumbel(k, n), st.gumbel_r()),
    "laplace": (lambda k, n: random.laplace(k, n), st.laplace()),
    "logistic": (lambda k, n: random.logistic(k, n), st.logistic()),
    "cauchy": (lambda k, n: random.cauchy(k, n), st.cauchy()),
    "truncated_normal": (lambda k, n: random.truncated_normal(k, -1.0, 2.0, n), st.truncnorm(-1.0, 2.0)),
    "gamma": (lambda k, n: random.gamma(k, 0.7, n), st.gamma(0.7)),
    "beta": (lambda k, n: random.beta(k, 0.7, 2.0, n), st.beta(0.7, 2.0)),
    "t": (lambda k, n: random.t(k, 3.0, n), st.t(3.0)),
    "dirichlet": (lambda k, n: random.dirichlet(k, np.array([1.0, 2.0, 3.0]), n)[:, 0], st.beta(1.0, 5.0)),
    "multivariate_normal": (
        lambda k, n: random.multivariate_normal(k, np.array([1.0, 2.0]), np.array([[2.0, 0.5], [0.5, 1.0]]), n)[:, 0],
        st.norm(1.0, np.sqrt(2.0)),
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_distributions_are_those_of_their_names(name: str) -> None:
    f, dist = CONTINUOUS[name]
    x = f(KEY, 20_000)
    assert st.kstest(x, dist.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(x[:-1] > np.median(x), x[1:] > np.median(x))[0, 1]) < 0.03


@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers_are_the_same_eager_compiled_and_in_a_batch(name: str) -> None:
    f, _ = CONTINUOUS[name]
    keys = random.split(KEY, 3)
    wanted = np.stack([f(key, 5) for key in keys])
    tight = 1e-5 if wanted.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(tg.trace(lambda key: f(key, 5))(keys[1]), wanted[1], rtol=tight)
    np.testing.assert_allclose(tg.vmap(lambda key: f(key, 5))(keys), wanted, rtol=tight)


DISCRETE: dict[str, tuple[Callable[..., Any], list[float]]] = {
    "bernoulli": (lambda k, n: random.bernoulli(k, 0.3, n), [0.7, 0.3]),
    "rademacher": (lambda k, n: random.rademacher(k, n) > 0, [0.5, 0.5]),
    "randint": (lambda k, n: random.randint(k, n, -2, 3) + 2, [0.2] * 5),
    "categorical": (lambda k, n: random.categorical(k, np.log([0.5, 0.2, 0.3]), shape=n), [0.5, 0.2, 0.3]),
    "choice": (lambda k, n: random.choice(k, np.array([1, 0]), n, p=np.array([0.6, 0.4])), [0.4, 0.6]),
    "choice of numbers": (lambda k, n: random.choice(k, 4, n), [0.25] * 4),
    "bits": (lambda k, n: random.bits(k, n) >> 31, [0.5, 0.5]),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_counts_are_those_of_the_probabilities(name: str) -> None:
    f, p = DISCRETE[name]
    counts = np.bincount(np.asarray(f(KEY, 20_000), np.int64), minlength=len(p))
    assert st.chisquare(counts, 20_000 * np.array(p)).pvalue > 1e-3
    keys = random.split(KEY, 3)
    wanted = np.stack([f(key, 7) for key in keys])
    assert np.array_equal(tg.vmap(lambda key: f(key, 7))(keys), wanted)
    assert np.array_equal(tg.trace(lambda key: f(key, 7))(keys[2]), wanted[2])


def test_orders_have_every_element_once() -> None:
    for x in (random.permutation(KEY, 10), random.choice(KEY, 10, (10,), replace=False)):
        assert sorted(x) == list(range(10))
    rows = np.arange(12.0).reshape(3, 4)
    moved = tg.trace(lambda key: random.permutation(key, rows, axis=1))(KEY)
    assert np.array_equal(np.sort(moved, axis=1), rows)
    with pytest.raises(ValueError, match="without replacement"):
        random.choice(KEY, 3, (4,), replace=False)


def test_keys_differ_and_a_loop_draws_in_each_iteration() -> None:
    def step(key: Any, i: Any) -> tuple[Any, Any]:
        key, own = random.split(key)
        return key, random.normal(own, (2,)) + random.uniform(random.fold_in(own, i))

    iterations = np.arange(4)
    last, result = tg.trace(lambda key: tg.scan(step, key, iterations))(KEY)
    key, wanted = KEY, []
    for i in iterations:
        key, x = step(key, np.asarray(i))
        wanted.append(x)
    np.testing.assert_allclose(result, wanted, rtol=1e-12)
    assert np.array_equal(last, key)
    many = np.concatenate([random.split(KEY, 100), np.stack([random.fold_in(KEY, i) for i in range(100)])])
    assert len(np.unique(many, axis=0)) == 200
    with pytest.raises(TypeError, match="a key is a uint32 array"):
        random.normal(np.zeros(2))


IN_PARAMETERS: dict[str, Callable[[Any], Any]] = {
    "uniform": lambda s: random.uniform(KEY, (3,), minval=-s, maxval=s * s),
    "truncated_normal": lambda s: random.truncated_normal(KEY, -s, 2.0 * s, (3,)),
    "gamma": lambda s: random.gamma(KEY, s, (3,)),
    "beta": lambda s: random.beta(KEY, s, 2.0 * s, (3,)),
    "t": lambda s: random.t(KEY, 3.0 * s, (3,)),
    "dirichlet": lambda s: random.dirichlet(KEY, s * np.array([0.7, 1.5])),
}


@pytest.mark.parametrize("name", IN_PARAMETERS)
def test_derivatives_in_parameters_are_those_of_differences(name: str) -> None:
    f = lambda s: np.sum(IN_PARAMETERS[name](s) * np.arange(1, 4 if name != "dirichlet" else 3))  # noqa: E731
    derivative, s, h = tg.grad(f), 1.3, 1e-3

    def difference(g: Any) -> Any:
        return (g(s - 2 * h) - 8 * g(s - h) + 8 * g(s + h) - g(s + 2 * h)) / (12 * h)

    assert derivative(s) == pytest.approx(difference(f), rel=1e-7)
    assert tg.grad(derivative)(s) == pytest.approx(difference(derivative), rel=1e-7)
    assert tg.jvp(f, (s,), (1.0,))[1] == pytest.approx(derivative(s), rel=1e-10)
