"""An exception that comes from outside, at any moment, leaves modes, settings, locks, caches and objects as they were.

Python runs signal handlers where a function begins and when a call of C code has returned. There `sys.setprofile` can
raise too, at the n-th such point of a run: the same one each time.
"""

from __future__ import annotations

import _signal
import contextlib
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import settings
from tracegrad.control.while_op import ROOMS
from tracegrad.ir import recorder
from tracegrad.locks import reentrant_lock
from tracegrad.runtime.compile import jit
from tracegrad.runtime.compile.disk_cache import DiskCache
from tracegrad.settings import jit_disabled, unusual
from tracegrad.torch.modes import STATE
from tracegrad.trace.builder import gc_pause
from tracegrad.trace.sources.sources import CURRENT

Action = Callable[[], Any]
POINTS = 25  # at which each scenario is interrupted
MODES = ("enabled", "inference", "depth", "watching", "check_nan", "saving", "refused", "level", "unusual", "sweep")


class Interrupt(KeyboardInterrupt):
    pass


def interrupted(action: Action, number: int) -> tuple[int, Any]:
    """Run `action` and raise `Interrupt` at its point of this number: how many points there were, and the exception
    with all that it holds. Where signals wait there are no points, nor where LLVM's bindings give memory back; and a
    context manager is not interrupted where it begins to end: a class written in Python can do nothing about that."""
    count = 0

    def look(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        if isinstance(_signal.getsignal(signal.SIGINT), MethodType) or "llvmlite" in frame.f_code.co_filename:
            return
        if event in ("call", "c_return") and frame.f_code.co_name not in ("__del__", "__exit__"):
            count += 1
            if count == number:
                sys.setprofile(None)
                raise Interrupt

    sys.setprofile(look)
    try:
        action()
    except Interrupt as error:
        return count, error
    finally:
        sys.setprofile(None)
    return count, None


def modes() -> dict[str, Any]:
    return {
        "modes": [getattr(STATE, name) for name in MODES],
        "recorder": recorder(),
        "unusual": len(unusual),
        "disabled": jit_disabled(),
        "call": CURRENT.call,
        "room": ROOMS.iterations,
        "errors": np.geterr(),
        "settings": dict(vars(settings)),
    }


def held(*functions: Any) -> list[Any]:
    """The locks that this thread still holds."""
    return taken(jit.LOCK, gc_pause._share.lock, *(f._lock for f in functions))


def taken(*locks: Any) -> list[Any]:
    """The locks that another thread cannot acquire."""
    results: list[Any] = []

    def work() -> None:
        for lock in locks:
            if lock.acquire(blocking=False):
                lock.release()
            else:
                results.append(lock)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return results


EYE = np.eye(2)
Scenario = Callable[[], tuple[Action, Callable[[Any], None], Any]]


def branches() -> Any:
    @tg.trace
    def f(x: Any) -> Any:
        return np.sum(np.tanh(x) * 2.0) if x.sum() > 0 else x[0]

    def check(found: Any) -> None:
        np.testing.assert_allclose(found, 6.0 * np.tanh(1.0))

    return lambda: f(np.ones(3)), check, f


def derivatives() -> Any:
    f = tg.value_and_grad(lambda x: np.sum(np.sin(x) ** 2))

    def check(found: Any) -> None:
        np.testing.assert_allclose(found[1], np.full(3, np.sin(2.0)))

    return lambda: f(np.ones(3)), check, f


def loops() -> Any:
    def fun(x: Any) -> Any:
        y = tg.scan(lambda c, row: (c * 0.5 + row, c), x[0], x)[0]
        return tg.cond(y > 11.0, np.sin, lambda v: v * v, tg.while_loop(lambda s: s < 10.0, lambda s: s * 1.5, y))

    f = tg.grad(fun)

    def check(found: Any) -> None:
        y = np.dot([0.375, 0.5, 1.0], [1.0, 2.0, 3.0])
        iterations = np.ceil(np.log(10.0 / y) / np.log(1.5))
        np.testing.assert_allclose(found, 2.0 * y * 1.5 ** (2.0 * iterations) * np.array([0.375, 0.5, 1.0]), rtol=1e-9)

    return lambda: f(np.array([1.0, 2.0, 3.0])), check, f


def tape() -> Any:
    w = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)

    @tg.trace
    def f(x: Any) -> Any:
        with tg.no_grad():
            z = (w * 2.0).sum()
        return (w * x).tanh().sum() + z

    def action() -> Any:
        w.grad = None
        f(tg.tensor([1.0, 1.0, 1.0])).backward()
        return w.grad.numpy()

    def check(found: Any) -> None:
        np.testing.assert_allclose(found, 1.0 - np.tanh([1.0, 2.0, 3.0]) ** 2)

    return action, check, f


def exceptions() -> Any:
    caught: list[Any] = []

    @tg.trace
    def f(K: Any) -> Any:
        try:
            return np.linalg.cholesky(K)
        except np.linalg.LinAlgError:
            caught.append(K[0, 0])
            if K[0, 0] < -1.0:
                raise ValueError("much", K[0, 0]) from None
            return K * 2.0

    def action() -> Any:
        for _ in range(2):
            with contextlib.suppress(ValueError):
                f(-2.0 * EYE)
        return f(EYE), f(-EYE)

    def check(found: Any) -> None:
        np.testing.assert_allclose(found[0], EYE)
        np.testing.assert_allclose(found[1], -2.0 * EYE)
        assert all(isinstance(x, float) for x in caught)

    return action, check, f


def effects() -> Any:
    class Model:
        def __init__(self) -> None:
            self.w, self.losses, self.kept = np.ones(3), [], {"a": np.zeros(2)}

    model = Model()

    @tg.trace
    def f(x: Any) -> Any:
        model.w -= 0.5 * x
        model.losses.append(model.w.sum())
        model.kept["a"] = model.kept["a"] + x[:2]
        model.kept["b"] = x
        return model.w.sum()

    def check(found: Any) -> None:
        assert type(model.w) is type(model.kept["a"]) is type(model.kept["b"]) is np.ndarray
        assert all(isinstance(x, float) for x in model.losses)
        assert found == model.w.sum() == model.losses[-1]
        assert 1 <= len(model.losses) <= 2

    return lambda: f(np.ones(3)), check, f


def contexts() -> Any:
    @tg.trace
    def f(x: Any) -> Any:
        return x + 1.0

    @tg.no_grad()
    def decorated(x: Any) -> Any:
        return x * 2.0

    @tg.disable_jit()
    def eager(x: Any) -> Any:
        return f(x)

    def action() -> Any:
        x = tg.ones(2, requires_grad=True)
        with tg.no_grad(), tg.enable_grad(), tg.disable_jit(), settings.override(num_threads=1, verify=False):
            f(np.ones(2))
        with tg.inference_mode(), tg.disable_jit():
            tg.ones(2) * 2.0
        with tg.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            (x * x).sum().backward()
        with tg.autograd.graph.disable_saved_tensors_hooks("not here"):
            decorated(x)
        with tg.autograd.detect_anomaly(check_nan=False):
            x * x
        return eager(np.ones(2))

    def check(found: Any) -> None:
        np.testing.assert_array_equal(found, [2.0, 2.0])

    return action, check, f


SCENARIOS: list[Scenario] = [branches, derivatives, loops, tape, exceptions, effects, contexts]


@pytest.fixture(autouse=True)
def _what_cannot_be_raised() -> Iterator[None]:
    # Processes that a shell has put into the background ignore the signal, and none of ours would wait for it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with warnings.catch_warnings():
        # An interrupt in a finalizer is told and dropped; detect_anomaly warns that it is slow.
        warnings.simplefilter("ignore")
        yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_interrupt_at_any_moment_leaves_everything_as_it_was(scenario: Scenario) -> None:
    total = 0
    for _ in range(2):  # what is only done once is not compared
        total, _ = interrupted(scenario()[0], -1)
    numbers = random.Random(scenario.__name__).sample(range(1, total + 1), min(POINTS, total))
    for number in numbers:
        action, check, f = scenario()
        before = modes()
        _, error = interrupted(action, number)
        where = f"point {number} of {total}"
        # While the exception is alive, and keeps alive what it met.
        assert modes() == before, where
        assert held(f) == [], where
        check(action())
        assert modes() == before, where
        del error


def test_an_interrupted_with_statement_holds_no_lock() -> None:
    lock = reentrant_lock()

    def action() -> None:
        with lock, lock:
            str(lock)

    total, _ = interrupted(action, -1)
    for number in range(1, total + 1):
        assert interrupted(action, number)[0] == number
        assert taken(lock) == []


class Store:
    """An object with attributes."""

    def __init__(self) -> None:
        self.w, self.t, self.n, self.last = np.zeros(2), tg.zeros(2), 0, np.zeros(2)
        self.log: list[Any] = []
        self.recent: Any = deque([0], maxlen=2)
        self.more: list[Any] = []
        self.items: dict[str, Any] = {"old": 0, "n": 0}

    def state(self) -> tuple[Any, ...]:
        items = {k: v for k, v in self.items.items() if k != "old"}
        return self.w[0], self.last[0], self.n, len(self.log), max(self.recent), len(self.more), items.get("n", 0)


class Guarded(Store):
    """One whose class sets attributes in its own way."""

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def simple(s: Any, x: Any) -> None:
    s.w += x
    s.n += 1
    s.last = s.last + x
    s.log.append(s.last[0])
    s.recent.append(s.n)
    s.more.append(s.n)
    s.items["n"] = s.items["n"] + 1


def hard(s: Any, x: Any) -> None:
    n = s.items["n"] + 1
    s.items.clear()
    s.items["other"] = x
    s.items["n"] = n
    simple(s, x)
    s.items["n"] = n
    s.recent.clear()
    s.recent.append(n)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("cls", [Store, Guarded])
@pytest.mark.parametrize("update", [simple, hard])
def test_an_interrupt_leaves_all_effects_of_a_call_or_none(update: Any, cls: Any, slow: bool) -> None:
    s, x = cls(), np.ones(2)
    f: Any = tg.trace(lambda x: update(s, x))
    plain = type(f)  # which asks on the slow path

    def action() -> None:
        if slow:
            f.__class__ = plain
        f(x)

    for _ in range(4):
        action()
    total, _ = interrupted(action, -1)
    # What a call does last is where it writes.
    some = random.Random(0).sample(range(1, total + 1), min(POINTS, total))
    for number in sorted({*some, *range(max(1, total - 3 * POINTS), total + 1)}):
        before = s.state()
        interrupted(action, number)
        steps = {b - a for a, b in zip(before, s.state())}
        assert steps in ({0.0}, {1.0}), f"point {number} of {total}: {before} and {s.state()}"
    assert f.cache_info().traces <= 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_write_leaves_no_file_that_is_used(tmp_path: Any) -> None:
    data = bytes(range(256)) * 8
    total, _ = interrupted(lambda: DiskCache(tmp_path / "first").put("key", {}, data), -1)
    for number in range(1, total + 1):
        cache = DiskCache(tmp_path / str(number))
        interrupted(lambda cache=cache: cache.put("key", {}, data), number)
        result = cache.get("key")
        assert result is None or result[1] == data
        cache.put("key", {}, data)
        again = cache.get("key")
        assert again is not None
        assert again[1] == data


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="a signal that nobody else uses")
def test_an_exception_of_a_signal_handler_ends_the_call_and_nothing_else() -> None:
    calls: list[int] = []
    ring = [True]

    class TimeIsUp(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise TimeIsUp

    @tg.trace
    def f(x: Any) -> Any:
        calls.append(1)
        if ring[0]:
            signal.raise_signal(signal.SIGUSR1)
        return x + 1.0

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        for _ in range(2):
            with pytest.raises(TimeIsUp):
                f(np.ones(2))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(calls) <= 2
    ring[0] = False
    np.testing.assert_array_equal(f(np.ones(2)), [2.0, 2.0])
    assert f.cache_info().traces == 1


def _calls_in_iteration(f: Any, i: int) -> None:
    """Calls that succeed, that raise, and in which an exception is caught."""
    n = float(i)
    for iteration in range(6):
        if (i + iteration) % 3 == 0:
            with pytest.raises(ValueError, match="large") as caught:
                f(100.0 * EYE, n)
            assert caught.value.args == ("large", n)
        elif (i + iteration) % 3 == 1:
            np.testing.assert_allclose(f(4.0 * EYE, n), 2.0 * n * EYE)
        else:
            np.testing.assert_allclose(f(-EYE, n), -EYE - n)


@pytest.mark.parametrize("iteration", range(3))
def test_threads_call_a_new_function_while_others_raise(iteration: int) -> None:
    barrier, failures = threading.Barrier(16), []

    @tg.trace
    def f(K: Any, n: Any) -> Any:
        if K[0, 0] > 50.0:
            raise ValueError("large", n)
        try:
            return np.linalg.cholesky(K) * n
        except np.linalg.LinAlgError:
            return K - n

    def work(i: int) -> None:
        barrier.wait()
        try:
            _calls_in_iteration(f, i)
        except BaseException as error:  # told by the thread that asks
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no clock that sends signals")
@pytest.mark.parametrize("size", [2, 300], ids=["with the GIL", "without the GIL"])
def test_a_loop_that_does_not_end_is_interrupted(size: int) -> None:
    done: list[int] = []
    begun = np.zeros(1)

    @tg.trace
    def f(x: Any, most: Any) -> Any:
        begun[0] += 1
        done.append(1)
        y = tg.while_loop(lambda y: y[0, 0] < most, lambda y: np.cos(y) @ x, x)
        return tg.scan(lambda y, i: (np.sin(y) + i, None), y[0], np.ones(3))[0]

    def handler(number: int, frame: Any) -> None:
        raise Interrupt

    x = np.eye(size)
    f(x, -1.0)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(Interrupt):
            f(x, np.inf)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (begun[0], len(done)) == (1, 1)
    f(x, -1.0)
    assert (begun[0], len(done)) == (2, 2)


def test_a_loop_that_does_not_end_lets_other_threads_go_on() -> None:
    code = "\n".join(
        (
            "import os, threading, time, numpy as np, tracegrad as tg",
            "f = tg.trace(lambda x: tg.while_loop(lambda y: y < np.inf, np.cos, x))",
            "thread = threading.Thread(target=f, args=(1.0,), daemon=True)",
            "thread.start()",
            "time.sleep(0.3)",
            "print(sum(range(1000)), thread.is_alive(), flush=True)",
            "os._exit(0)",
        )
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["499500", "True"]
