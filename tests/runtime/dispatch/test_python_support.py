"""Functions are traced only on a Python that is as the tracer assumes: a record of the self-test, or an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.runtime.dispatch import python_support
from tracegrad.trace.rewriting import self_test


@pytest.fixture(autouse=True)
def _asked_again(tmp_path: Any) -> Iterator[None]:
    python_support.problems.cache_clear()
    with tg.settings.override(cache_dir=tmp_path):
        yield
    python_support.problems.cache_clear()


def _f(x: Any) -> Any:
    return np.sum(x * x)


def test_this_python_is_known() -> None:
    assert self_test.failed_checks() == ()
    assert python_support.problems() == ()


def test_the_self_test_runs_once_and_its_result_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert python_support.problems() == ()
    monkeypatch.delattr(self_test, "failed_checks")
    python_support.problems.cache_clear()
    assert python_support.problems() == ()


@pytest.mark.parametrize("made", [tg.trace, tg.grad])
def test_a_later_version_is_refused_but_for_the_setting(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_support, "FIRST_UNKNOWN", (3, 11))
    x = np.arange(3.0)
    with pytest.raises(tg.UnsupportedError, match=r"Python 3\.11 and later are not known.*TRACEGRAD_UNKNOWN_PYTHON=1"):
        made(_f)(x)
    with tg.settings.override(unknown_python=True):
        np.testing.assert_array_equal(made(_f)(x), 5.0 if made is tg.trace else 2 * x)


def test_tensors_need_no_known_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_support, "FIRST_UNKNOWN", (3, 11))
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0])


def test_a_failed_check_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> bool:
        raise SystemError("unknown opcode")

    monkeypatch.setitem(self_test._CHECKS, "loops are found in code", fails)
    with pytest.raises(tg.UnsupportedError, match="the self-test found that not: loops are found in code"):
        tg.trace(_f)(np.arange(3.0))


def test_another_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_support.sys.implementation, "name", "pypy")
    assert python_support.problems() == ("its instructions are not those of CPython",)
