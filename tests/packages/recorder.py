"""A plugin of pytest that writes down what became of each test, as it ends, with a limit on its time.

It is loaded where a package's tests run, in another environment than this one.
"""

from __future__ import annotations

import json
import os
import random
import signal
from typing import Any

import pytest

OUTCOMES, SECONDS = "PACKAGES_OUTCOMES", "PACKAGES_SECONDS"


def pytest_runtest_setup(item: Any) -> None:
    random.seed(0)
    try:
        import numpy as np
    except ImportError:
        return
    np.random.seed(0)  # noqa: NPY002 the generator that such tests draw from


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Any:
    def late(*_: Any) -> None:
        raise TimeoutError("the time of a test is over")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(int(os.environ.get(SECONDS, "60")))
    outcome = yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    # Without its traceback, which may lead through code that pytest cannot show.
    if outcome.excinfo is not None and issubclass(outcome.excinfo[0], TimeoutError):
        outcome.force_exception(pytest.fail.Exception("the time of a test is over", pytrace=False))


def pytest_runtest_logreport(report: Any) -> None:
    if OUTCOMES not in os.environ or (report.when != "call" and report.passed):
        return
    with open(os.environ[OUTCOMES], "a", encoding="utf-8") as file:
        row = {"test": report.nodeid, "outcome": report.outcome, "seconds": report.duration, "why": _reason(report)}
        file.write(json.dumps(row) + "\n")


def pytest_collectreport(report: Any) -> None:
    if OUTCOMES in os.environ and report.failed:
        with open(os.environ[OUTCOMES], "a", encoding="utf-8") as file:
            row = {"test": report.nodeid, "outcome": "failed", "seconds": 0.0, "why": str(report.longrepr)[-400:]}
            file.write(json.dumps(row) + "\n")


def _reason(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return "" if report.passed else str(getattr(crash, "message", report.longrepr))[:400]
