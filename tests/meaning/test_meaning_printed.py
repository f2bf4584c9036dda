"""What traced code prints, it prints once in a call, as plain Python does: also where the trace ends before it is
whole, is begun again, or ends in an exception."""

# ruff: noqa: T201

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

pytestmark = pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
LOCK, X, BOX = threading.Lock(), np.array([1.0, 2.0]), [1]


class Labelled(np.ndarray):
    pass


def locked(x: Any) -> Any:
    print("first", x[0] > 0)
    with LOCK:
        return np.sum(x * x)


def fails(x: Any) -> Any:
    print("first")
    if x[0] > 0:
        raise ValueError("no")
    return np.sum(x)


def caught(x: Any) -> Any:
    print("first")
    try:
        return np.sum(x) * x[BOX[0] + 6]
    except IndexError:
        print("second")
        return np.sum(x)


def late(x: Any) -> Any:
    print("first", end=", ")
    print("second", file=sys.stdout, flush=True)
    y = np.sum(x)
    with LOCK:
        print("third", "fourth", sep="-")
    return y


def refused(x: Any) -> Any:
    print("first")
    return np.sum(x) * len(Labelled)  # type: ignore[arg-type]


def looped(x: Any) -> Any:
    total = 0.0
    for i in range(40):
        total = total + x[0] * i
        if i % 20 == 0:
            print("turn", i)
    return total


def looked_at(x: Any) -> Any:
    print("before")
    with contextlib.redirect_stdout(io.StringIO()) as text:
        print("within", end="")
    print(f"[{text.getvalue()}]")
    with LOCK:
        return np.sum(x)


def outcome(f: Any, capsys: Any) -> tuple[str, str]:
    try:
        f(X)
        error = ""
    except Exception as raised:
        error = type(raised).__name__
    return capsys.readouterr().out, error


PROGRAMS = [locked, fails, caught, late, refused, looped, looked_at]


@pytest.mark.parametrize("f", PROGRAMS)
def test_the_first_call_prints_what_plain_python_prints(f: Any, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = outcome(f, capsys)
    for traced in (tg.trace(f), tg.grad(f), lambda x: tg.jvp(f, (x,), (x,))):
        assert outcome(traced, capsys) == wanted
    with tg.disable_jit():
        for traced in (tg.trace(f), tg.grad(f)):
            assert outcome(traced, capsys) == wanted


@pytest.mark.parametrize("f", [locked, fails, late])
def test_calls_that_run_as_plain_python_print_each_time(f: Any, capsys: pytest.CaptureFixture[str]) -> None:
    wanted, traced = outcome(f, capsys), tg.trace(f)
    for _ in range(3):
        assert outcome(traced, capsys) == wanted


def test_what_is_logged_comes_after_what_was_printed_before(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(sys.stdout)
    logger = logging.getLogger("tracegrad.tests.printed")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def f(x: Any) -> Any:
        print("first")
        logger.info("second")
        print("third")
        return np.sum(x)

    try:
        assert outcome(tg.trace(f), capsys)[0] == "first\nsecond\nthird\n"
    finally:
        logger.removeHandler(handler)
