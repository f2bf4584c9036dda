"""Generators of random numbers as arguments: another one of the same class is no other kind of call.

Truth is the same function in plain Python, with a generator of the same seed, which is left where that leaves it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

MAKERS = [
    np.random.default_rng,
    np.random.RandomState,
    lambda seed: np.random.Generator(np.random.MT19937(seed)),
]


def state(rng: Any) -> str:
    return repr(rng.get_state() if isinstance(rng, np.random.RandomState) else rng.bit_generator.state)


def agree(traced: Any, f: Callable[..., Any], make: Callable[[], tuple[Any, ...]]) -> None:
    """A call of both, each with arguments of its own, gives the same and leaves the same."""
    args, plain = make(), make()
    for x, y in zip(tg.tree.leaves(traced(*args)), tg.tree.leaves(f(*plain)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-15)
    for x, y in zip(args, plain):
        if isinstance(x, np.random.Generator | np.random.RandomState):
            assert state(x) == state(y)


@pytest.mark.parametrize("make", MAKERS)
def test_a_new_generator_at_each_call_is_traced_once(make: Any) -> None:
    def f(x: Any, rng: Any) -> Any:
        y = rng.normal(size=3) * x
        return y + rng.uniform(), rng.permutation(3)

    traced = tg.trace(f)
    for seed in range(5):
        agree(traced, f, lambda seed=seed: (np.arange(3.0) + seed, make(seed)))
    assert traced.cache_info().traces == 1


def test_one_generator_at_several_calls_goes_on_and_others_come_between() -> None:
    def f(x: Any, rng: Any) -> Any:
        return x * rng.normal()

    traced = tg.trace(f)
    ours, theirs = ([np.random.default_rng(seed) for seed in range(3)] for _ in range(2))
    for k in (0, 0, 0, 0, 1, 0, 1, 1, 1, 2, 0, 0, 0, 2, 2, 2, 1, 0):
        assert traced(2.0, ours[k]) == f(2.0, theirs[k])
        assert state(ours[k]) == state(theirs[k])
    assert traced.cache_info().traces == 1


def test_generators_of_other_classes_are_other_kinds_of_calls() -> None:
    traced = tg.trace(lambda x, rng: x * rng.normal())
    for make, _ in itertools.product(MAKERS, range(3)):
        agree(traced, lambda x, rng: x * rng.normal(), lambda make=make: (2.0, make(7)))
    assert traced.cache_info().traces == 2


def test_two_generators_that_are_one_and_two_that_are_not() -> None:
    def f(a: Any, b: Any) -> Any:
        return a.normal() - 2 * b.normal() + 4 * a.normal()

    def one(seed: int) -> Any:
        rng = np.random.default_rng(seed)
        return rng, rng

    traced = tg.trace(f)
    for seed in range(4):
        agree(traced, f, lambda seed=seed: one(seed))
        agree(traced, f, lambda seed=seed: (np.random.default_rng(seed), np.random.default_rng(seed)))
        agree(tg.trace(lambda a, b: f(a=b, b=a)), lambda a, b: f(b, a), lambda seed=seed: one(seed))
    assert traced.cache_info().traces == 2


ours = np.random.default_rng(0)


def test_a_generator_from_outside_that_is_the_argument_too_in_some_calls() -> None:
    theirs: list[Any] = []

    def f(rng: Any) -> Any:
        return rng.normal() - 2 * (theirs[0] if theirs else ours).normal() + 4 * rng.normal()

    traced = tg.trace(lambda rng: rng.normal() - 2 * ours.normal() + 4 * rng.normal())
    for k in (0, 1, 1, 0, 1, 0, 0, 1):
        other = np.random.default_rng(5)
        before = ours.bit_generator.state
        got = traced(ours if k else other)
        after = ours.bit_generator.state
        ours.bit_generator.state = before
        assert got == f(ours if k else np.random.default_rng(5))
        assert ours.bit_generator.state == after


def test_generators_in_containers_and_by_keyword_and_what_is_given_back() -> None:
    def f(x: Any, d: Any, *, rng: Any) -> Any:
        d["seen"] = rng
        return x * rng.normal() + d["rng"].normal(), rng, [rng]

    traced = tg.trace(f)
    for seed in range(4):
        rng, inside = np.random.default_rng(seed), np.random.default_rng(9)
        d = {"rng": inside}
        value, returned, (listed,) = traced(2.0, d, rng=rng)
        assert returned is listed is d["seen"] is rng
        assert value == f(2.0, {"rng": np.random.default_rng(9)}, rng=np.random.default_rng(seed))[0]


class Holder:
    rng: Any = None


def test_a_generator_that_is_kept_is_that_of_the_call() -> None:
    holder = Holder()

    def f(x: Any, rng: Any) -> Any:
        holder.rng = rng
        return x * rng.normal()

    traced = tg.trace(f)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        traced(1.0, rng)
        assert holder.rng is rng


def test_a_generator_that_traced_code_makes_and_gives_back_is_a_generator() -> None:
    traced = tg.trace(lambda x, seed: (x * 2, np.random.default_rng(seed)))
    for seed in range(3):
        with pytest.warns(tg.PerformanceWarning) if not seed else _nothing():
            _, rng = traced(1.0, seed)
        assert type(rng) is np.random.Generator
        assert rng.normal() == np.random.default_rng(seed).normal()


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    "transform",
    [
        tg.grad,
        lambda f: tg.grad(lambda x, rng: np.sum(tg.grad(f)(x, rng) ** 2)),
        lambda f: lambda x, rng: tg.jvp(lambda x: f(x, rng), (x,), (np.ones(3),)),
        lambda f: tg.value_and_grad(f),
    ],
)
def test_derivatives_take_a_new_generator_at_each_call(transform: Any) -> None:
    def f(x: Any, rng: Any) -> Any:
        return np.sum(np.sin(x * rng.normal(size=3)) * rng.uniform())

    g, x = transform(f), np.arange(3.0)
    for seed in range(3):
        again = np.random.default_rng(seed)
        z, u = again.normal(size=3), again.uniform()
        h = transform(lambda x, _, z=z, u=u: np.sum(np.sin(x * z) * u))
        rng = np.random.default_rng(seed)
        got, want = g(x, rng), h(x, 0)
        np.testing.assert_allclose(got[-1], want[-1], rtol=1e-12)
        np.testing.assert_allclose(got[0], want[0], rtol=1e-12)
        assert state(rng) == state(again)


def test_tensors_are_pulled_back_with_the_draws_of_their_call() -> None:
    f = tg.trace(lambda x, rng: (x * x * rng.normal()).sum())
    losses = [(tg.tensor([1.0, 2.0], requires_grad=True), seed) for seed in range(4)]
    results = [f(x, np.random.default_rng(seed)) for x, seed in losses]
    for (x, seed), loss in zip(losses, results):
        loss.backward()
        np.testing.assert_allclose(x.grad.numpy(), 2 * np.array([1.0, 2.0]) * np.random.default_rng(seed).normal())
    assert f.cache_info().traces == 1


def test_branches_on_draws_are_paths_that_later_generators_find() -> None:
    def walk(x: Any, rng: Any) -> Any:
        for _ in range(3):
            if rng.random() < 0.5:
                x = x + rng.normal()
        return x

    traced = tg.trace(walk)
    for seed in range(60):
        agree(traced, walk, lambda seed=seed: (1.0, np.random.default_rng(seed)))
    info = traced.cache_info()
    assert info.traces <= 8
    assert info.hits >= 40


def test_a_call_that_raises_leaves_the_generator_where_python_does() -> None:
    def f(x: Any, rng: Any) -> Any:
        y = rng.normal(size=2)
        if x < 0:
            raise ValueError("negative")
        return y * rng.normal()

    traced = tg.trace(f)
    for seed, x in itertools.product(range(3), (1.0, -1.0)):
        rng, again = np.random.default_rng(seed), np.random.default_rng(seed)
        for g, r in ((traced, rng), (f, again)):
            try:
                g(x, r)
            except ValueError:
                assert x < 0
        assert state(rng) == state(again)


def streams(seed: int, count: int) -> list[Any]:
    return [np.random.default_rng(seed * count + k) for k in range(count)]


def test_new_generators_in_lists_tuples_and_dicts_are_traced_once_and_left_where_numpy_leaves_them() -> None:
    def f(x: Any, d: Any) -> Any:
        return x * d["rng"].normal() + d["many"][1].uniform() + d["many"][0][0].normal(size=2)

    traced = tg.trace(f)
    for seed in range(6):
        ours, theirs = streams(seed, 3), streams(seed, 3)
        d, e = ({"rng": a, "many": [(b, 3.0), c]} for a, b, c in (ours, theirs))
        for _ in range(1 + seed % 3):  # the hot path, too
            np.testing.assert_array_equal(traced(2.0, d), f(2.0, e))
        assert list(map(state, ours)) == list(map(state, theirs))
    assert traced.cache_info().traces == 1
    one, again = np.random.default_rng(3), np.random.default_rng(3)
    d, e = ({"rng": rng, "many": [(rng, 3.0), rng]} for rng in (one, again))
    np.testing.assert_array_equal(traced(2.0, d), f(2.0, e))
    assert state(one) == state(again)
    assert traced.cache_info().traces == 2


def test_what_traced_code_does_with_generators_in_containers_is_done_to_those_of_the_call() -> None:
    def swaps(x: Any, many: list[Any], d: dict[str, Any]) -> Any:
        many[0], many[1] = many[1], many[0]
        d["new"] = [many[0]]
        return x * many[0].normal() - d["rng"].normal(), d["rng"]

    traced = tg.trace(swaps)
    for seed in range(4):
        first, second, third = streams(seed, 3)
        same = streams(seed, 3)
        many, d = [first, second], {"rng": third}
        value, saved = traced(1.0, many, d)
        assert value == swaps(1.0, same[:2], {"rng": same[2]})[0]
        assert (many[0], many[1], saved, d["rng"], d["new"][0]) == (second, first, third, third, second)
    assert traced.cache_info().traces == 1


def test_derivatives_and_tensors_take_new_generators_in_containers() -> None:
    derivative = tg.grad(lambda x, d: np.sum(x * x * d["rng"].normal()))
    f = tg.trace(lambda x, many: (x * x * many[0].normal()).sum())
    losses = [(tg.tensor([1.0, 2.0], requires_grad=True), seed) for seed in range(4)]
    results = [f(x, [np.random.default_rng(seed)]) for x, seed in losses]
    for (x, seed), loss in zip(losses, results):
        expected = 2 * np.array([1.0, 2.0]) * np.random.default_rng(seed).normal()
        np.testing.assert_allclose(derivative(np.array([1.0, 2.0]), {"rng": np.random.default_rng(seed)}), expected)
        loss.backward()
        np.testing.assert_allclose(x.grad.numpy(), expected)
    assert f.cache_info().traces == derivative.cache_info().traces == 1
