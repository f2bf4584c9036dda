"""SciPy's own BLAS has one thread while a minimizer gives it short factors, and its threads again afterwards."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from scipy import linalg, optimize

import tracegrad as tg
from tracegrad.solvers import scipy_function
from tracegrad.solvers.blas_threads import one_thread

MANY = 3


def threads() -> int:
    (result,) = [one for one in threadpoolctl.threadpool_info() if Path(one["filepath"]).parent.name == "scipy.libs"]
    return int(result["num_threads"])


@pytest.fixture(autouse=True)
def _many_threads() -> Iterator[None]:
    assert linalg.det(np.eye(2)) == 1.0  # the library is loaded
    with threadpoolctl.threadpool_limits(MANY):
        yield
        assert threads() == MANY


def cost(x: Any) -> Any:
    return np.sum((x - 1.0) ** 2)


def noting(function: Any, seen: list[int]) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        seen.append(threads())
        return function(*args, **kwargs)

    return call


@pytest.mark.parametrize(("method", "wanted"), [("L-BFGS-B", 1), ("slsqp", 1), (None, 1), ("trust-exact", MANY)])
def test_it_has_one_thread_for_methods_of_short_factors(
    method: str | None, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(
        import_module("tracegrad.scipy.minimize"), "of_scipy", lambda _: noting(optimize.minimize, seen)
    )
    np.testing.assert_allclose(tg.scipy.minimize(cost, np.zeros(2), method=method).x, 1.0, rtol=1e-6)
    assert seen == [wanted]


@pytest.mark.parametrize(("method", "wanted"), [("L-BFGS-B", 1), ("SLSQP", 1), ("CG", MANY)])
def test_it_has_one_thread_for_these_methods_in_traced_functions(
    method: str, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = scipy_function.scipy_function
    monkeypatch.setattr(
        scipy_function,
        "scipy_function",
        lambda name: noting(real(name), seen) if name == "optimize.minimize" else real(name),
    )

    @tg.trace
    def solved(start: Any) -> Any:
        return optimize.minimize(cost, start, method=method).x

    np.testing.assert_allclose(solved(np.zeros(2)), 1.0, rtol=1e-6)
    assert set(seen) == {wanted}


def test_it_has_its_threads_again_when_the_last_block_ends_by_an_error_too() -> None:
    def costs(x: Any) -> Any:
        assert tg.scipy.minimize(cost, np.zeros(2), method="L-BFGS-B").success
        assert threads() == 1
        raise KeyError

    with pytest.raises(KeyError):
        tg.scipy.minimize(costs, np.zeros(2), method="L-BFGS-B", jac=lambda x: x)
    assert threads() == MANY


def test_blocks_in_several_threads_end_in_any_order() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_thread():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        assert inside.wait(10)
    assert threads() == 1
    leave.set()
    thread.join()
    assert threads() == MANY


def test_an_interrupted_block_that_has_not_begun_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from tracegrad.solvers import blas_threads

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with one_thread():
        monkeypatch.setattr(blas_threads, "_enter", interrupted)
        with pytest.raises(KeyboardInterrupt), one_thread():
            pass
        assert threads() == 1
