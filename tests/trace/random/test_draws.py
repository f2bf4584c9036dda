# ruff: noqa: NPY002
"""Random numbers in traced functions: NumPy's stream, drawn at each call, and derivatives along the way."""

import numpy as np
import pytest
import scipy.stats as st
from numpy.random import default_rng

import tracegrad as tg

RNG = np.random.default_rng(0)
COV = np.array([[2.0, 0.3], [0.3, 1.0]])


class Model:
    def __init__(self, seed):
        self.rng, self.scale = np.random.default_rng(seed), 2.0

    def noisy(self, x):
        return x + self.scale * self.rng.standard_normal(x.shape)


# Functions of a vector of 6 positive elements and a generator.
NEW = {
    "normal": lambda x, r: x + r.normal(1.0, 2.0, 6),
    "normal of traced": lambda x, r: r.normal(x, x[0], 6),
    "normal, one": lambda x, r: x * r.normal(x[0], x[1]),
    "normal, shape of arguments": lambda x, r: r.normal(x.reshape(2, 3), 0.5),
    "standard_normal": lambda x, r: x * r.standard_normal((2, 6)),
    "float32": lambda x, r: x * r.standard_normal(6, dtype=np.float32),
    "uniform": lambda x, r: x * r.uniform(size=6) + r.uniform(-x, 2 * x),
    "random": lambda x, r: x * r.random() + r.random(6),
    "exponential": lambda x, r: r.exponential(x) + r.exponential(2.0, 6) + r.standard_exponential(6),
    "laplace": lambda x, r: r.laplace(x, x[0]) + r.logistic(x, 2.0) + r.gumbel(1.0, x),
    "rayleigh": lambda x, r: r.rayleigh(x) + r.lognormal(0.1 * x, 0.2),
    "gamma": lambda x, r: r.gamma(2.0, x) + r.standard_gamma(3.0, 6) + r.gamma(0.5, 1.0, 6),
    "beta": lambda x, r: x * r.beta(2.0, 3.0, 6) + r.chisquare(4.0, 6) + r.standard_t(5, 6),
    "integers": lambda x, r: x * r.integers(0, 10, 6) + x[r.integers(6)] + x[r.integers(0, 6, size=6)],
    "poisson": lambda x, r: x * r.poisson(3.0, 6) + r.poisson(x * 2.0),
    "binomial": lambda x, r: x * r.binomial(10, 0.3, 6) + r.binomial(5, x / (1.0 + x)),
    "choice": lambda x, r: r.choice(x, 4) * r.choice(x, 4, replace=False),
    "choice by weights": lambda x, r: r.choice(x, 5, p=x / x.sum()) + r.choice(7, 5) * r.choice([1.0, 4.0]),
    "choice of rows": lambda x, r: r.choice(x.reshape(3, 2), 5) + r.choice(x.reshape(2, 3), 2, axis=1)[0],
    "permutation": lambda x, r: r.permutation(x) * x + x[r.permutation(6)] + r.permutation(x.reshape(3, 2)).ravel(),
    "permuted": lambda x, r: r.permuted(x) * x + r.permuted(x.reshape(3, 2), axis=1).ravel() + r.random(),
    "permuted rows": lambda x, r: r.permuted(x.reshape(3, 2), axis=0) * r.permuted(x.reshape(3, 2)),
    "permuted in place": lambda x, r: (lambda y: r.permuted(y, axis=-1, out=y) * y)(x.reshape(2, 3).copy()),
    "multivariate_normal": lambda x, r: r.multivariate_normal(x[:2], COV, 3).ravel() * x,
    "several": lambda x, r: r.normal(r.normal(x, 1.0), np.abs(r.uniform(1.0, 2.0, 6))) + r.poisson(r.gamma(2.0, x)),
    "weights in a list": lambda x, r: x[:2] * r.choice(2, 2, p=[x[0] / 10, 1.0 - x[0] / 10]),
    "dirichlet": lambda x, r: x[:3] * r.dirichlet([1.0, 2.0, 3.0]),
}
OLD = {
    "seed": lambda x: (np.random.seed(5), x * np.random.normal(size=6), np.random.rand())[1],
    "global": lambda x: np.random.normal(x, 2.0) + np.random.rand(6) + np.random.randn() * np.random.randint(0, 9),
    "global uniform": lambda x: np.random.uniform(x, 9.0) * np.random.random(6) + np.random.permutation(x),
    "global choice": lambda x: np.random.choice(x, 3, replace=False) + np.random.exponential(x[:3]),
    "global poisson": lambda x: x * np.random.poisson(x) + np.random.standard_normal(6) + np.random.gamma(2.0, x),
    "made": lambda x: x * np.random.default_rng(7).normal(size=6),
    "made by another name": lambda x: x + default_rng(3).uniform(size=6),
    "made of an argument": lambda x: x + np.random.default_rng((x[0] * 10).astype(int)).normal(size=6),
    "RandomState": lambda x: x * np.random.RandomState(7).randn(6),
    "Generator": lambda x: x * np.random.Generator(np.random.PCG64(3)).normal(size=6),
    "captured": lambda x: x + RNG.normal(size=6) * RNG.normal(x[0], 1.0),
}


def differences(f, x, h=1e-6):
    return np.array([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(x.size)])


def states():
    return np.random.get_state()[1].tolist(), np.random.get_state()[2], RNG.bit_generator.state


def reset():
    np.random.seed(11)
    RNG.bit_generator.state = np.random.default_rng(12).bit_generator.state


XS = [np.linspace(0.5, 2.0, 6) * k for k in (1.0, 1.5, 0.5, 2.0)]


@pytest.mark.parametrize("name", [*NEW, *OLD])
def test_calls_draw_what_numpy_draws_and_leave_generators_where_it_does(name):
    f = OLD[name] if name in OLD else (lambda x: NEW[name](x, RNG))
    reset()
    wanted = [f(x.copy()) for x in XS], states()
    reset()
    traced = tg.trace(f)
    for x, value in zip(XS, wanted[0]):
        np.testing.assert_allclose(traced(x), value, rtol=1e-13)
    assert states() == wanted[1]
    assert traced.cache_info().traces == 1


# Derivatives with respect to what has none: numbers of successes, seeds, indices.
SMOOTH = sorted({*NEW, *OLD} - {"several", "made of an argument", "choice by weights", "poisson", "binomial"})


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_are_taken_along_the_way(name):
    f = OLD[name] if name in OLD else (lambda x: NEW[name](x, RNG))

    def total(x):
        return np.sum(np.sin(f(x)))

    def fixed(g):
        def call(*args):
            reset()
            return g(*args)

        return call

    x, t = XS[0], np.cos(np.arange(6.0))
    derivative = tg.grad(total)
    wanted = differences(fixed(total), x)
    for _ in range(2):
        np.testing.assert_allclose(fixed(derivative)(x), wanted, rtol=1e-5, atol=1e-6)
    after = states()
    fixed(total)(x)
    assert states() == after
    np.testing.assert_allclose(
        fixed(tg.trace(lambda x: tg.jvp(total, (x,), (t,))[1]))(x), wanted @ t, rtol=1e-5, atol=1e-6
    )
    second = tg.grad(lambda x: np.sum(tg.grad(total)(x) * t))
    np.testing.assert_allclose(
        fixed(second)(x), differences(fixed(lambda x: np.sum(derivative(x) * t)), x), rtol=1e-4, atol=1e-5
    )


# Draws of a shape, and the distribution function, whose slopes say how a quantile moves.
SHAPES = {
    "gamma": (lambda a: RNG.gamma(a, 2.0), lambda z, a: st.gamma.cdf(z, a, scale=2.0)),
    "standard_gamma": (lambda a: RNG.standard_gamma(a), lambda z, a: st.gamma.cdf(z, a)),
    "beta": (lambda a: RNG.beta(a, 2.0 * a), lambda z, a: st.beta.cdf(z, a, 2.0 * a)),
    "chisquare": (lambda a: RNG.chisquare(a, size=3), lambda z, a: st.chi2.cdf(z, a)),
    "standard_t": (lambda a: RNG.standard_t(a), lambda z, a: st.t.cdf(z, a)),
    "global": (lambda a: np.random.gamma(a), lambda z, a: st.gamma.cdf(z, a)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_draws_move_with_the_parameters_of_their_shape_as_quantiles(name):
    draw, cdf = SHAPES[name]
    a, h, weights = np.array([0.7, 1.5, 4.0]), 1e-4, np.array([1.0, -2.0, 3.0])

    def first(a):
        return tg.grad(lambda a: np.sum(draw(a)))(a)

    def moved(q, a):  # the quantile at q for another shape, by Newton's method from where it was
        z = start.copy()
        for _ in range(20):
            z = z - (cdf(z, a) - q) * 2e-6 * z / (cdf(z * (1 + 1e-6), a) - cdf(z * (1 - 1e-6), a))
        return z

    reset()
    start = draw(a)
    at = [moved(cdf(start, a), a + k * h) for k in (-2, -1, 1, 2)]
    derivative = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h)
    bend = (16 * (at[1] + at[2]) - 30 * start - at[0] - at[3]) / (12 * h * h)
    reset()
    np.testing.assert_allclose(first(a), derivative, rtol=1e-7)
    after = states()
    reset()
    draw(a)
    assert states() == after
    reset()
    np.testing.assert_allclose(tg.grad(lambda a: np.sum(first(a) * weights))(a), bend * weights, rtol=1e-4)
    reset()
    np.testing.assert_allclose(
        tg.trace(lambda a: tg.jvp(lambda a: draw(a), (a,), (weights,))[1])(a), derivative * weights, rtol=1e-7
    )


def test_dirichlet_moves_with_its_parameters_as_the_sum_of_the_gammas_does():
    alpha, weights = np.array([0.7, 1.5, 4.0]), np.array([1.0, -2.0, 3.0])
    reset()
    wanted = RNG.dirichlet(alpha, 2)
    reset()
    value, derivative = tg.value_and_grad(lambda a: np.sum(RNG.dirichlet(a, 2) @ weights))(alpha)
    assert value == pytest.approx(np.sum(wanted @ weights), rel=1e-13)

    def by_gammas(a):
        parts = RNG.standard_gamma(a, (2, 3))
        return np.sum(parts / np.sum(parts, axis=1, keepdims=True) @ weights)

    reset()
    np.testing.assert_allclose(tg.grad(by_gammas)(alpha), derivative, rtol=1e-12)


def test_other_paths_begin_where_the_call_began():
    def f(x):
        while (y := RNG.normal()) < x[0]:
            x = x + 0.1 * RNG.uniform(size=2)
        return x * y if RNG.random() < 0.5 else x - y

    x, traced = np.array([-0.5, 1.0]), tg.trace(f)
    reset()
    wanted = [f(x) for _ in range(30)], states()
    reset()
    np.testing.assert_allclose([traced(x) for _ in range(30)], wanted[0], rtol=1e-14)
    assert states() == wanted[1]


def test_a_call_that_raises_leaves_the_generator_where_numpy_does():
    def f(x, n):
        y = x + RNG.normal(size=3)
        if n < 0:
            raise ValueError("negative")
        z = y[n]
        return z + RNG.normal()

    x, traced = np.ones(3), tg.trace(f)
    reset()
    for n in (0, 1, 7, -1, 2, 7, -1):
        before = RNG.bit_generator.state
        try:
            wanted = f(x, n)
        except (IndexError, ValueError) as error:
            wanted = str(error)
        after, RNG.bit_generator.state = RNG.bit_generator.state, before
        try:
            result = traced(x, n)
        except (IndexError, ValueError) as error:
            result = str(error)
        assert RNG.bit_generator.state == after
        assert type(result) is str or result == pytest.approx(wanted, rel=1e-14)


def test_shuffles_and_updates_of_what_was_drawn():
    def f(x):
        order, noise = np.arange(4), RNG.normal(size=4)
        RNG.shuffle(order)
        noise[1:] += 1.0
        noise *= 2.0
        RNG.shuffle(x)
        return noise * x[order]

    reset()
    x = np.arange(4.0)
    wanted, state = f(x), states()
    reset()
    y = np.arange(4.0)
    np.testing.assert_allclose(tg.trace(f)(y), wanted, rtol=1e-14)
    assert np.array_equal(x, y)
    assert states() == state


def test_the_generator_of_an_object_and_another_one_in_its_place():
    model, plain = Model(3), Model(3)
    step = tg.trace(model.noisy)
    for seed in (3, 4):
        model.rng, plain.rng = np.random.default_rng(seed), np.random.default_rng(seed)
        for _ in range(3):
            np.testing.assert_allclose(step(np.ones(2)), plain.noisy(np.ones(2)), rtol=1e-14)
    assert step.cache_info().traces == 1


def test_a_generator_is_an_argument():
    def step(w, rng, more=None):
        return np.sum((w + rng.normal(size=3)) ** 2) + (0.0 if more is None else more["rng"][0].uniform())

    for more in (None, {"rng": [np.random.default_rng(8)]}, {"rng": [RNG]}):
        reset()
        x, start = np.ones(3), np.random.default_rng(8).bit_generator.state
        wanted = []
        for _ in range(3):
            if more is not None and more["rng"][0] is not RNG:
                more["rng"][0].bit_generator.state = start
            wanted.append(step(x, RNG, more))
        reset()
        traced = tg.trace(step)
        for value in wanted:
            if more is not None and more["rng"][0] is not RNG:
                more["rng"][0].bit_generator.state = start
            np.testing.assert_allclose(traced(x, RNG, more), value, rtol=1e-14)
        assert traced.cache_info().traces == 1
    derivative, plain = tg.grad(step), np.random.default_rng(4)
    for _ in range(3):
        np.testing.assert_allclose(
            derivative(x, args := np.random.default_rng(4)), 2 * (x + np.random.default_rng(4).normal(size=3))
        )
        assert args.bit_generator.state != plain.bit_generator.state


def test_loops_draw_in_each_iteration():
    def walk(x):
        for _ in range(60):
            x = x + 0.1 * RNG.normal(size=2)
        while x[0] > 0:
            x = x - RNG.exponential(0.5)
        return x

    traced = tg.trace(walk)
    reset()
    wanted, state = [walk(np.ones(2)) for _ in range(3)], states()
    reset()
    np.testing.assert_allclose([traced(np.ones(2)) for _ in range(3)], wanted, rtol=1e-13)
    assert states() == state


def test_what_is_only_looked_at_draws_nothing():
    f = tg.trace(lambda x: x + RNG.normal(size=3))
    before = RNG.bit_generator.state
    f.graph(np.ones(3))
    str(f.explain(np.ones(3)))
    assert RNG.bit_generator.state == before


def test_unseeded_generators_are_new_in_each_call():
    f = tg.trace(lambda x: x + np.random.default_rng().normal(size=3))
    assert len({float(f(np.ones(3))[0]) for _ in range(5)}) == 5


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(tg.UnsupportedError, match=r"several examples or iterations.* tracegrad\.random with a key"):
        tg.vmap(lambda x: x + RNG.normal())(np.ones(3))
    with pytest.raises(tg.UnsupportedError, match="no derivative with respect to this argument"):
        tg.grad(lambda a: RNG.vonmises(0.0, a))(2.0)
    for call in (lambda x: RNG.bytes(3), lambda x: RNG.spawn(2)):
        with pytest.raises(tg.UnsupportedError, match=r"is not supported; (use|spawn)"):
            tg.trace(call)(np.ones(3))
    with pytest.raises(ValueError, match="scale < 0"):
        tg.trace(lambda s: RNG.normal(0.0, s, 3))(-1.0)
    with pytest.raises(ValueError, match="high - low < 0"):
        tg.trace(lambda s: RNG.uniform(3.0, s))(1.0)


def test_functions_of_tensors_draw_at_each_call():
    f = tg.trace(lambda x: (x * tg.from_numpy(RNG.normal(size=3))).sum())
    x = tg.ones(3, requires_grad=True)
    reset()
    for _ in range(3):
        f(x).backward()
    reset()
    np.testing.assert_allclose(x.grad.numpy(), sum(RNG.normal(size=3) for _ in range(3)), rtol=1e-12)
    assert f.cache_info().traces == 1


def test_generators_that_are_made_inside_spawn_the_same_children_at_each_call():
    def f(x):
        rng = np.random.default_rng(7)
        first, second = rng.spawn(2)
        (third,), (fourth,) = first.spawn(1), rng.spawn(1)
        return x * first.normal(size=3) + second.uniform() + third.normal() - fourth.gamma(2.0) * rng.normal()

    x, g = np.array([1.0, 2.0, 3.0]), tg.trace(f)
    for _ in range(3):
        np.testing.assert_allclose(g(x), f(x), rtol=1e-14)
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(f(x)))(x), f(x + 1.0) - f(x), rtol=1e-12)
