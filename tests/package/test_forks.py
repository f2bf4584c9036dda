"""Children forked while other threads of the parent trace, compile or import: none hangs, all are right."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

HEAD = """
import logging  # before the package: its functions at forks run after the package's
import faulthandler, os, sys, threading, time, warnings
import numpy as np, tracegrad as tg
warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
x = np.linspace(-1.0, 1.0, 12).reshape(3, 4)

class Scale:
    def __init__(self, k):
        self.k = k

    def times(self, x):
        return x * (1.0 + 1.0 / self.k)

def function(k):
    scale = Scale(k)
    def f(x):
        h = scale.times(np.tanh(x @ x.T))
        for place in range(4):
            h = [np.sin, np.cos, np.tanh, np.arctan, np.square][k // 5**place % 5](h)
        return np.sum(h)
    return f

def is_right(k):
    f, g = function(k), tg.value_and_grad(function(k))
    step = 1e-6 * np.cos(np.arange(12.0)).reshape(3, 4)
    for _ in range(2):  # by NumPy, then compiled
        value, gradient = g(x)
        if not np.isclose(value, f(x)) or not np.isclose(np.sum(gradient * step), (f(x + step) - f(x - step)) / 2):
            return False
    return True

def child_is_right(k, also=lambda: True):
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        os._exit(0 if is_right(k) and also() else 3)
    return os.waitpid(child, 0)[1] == 0
"""


def succeeds(script: str, **settings: str) -> None:
    environment = {**os.environ, **settings}
    command = [sys.executable, "-c", HEAD + script + "\nprint('fine')"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.stdout.strip(), ended.returncode) == ("fine", 0), ended.stderr


@pytest.mark.parametrize("first_call", ["replay", "compile", "background"])
def test_children_forked_at_any_moment_beside_a_thread_that_compiles_are_right(first_call: str, tmp_path: Path) -> None:
    script = """
stop = threading.Event()
def work():
    k = 1
    while not stop.is_set():
        k += 7919
        assert is_right(k)
thread = threading.Thread(target=work, daemon=True)
thread.start()
for k in range(12):
    time.sleep(0.02)
    assert child_is_right(90_000 + 104_729 * k)
stop.set()
thread.join()
"""
    succeeds(script, TRACEGRAD_FIRST_CALL=first_call, TRACEGRAD_CACHE_DIR=str(tmp_path))


def test_a_fork_does_not_hold_up_the_imports_of_a_thread_whose_lock_it_waits_for() -> None:
    script = """
holds = threading.Event()
def work():
    logging._lock.acquire()
    holds.set()
    time.sleep(0.1)
    import colorsys
    logging._lock.release()
thread = threading.Thread(target=work, daemon=True)
thread.start()
holds.wait()
assert child_is_right(3)
thread.join()
"""
    succeeds(script)


def test_a_child_forked_while_a_function_of_the_same_code_is_traced_traces_its_own(tmp_path: Path) -> None:
    script = """
import tracegrad.runtime.dispatch.dispatcher as dispatch
from tracegrad.trace.sources.class_patching import ClassPatches
assert is_right(1) and is_right(2)
begun, go, genuine, trace_call = threading.Event(), threading.Event(), Scale.times, dispatch.trace_call
def slow(*args):
    patches = ClassPatches()
    patches.patch(Scale, lambda *_: False)  # as in the middle of a trace
    begun.set(), go.wait()
    patches.restore()
    return trace_call(*args)
dispatch.trace_call = slow
thread = threading.Thread(target=is_right, args=(3,))
thread.start(), begun.wait()
dispatch.trace_call = trace_call
assert Scale.times is not genuine
assert child_is_right(4, lambda: Scale.times is genuine)
assert Scale.times is not genuine
go.set(), thread.join()
assert Scale.times is genuine and is_right(5)
"""
    succeeds(script, TRACEGRAD_CACHE_DIR=str(tmp_path))


def test_a_child_forked_within_a_lock_of_its_own_thread_still_has_it() -> None:
    script = """
from tracegrad.locks import new_lock
lock = new_lock()
def is_held():
    seen = []
    other = threading.Thread(target=lambda: seen.append(lock.acquire(blocking=False)))
    other.start(), other.join()
    return seen == [False]
with lock:
    assert child_is_right(1, is_held)
assert child_is_right(1, lambda: not is_held())
"""
    succeeds(script)


def test_a_fork_waits_for_a_module_that_another_thread_imports(tmp_path: Path) -> None:
    text = "import threading, time\nthreading.current_thread().begun.set()\ntime.sleep(0.5)\nwhole = True\n"
    (tmp_path / "late.py").write_text(text)
    script = f"""
tg.__path__.append({str(tmp_path)!r})
def imports():
    import tracegrad.late
thread = threading.Thread(target=imports)
thread.begun = threading.Event()
thread.start(), thread.begun.wait()
assert child_is_right(1, lambda: sys.modules["tracegrad.late"].whole)
thread.join()
"""
    succeeds(script)
