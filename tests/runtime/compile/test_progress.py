"""The line on the terminal while something is compiled for long."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.runtime.compile import code_store, progress
from tracegrad.settings import settings


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A terminal on which the line appears soon."""
    monkeypatch.setattr(settings, "progress", True)
    monkeypatch.setattr(progress, "AFTER", 0.01)
    monkeypatch.setattr(progress, "BETWEEN", 0.005)
    result = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=result))  # pytest has the other one
    return result


def screen(text: str) -> str:
    """What is left on the line of a terminal."""
    line: list[str] = []
    at = 0
    for letter in text:
        if letter == "\r":
            at = 0
            continue
        line[at : at + 1] = [letter]
        at += 1
    return "".join(line).rstrip()


def test_the_line_tells_the_function_and_its_kernels_and_is_erased(terminal):
    with progress.compiling("grad(loss)"):
        progress.advance(added=7)
        progress.advance(done=3)
        wait_for(lambda: "3 of 7" in terminal.getvalue())
        assert screen(terminal.getvalue()).startswith("tracegrad: compiling grad(loss): 3 of 7 kernels, 0.")
    assert screen(terminal.getvalue()) == ""
    assert terminal.getvalue().endswith("\r")


def wait_for(holds) -> None:
    end = time.perf_counter() + 5
    while not holds():
        assert time.perf_counter() < end, "it has not come to that"
        time.sleep(0.002)


def test_it_counts_the_kernels_of_a_program(terminal, monkeypatch):
    counted = []
    slow = code_store._compile

    def object_slowly(*args):
        result = slow(*args)
        time.sleep(0.03)
        counted.append(str(progress._line))
        return result

    monkeypatch.setattr(code_store, "_compile", object_slowly)
    monkeypatch.setattr(settings, "cache", False)
    monkeypatch.setattr(code_store, "_MAX_MODULE_KERNELS", 1)

    def measured(x):
        return np.cumsum(np.exp(x @ x.T) * 0.1875).sum() + np.arctan(x).sum(axis=0)

    tg.trace(measured)(np.ones((20, 20)))
    total = len(counted)
    assert total >= 2
    for k, text in enumerate(counted, 1):
        assert "measured: " in text
        assert f" {k} of {total} kernels, " in text
    assert "measured: 1 of " in terminal.getvalue()
    assert screen(terminal.getvalue()) == ""


def test_what_is_quick_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 60.0)
    tg.trace(lambda x: x * 0.71875 + 2)(np.ones(5))
    assert terminal.getvalue() == ""


def test_a_compilation_that_fails_leaves_no_line(terminal):
    def fail():
        with progress.compiling("f"):
            wait_for(terminal.getvalue)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert screen(terminal.getvalue()) == ""
    assert progress._line is None


def test_a_setting_switches_it_off(terminal):
    settings.progress = False
    with progress.compiling("f"):
        time.sleep(0.05)
    assert terminal.getvalue() == ""


def test_what_is_no_terminal_gets_nothing(terminal, monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=file))
    with progress.compiling("f"):
        time.sleep(0.05)
    assert file.getvalue() == ""
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=None))
    with progress.compiling("f"):
        pass


def test_other_threads_show_and_count_nothing(terminal):
    def other():
        progress.advance(added=5)
        with progress.compiling("other"):
            time.sleep(0.05)

    with progress.compiling("mine"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        wait_for(terminal.getvalue)
        assert "mine" in str(progress._line)
        assert "kernels" not in str(progress._line)
    assert "other" not in terminal.getvalue()


def test_a_terminal_that_is_gone_stops_nothing(terminal):
    with progress.compiling("f"):
        terminal.close()
        time.sleep(0.05)


def test_no_thread_is_left(terminal):
    with progress.compiling("f"):
        assert "tracegrad-progress" in [t.name for t in threading.enumerate()]
    assert "tracegrad-progress" not in [t.name for t in threading.enumerate()]


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals to make here")
def test_on_a_real_terminal(tmp_path):
    program = """
import numpy as np, tracegrad as tg
from tracegrad.runtime.compile import progress
progress.AFTER, progress.BETWEEN = 0.0, 0.001
tg.grad(lambda x: np.sum(np.exp(np.sin(x @ x)) * 0.40625))(np.ones((20, 20)))
"""
    ours, theirs = os.openpty()
    environment = {**os.environ, "TRACEGRAD_PROGRESS": "1", "TRACEGRAD_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", program], stderr=theirs, env=environment, check=False)
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):  # a terminal that nobody writes to any more
        while chunk := os.read(ours, 65536):
            written += chunk
    os.close(ours)
    assert run.returncode == 0
    text = written.decode()
    assert "tracegrad: compiling grad(<lambda>): " in text
    assert screen(text) == ""
