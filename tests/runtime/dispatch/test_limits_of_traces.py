"""Functions that are traced again and again: they say so, and run as plain Python in the end."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import PerformanceWarning
from tracegrad.runtime.dispatch import plain_python_policy
from tracegrad.settings import settings
from tracegrad.trace.builder.abort import MAX_ATTEMPTS
from tracegrad.trace.builder.builder import current_trace


def new_kind() -> type:
    """A class: each one among the arguments makes a program of its own."""
    return type("Kind", (), {})


def chain(q: Any, rng: Any, n: int, kind: type) -> Any:
    accepted = 0
    for _ in range(n):
        proposed = q + rng.normal(size=2)
        if np.log(rng.random()) < q @ q - proposed @ proposed:
            q = proposed
            accepted += 1
    return q, accepted


def test_a_chain_with_another_class_at_each_call_is_traced_64_times_then_runs_as_it_stands_with_warnings() -> None:
    f = tg.trace(chain)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for seed in range(80):
            q, accepted = f(np.zeros(2), np.random.default_rng(seed), 3, new_kind())
            expected = chain(np.zeros(2), np.random.default_rng(seed), 3, object)
            np.testing.assert_allclose(q, expected[0])
            assert accepted == expected[1]
    texts = [str(each.message) for each in told if each.category is PerformanceWarning]
    assert f.cache_info().traces == 64
    assert f.cache_info().limited == 1
    assert len(texts) == 2
    assert re.search(r"chain is traced again and again, this time because of an object .*Kind", texts[0])
    assert re.search(
        r"chain runs as plain Python, uncompiled: 64 calls .* the last time because of an object", texts[1]
    )
    assert "64 calls for such arguments" in str(f.explain(np.zeros(2), np.random.default_rng(0), 3, new_kind()))


@pytest.mark.filterwarnings("ignore::tracegrad.errors.PerformanceWarning")
def test_arguments_of_other_kinds_are_traced_where_others_are_not_any_more() -> None:
    f = tg.trace(lambda x, kind: x * 2)
    for _ in range(70):
        f(np.ones(2), new_kind())
    assert f.cache_info().traces == 64
    kind = new_kind()
    for _ in range(3):
        f(np.ones(3), kind)
    assert f.cache_info().traces == 65


def test_calls_that_find_a_program_in_between_begin_the_count_anew() -> None:
    f, kind = tg.trace(lambda x, kind: x * 2), new_kind()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)
        for seed in range(100):
            f(np.ones(2), new_kind())
            if seed % 50 == 0:
                f(np.ones(2), kind)
                f(np.ones(2), kind)
                f(np.ones(2), kind)
    assert f.cache_info().traces == 101
    assert f.cache_info().limited == 0


@pytest.mark.filterwarnings("ignore::tracegrad.errors.PerformanceWarning")
@pytest.mark.usefixtures("replayed")
def test_tensors_keep_their_derivatives_where_a_function_is_not_traced_any_more() -> None:
    f = tg.trace(lambda x, kind: (x * 3).sum())
    for _ in range(70):
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        f(x, new_kind()).backward()
        np.testing.assert_allclose(x.grad.numpy(), np.full(2, 3.0))
    assert f.cache_info().traces == 64


def test_a_write_at_indices_of_a_tensor_is_traced_once_and_the_last_write_counts() -> None:
    def mark(x: Any, y: Any, z: Any) -> Any:
        z = z * 1.0
        z[y] = x
        return z

    f, derivative = tg.trace(mark), tg.grad(lambda x, y, z: (mark(x, y, z) ** 2).sum(), (0, 2))
    rng = np.random.default_rng(0)
    for _ in range(10):
        x, y, z = rng.normal(size=(5, 3)), rng.integers(-4, 4, 5), rng.normal(size=(4, 3))
        tensors = tg.tensor(x), tg.tensor(y), tg.tensor(z)
        expected = z.copy()
        expected[y] = x
        np.testing.assert_array_equal(f(*tensors).numpy(), expected)
        counts = [k for k in range(5) if not np.any(y[k + 1 :] % 4 == y[k] % 4)]
        of_x, of_z = np.zeros((5, 3)), 2 * z
        of_x[counts], of_z[y] = 2 * x[counts], 0.0
        for result, right in zip(derivative(*tensors), (of_x, of_z)):
            np.testing.assert_allclose(result.numpy(), right)
    assert f.cache_info().traces == derivative.cache_info().traces == 1


@pytest.fixture
def replayed() -> Iterator[None]:
    """First calls are answered by NumPy, as they are for users."""
    with settings.override(first_call="replay"):
        yield


def calls_in_iteration(f: Any, shapes: int, calls: int) -> None:
    """Calls with arrays of other sizes in turn, each of which is right."""
    for k in range(calls):
        x = np.arange(1.0 + k % shapes)
        np.testing.assert_array_equal(f(x), x + 1)


def resting() -> Any:
    """A traced function that runs as plain Python, as that is quicker."""
    f = tg.trace(lambda x: x + 1)
    with pytest.warns(PerformanceWarning, match=r"as long as that is quicker, as was measured: a call took \d+ us so"):
        calls_in_iteration(f, 12, 400)
    assert f.cache_info().limited == 1
    return f


@pytest.mark.usefixtures("replayed")
def test_a_small_function_of_many_shapes_in_iteration_rests_and_says_what_differs() -> None:
    f = tg.trace(lambda x: x + 1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        calls_in_iteration(f, 12, 700)
    assert [x.category for x in told] == [PerformanceWarning]
    assert re.search(r"the last time because of x: f64\[\d+\] -> f64\[\d+\]", str(told[0].message))
    assert f.cache_info().traces <= 12
    assert f.cache_info().limited == 1
    assert "that is quicker, as was measured" in str(f.explain(np.ones(3)))
    f.clear()
    assert f.cache_info().limited == 0


@pytest.mark.usefixtures("replayed")
def test_a_function_that_programs_are_quicker_for_does_not_rest() -> None:
    def long(x: Any) -> Any:
        for _ in range(400):
            x = x * 0.5 + 1
        return x

    f = tg.trace(long)
    for k in range(400):
        f(np.ones(1 + k % 12))
    assert f.cache_info().limited == 0
    np.testing.assert_array_equal(f(np.ones(5)), long(np.ones(5)))


@pytest.mark.usefixtures("replayed")
def test_traces_that_take_long_are_no_more_than_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_python_policy, "SECONDS", 0.0)
    rates = list(range(100))
    f = tg.trace(lambda x, k: x + rates[k])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for k in range(100):
            np.testing.assert_array_equal(f(np.ones(3), k), np.ones(3) + k)
    assert len(told) == 2
    assert "an index at" in str(told[0].message)
    assert re.search("as long as that is quicker.* an index at .* has another answer", str(told[1].message))
    # In a trial of some calls, it is traced too.
    assert f.cache_info().traces <= plain_python_policy.MAX_RETRACES_FOR_ONE + 1 + plain_python_policy.TRIED


@pytest.mark.parametrize(("other_kinds", "calls"), [(False, 9), (True, 13)])
def test_traces_for_kinds_that_are_met_for_a_first_time_may_take_longer(other_kinds: bool, calls: int) -> None:
    function, ours = SimpleNamespace(_counts={"misses": 0}, _specializations=[0]), plain_python_policy.Pace()
    for k in range(1, calls + 1):
        function._counts["misses"] = k
        function._specializations = [0] * (k if other_kinds else 1)
        assert ours._is_due(function, seconds=1.0) is (k == calls)  # type: ignore[arg-type]


@pytest.mark.usefixtures("replayed")
def test_a_rest_ends_in_a_trial_that_programs_win_where_calls_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_python_policy, "REST", 8)
    monkeypatch.setattr(plain_python_policy, "TIMES", 0)
    f = tg.trace(lambda x: np.sum(np.tanh(x) * np.sin(x) + np.cos(x * 2) * np.sqrt(np.abs(x) + 1)))

    def until_it_rests() -> None:
        for k in range(2000):
            f(np.ones(1 + k % 40))
            if f.cache_info().limited:
                return

    with pytest.warns(PerformanceWarning, match="as long as that is quicker"):
        until_it_rests()
    for _ in range(1000):
        f(np.ones(3))
    assert f.cache_info().limited == 0
    assert type(f).__call__ is not type(tg.trace(np.sin)).__call__  # the hot path


@pytest.mark.usefixtures("replayed")
def test_a_function_that_rests_is_recorded_into_the_trace_and_the_derivative_of_another() -> None:
    f = resting()
    outer = tg.trace(lambda x: f(x) * 2)
    for k in range(4):
        np.testing.assert_array_equal(outer(np.full(3, k)), np.full(3, k + 1) * 2)
    assert outer.cache_info().traces == 1
    np.testing.assert_array_equal(tg.grad(lambda x: np.sum(f(x) ** 2))(np.ones(3)), np.full(3, 4.0))
    np.testing.assert_array_equal(tg.vmap(f)(np.ones((2, 3))), np.full((2, 3), 2.0))
    assert f.cache_info().limited == 1


@pytest.mark.usefixtures("replayed")
def test_tensors_keep_their_derivatives_where_a_function_rests() -> None:
    f = resting()
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    (f(x) ** 2).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [4.0, 6.0])


def test_functions_whose_first_calls_compile_do_not_rest() -> None:
    f = tg.trace(lambda x: x + 1, tiered=False)
    calls_in_iteration(f, 100, 400)
    assert f.cache_info().limited == 0


@pytest.mark.usefixtures("replayed")
def test_derivatives_do_not_rest() -> None:
    derivative = tg.grad(lambda x: np.sum(x * x))
    for k in range(400):
        np.testing.assert_array_equal(derivative(np.ones(1 + k % 12)), np.full(1 + k % 12, 2.0))
    assert derivative.cache_info().limited == 0


@pytest.mark.filterwarnings("ignore::tracegrad.errors.PerformanceWarning")
def test_a_function_that_runs_plainly_does_so_for_some_calls_without_a_look_at_their_arguments() -> None:
    class Box:
        """One argument of which no trace is made."""

        def __init__(self, value: float):
            self.value = value

    f = tg.trace(lambda x, box: x * (box if isinstance(box, float) else box.value))
    for k in range(200):
        np.testing.assert_array_equal(f(np.ones(2), Box(k)), np.full(2, float(k)))
    assert f.cache_info().traces == 0
    for k in range(plain_python_policy.BRIEF_REST + 3):
        np.testing.assert_array_equal(f(np.ones(2), float(k)), np.full(2, float(k)))
    assert f.cache_info().traces == 1
    with pytest.raises(AttributeError):
        f(np.ones(2), "text")


@pytest.mark.parametrize("iterations", [3, 4, 6, 9])
def test_a_loop_of_three_iterations_around_a_folded_one_is_not_within_it(attempts: list[Any], iterations: int) -> None:
    def shifted(x: Any, m: int) -> Any:
        for _ in range(3):
            for _ in range(m):
                total, n = sum(t * t for t in x), 0
                while total < 3 and n < 9:
                    x[1:] = x[:-1]
                    total, n = total * 0.5 + 0.4, n + 1
        return x

    f = tg.trace(shifted)
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=6)
        expected = shifted(x.copy(), iterations)
        np.testing.assert_allclose(f(x, iterations), expected, rtol=1e-14)
    assert len(attempts) < 16


def restarting(key: Any) -> Any:
    """A function that asks for another trace each time that it is traced."""

    def f(x: Any) -> Any:
        builder = current_trace()
        if builder is not None:
            raise builder.restarts(key(), "a test wants it")
        return np.sin(x) * 2

    return f


@pytest.mark.parametrize(
    ("key", "most", "why"),
    [
        (lambda: ("the", "same"), 5, "would be traced again without an end, because a test wants it"),
        (lambda: ("another", object()), MAX_ATTEMPTS + 1, "was traced 100 times in .* because a test wants it"),
    ],
)
def test_a_trace_that_begins_again_without_an_end_ends_in_a_plain_run_that_says_why(
    attempts: list[Any], key: Any, most: int, why: str
) -> None:
    f = tg.trace(restarting(key))
    x = np.linspace(0.0, 1.0, 3)
    with pytest.warns(PerformanceWarning, match=rf"runs as plain Python, uncompiled: it {why} \(.*py:\d+\)"):
        np.testing.assert_array_equal(f(x), np.sin(x) * 2)
    assert len(attempts) <= most
    for k in range(3):
        np.testing.assert_array_equal(f(x + k), np.sin(x + k) * 2)
    assert len(attempts) <= most


def test_a_trial_is_of_several_calls_unless_one_takes_far_longer() -> None:
    trial = plain_python_policy.Trial()
    for _ in range(plain_python_policy.MIN_TRIAL_CALLS):
        assert not trial.switched  # a busy machine may have been what took so long
        trial.add(2 * plain_python_policy.LONG)
    assert trial.switched
    trial = plain_python_policy.Trial()
    trial.add((plain_python_policy.FAR + 1) * plain_python_policy.LONG)
    assert trial.switched


@pytest.mark.usefixtures("replayed")
def test_programs_that_are_looked_up_in_iteration_rest_after_a_hundred_calls_or_two() -> None:
    def deep(x: Any, n: int) -> Any:
        return x if n <= 0 else deep(np.sin(x) + 0.1, n - 1)

    f = tg.trace(deep)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for k in range(5 * (plain_python_policy.LOOKED_UP + plain_python_policy.TRIED)):
            assert abs(f(0.5, k % 5) - deep(0.5, k % 5)) < 1e-12
    assert f.cache_info().limited == 1
    assert [x.category for x in told] == [PerformanceWarning]
