"""32 threads that call, differentiate, compile and train at once: no wrong number, no lost update, no crash.

Builds without a GIL run the threads truly at once. With a GIL, the tests switch between them often.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from threads import frequent_switches, together

import tracegrad as tg

THREADS = 32
CALLS = 10_000 // THREADS + 1


@pytest.fixture(autouse=True)
def _switches() -> Iterator[None]:
    with frequent_switches():
        yield


def vector(i: int, size: int = 5) -> Any:
    return np.linspace(0.1, 1.0, size) + i


# -- compiled functions ----------------------------------------------------------------------------------------------
def scaled_tanh(x: Any) -> Any:
    return np.tanh(x) * 3.0 - x


def summed(x: Any) -> Any:
    return np.sum(np.tanh(x) * 3.0 - x)


TRANSFORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[[Any], Any]]] = {
    "value": (tg.trace, scaled_tanh, lambda x: np.tanh(x) * 3.0 - x),
    "gradient": (tg.grad, summed, lambda x: 3.0 / np.cosh(x) ** 2 - 1.0),
    "batch": (tg.vmap, scaled_tanh, lambda x: np.tanh(x) * 3.0 - x),
    "Jacobian": (tg.jacobian, scaled_tanh, lambda x: np.diag(3.0 / np.cosh(x) ** 2 - 1.0)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_new_function_is_traced_once_and_right_in_each_thread(name: str) -> None:
    transform, function, expected = TRANSFORMS[name]
    copy: Any = types.FunctionType(function.__code__, globals())  # which has no results of earlier tests
    if transform is tg.trace:  # each call of it makes a traced function; a derivative is made once
        copy = tg.trace(copy)
    derived = (lambda: copy) if transform is tg.trace else (lambda: transform(copy))
    for i, result in enumerate(together(THREADS, lambda i: derived()(vector(i)))):
        np.testing.assert_allclose(result, expected(vector(i)), rtol=1e-12, atol=1e-13)
    assert derived().cache_info().traces == 1


SCALE = 2.0


def with_state(x: Any, options: dict[str, Any], others: list[Any]) -> Any:
    y = x * SCALE + options["shift"]
    for z in others:
        y = y * z
    return np.outer(y, y) @ y


# On a busy machine, plain Python may be measured as faster.
@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
def test_ten_thousand_calls_of_a_compiled_function_are_right() -> None:
    f = tg.trace(with_state)
    sizes, args = (3, 40), {}
    for size in sizes:
        for i in range(THREADS):
            x, shift, others = vector(i, size), float(i), [vector(1, size), vector(i % 3, size)]
            y = (x * SCALE + shift) * others[0] * others[1]
            args[i, size] = (x, {"shift": shift}, others), np.outer(y, y) @ y
        f(*args[0, size][0])
        f(*args[0, size][0])

    def work(i: int) -> int:
        wrong = 0
        for k in range(CALLS):
            given, expected = args[i, sizes[(i + k // 50) % 2]]
            wrong += not np.allclose(f(*given), expected, rtol=1e-10)
        return wrong

    assert sum(together(THREADS, work)) == 0
    assert f.cache_info().traces == len(sizes)


def test_new_shapes_and_paths_of_one_function_do_not_mix() -> None:
    f = tg.value_and_grad(lambda x, n: np.sum(np.sin(x) ** n) if x[0] > 1.0 else np.sum(x * n))

    def work(i: int) -> None:
        x, n = vector(i % 3, 2 + i % 5), 1.0 + i
        for _ in range(3):
            value, slope = f(x, n)
            if x[0] > 1.0:
                np.testing.assert_allclose(value, np.sum(np.sin(x) ** n), rtol=1e-11)
                np.testing.assert_allclose(slope, n * np.sin(x) ** (n - 1) * np.cos(x), rtol=1e-9, atol=1e-12)
            else:
                np.testing.assert_allclose(value, np.sum(x * n), rtol=1e-12)
                np.testing.assert_array_equal(slope, np.full_like(x, n))

    together(THREADS, work)
    assert f.cache_info().traces == 10  # none is lost: five shapes, and two answers to the question


def reads_items(x: Any, table: dict[str, Any], items: list[Any]) -> Any:
    return x + table["first"] + table["second"] + items[0] + items[1] + SHIFT


SHIFT = 0.0


def test_a_call_reads_items_and_globals_from_before_or_after_a_change() -> None:
    """Some threads replace what a dict, a list and the module hold, and shorten the list for a moment; others call."""
    global SHIFT
    f = tg.trace(reads_items)
    table, items = {"first": np.zeros(4), "second": np.zeros(4)}, [np.zeros(4), np.zeros(4)]
    x, possible = np.ones(4), {1.0 + k for k in range(6)}
    f(x, table, items)

    def work(i: int) -> set[float]:
        global SHIFT
        results = set()
        for k in range(200):
            if i % 4 == 0:
                table["first"] = np.full(4, float(k % 2))
                items[k % 2] = np.full(4, float(k % 2))
                table["second"] = np.full(4, float(k % 2))
                items.append(items[0])
                items.pop()
                SHIFT = float(k % 2)
            else:
                results.update(f(x, table, items).tolist())
        return results

    try:
        assert set().union(*together(8, work)) <= possible
    finally:
        SHIFT = 0.0


@dataclasses.dataclass
class Line:
    slope: Any
    offset: Any

    def __call__(self, x: Any) -> Any:
        return self.apply(x) + self.offset

    def apply(self, x: Any) -> Any:
        total = x * 0.0
        for _ in range(12):
            total = total + self.slope * x
        return total


def test_threads_that_trace_functions_of_their_own_share_classes_and_code() -> None:
    """Each thread patches the class, rerolls a loop, and compiles the same kernels."""

    def work(i: int) -> None:
        slopes = tg.grad(lambda line, x: np.sum(line(x) ** 2))
        line, x = Line(1.0 + i, vector(i)), vector(2)
        for _ in range(2):
            result = slopes(line, x)
            y = 2.0 * (12.0 * line.slope * x + line.offset)
            np.testing.assert_allclose(result.slope, np.sum(y * 12.0 * x), rtol=1e-11)
            np.testing.assert_allclose(result.offset, y, rtol=1e-11)

    before = dict(vars(Line))
    together(THREADS, work)
    assert dict(vars(Line)) == before


@tg.trace
def counted(x: Any, log: list[Any]) -> Any:
    log.append(len(log))
    return x + 1.0


def test_effects_of_calls_are_not_lost() -> None:
    logs: list[list[int]] = [[] for _ in range(THREADS)]

    def work(i: int) -> None:
        for _ in range(40):
            counted(vector(i), logs[i])

    together(THREADS, work)
    assert logs == [[*range(40)]] * THREADS


def test_modes_and_settings_hold_for_their_thread() -> None:
    f = tg.trace(lambda x: np.exp(x))
    f(vector(0))

    def work(i: int) -> None:
        x = vector(i)
        for _ in range(20):
            if i % 2:
                with tg.disable_jit():
                    np.testing.assert_allclose(f(x), np.exp(x), rtol=1e-14)
                with tg.no_grad():
                    assert not (tg.tensor(x, requires_grad=True) * 2.0).requires_grad
            else:
                np.testing.assert_allclose(f(x), np.exp(x), rtol=1e-14)
                assert (tg.tensor(x, requires_grad=True) * 2.0).requires_grad

    together(THREADS, work)


# -- the tape --------------------------------------------------------------------------------------------------------
def test_eager_tapes_are_separate() -> None:
    def work(i: int) -> None:
        for k in range(20):
            x = tg.tensor(vector(i, 3 + k % 4), requires_grad=True)
            y = (x.sin() * x).sum() + (x.reshape(-1, 1) @ x.reshape(1, -1)).diagonal().sum() + x.softmax(0).prod()
            (y - x.softmax(0).prod()).backward()
            a = x.detach().numpy()
            np.testing.assert_allclose(x.grad.numpy(), np.cos(a) * a + np.sin(a) + 2.0 * a, rtol=1e-10, atol=1e-12)

    together(THREADS, work)


def test_gradients_of_a_shared_leaf_are_all_added() -> None:
    x = tg.zeros(3, requires_grad=True)
    step = tg.trace(lambda t: (t * 2.0).sum())

    def work(i: int) -> None:
        for _ in range(20):
            (step(x) if i % 2 else (x * 2.0).sum()).backward()

    together(THREADS, work)
    assert x.grad.tolist() == [2.0 * 20 * THREADS] * 3


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_optimizers_of_separate_modules_train_as_alone(compiled: bool) -> None:
    x = tg.tensor(np.linspace(-1.0, 1.0, 24).reshape(8, 3))
    target = (x**2).sum(1, keepdim=True)

    def train(i: int) -> list[float]:
        tg_weights = np.linspace(-0.5, 0.5, 12).reshape(4, 3) * (1.0 + i % 4)
        model = tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.Tanh(), tg.nn.Linear(4, 1)).double()
        with tg.no_grad():
            model[0].weight.copy_(tg.tensor(tg_weights))
            model[2].weight.copy_(tg.tensor(tg_weights[:, 0].reshape(1, 4)))
            for p in (model[0].bias, model[2].bias):
                p.zero_()
        optimizer = (tg.optim.Adam if i % 2 else tg.optim.SGD)(model.parameters(), lr=0.05)

        def step() -> Any:
            optimizer.zero_grad()
            loss = ((model(x) - target) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = tg.trace(step) if compiled else step
        return [run().item() for _ in range(6)]

    alone = [train(i) for i in range(4)]
    for i, losses in enumerate(together(THREADS if not compiled else 8, train)):
        np.testing.assert_allclose(losses, alone[i % 4], rtol=1e-9)


# -- the interpreter -------------------------------------------------------------------------------------------------
@pytest.mark.skipif(not hasattr(sys, "_is_gil_enabled"), reason="Python 3.13 and later can run without a GIL")
def test_the_package_leaves_the_gil_as_the_build_has_it() -> None:
    import sysconfig

    assert sys._is_gil_enabled() is not bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
