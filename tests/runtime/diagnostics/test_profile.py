"""`f.profile`: what a call takes its time for, with what its steps read, write and compute."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import tracegrad as tg
import tracegrad.profile
from tracegrad.errors import UnsupportedError
from tracegrad.runtime.diagnostics import machine_peaks as measured
from tracegrad.runtime.diagnostics.machine_peaks import Machine
from tracegrad.settings import settings

rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def a_machine_that_is_known(monkeypatch):
    """Nothing has to be measured for most tests; the machine computes 1e9 operations and moves 1e9 bytes a second."""
    monkeypatch.setattr(measured, "bandwidth", lambda threads: 1e9)
    monkeypatch.setattr(measured, "peak", lambda threads, dtype: 1e9)


def loss(w, x, y):
    h = np.tanh(x @ w)
    return np.mean((h - y) ** 2)


W, X, Y = rng.standard_normal((30, 20)), rng.standard_normal((50, 30)), rng.standard_normal((50, 20))


def test_a_profile_has_the_steps_of_explain_in_their_order():
    f = tg.value_and_grad(loss)
    profile, explained = f.profile(W, X, Y), f.explain(W, X, Y)
    numbers = [i for step in profile.steps for i in step.numbers]
    assert numbers == list(range(len(numbers)))
    kinds = {"product": "matmul", "kernel": "kernel"}
    for step in profile.steps:
        (line,) = [x for x in explained.groups if x.startswith(f"{step.numbers[0]}: ")]
        assert line.split()[1] == kinds[step.kind]
    assert [step.kind for step in profile.steps].count("product") == 2


def test_shares_are_parts_of_one_and_seconds_of_a_call():
    profile = tg.grad(loss)(W, X, Y) is not None and tg.grad(loss).profile(W, X, Y)
    assert math.isclose(sum(step.share for step in profile.steps), 1.0)
    assert math.isclose(sum(step.seconds for step in profile.steps), profile.seconds)
    assert all(step.seconds >= 0 for step in profile.steps)
    assert 0 < profile.call_seconds < 0.5
    assert profile.runs >= 5


def test_products_and_kernels_are_counted_as_by_hand():
    profile = tg.trace(lambda w, x, y: x @ w - y * y).profile(W, X, Y)
    product, kernel = profile.steps
    assert product.flops == 2 * 50 * 30 * 20
    assert product.bytes == 8 * (50 * 30 + 30 * 20 + 50 * 20)
    assert kernel.flops == 2 * 50 * 20
    assert kernel.bytes == 3 * 8 * 50 * 20


@pytest.mark.parametrize(
    ("f", "args", "size", "flops"),
    [
        (lambda x: x + 1.0, (np.ones(100),), 1600, 100),
        (lambda x: x + 1.0, (np.ones(100, "f4"),), 800, 100),
        (lambda x: x.sum(), (np.ones(100),), 808, 100),
        (lambda x: np.exp(x), (np.ones(100),), 1600, 2000),
        (lambda x, v: x * v, (np.ones((50, 20)), np.ones(20)), 8 * (1000 + 20 + 1000), 1000),
        (lambda x: x[2:] + x[:-2], (np.ones(102),), 8 * (102 + 100), 100),  # two reads of most places
        (lambda x, i: x[i], (np.ones(1000), np.arange(20)), 8 * (20 + 20 + 20), 0),
        (lambda x: x.T.copy(), (np.ones((50, 20)),), 16000, 0),
        (lambda x: x * 2 == 4, (np.arange(100),), 900, 0),  # of integers
    ],
    ids=["add", "float32", "sum", "exp", "broadcast", "overlapping", "gather", "move", "integers"],
)
def test_the_work_of_one_kernel(f, args, size, flops):
    (step,) = tg.trace(f).profile(*args).steps
    assert (step.bytes, step.flops, step.kind) == (size, flops, "kernel")
    assert step.dtype == ("f32" if args[0].dtype == np.float32 else "f64")


def test_more_work_takes_longer():
    def f(x, y):
        return np.sin(x).sum(), (y + 1.0).sum()

    profile = tg.trace(f).profile(np.ones(1_000_000), np.ones(100))
    large, small = (next(s for s in profile.steps if str(n) in s.what.split()) for n in (1_000_000, 100))
    assert large.seconds > 20 * small.seconds


def test_a_loop_tells_its_iterations_and_their_work():
    def heat(u):
        u = u.copy()
        for _ in range(300):
            u[1:-1] += 0.1 * (u[2:] - u[:-2])
        return u

    profile = tg.trace(heat).profile(np.ones(100))
    (loop,) = [step for step in profile.steps if step.kind == "loop"]
    assert loop.iterations == 300
    assert 300 * 98 * 3 <= loop.flops <= 300 * 100 * 3  # what is outside of the part may be computed too
    assert any(line.startswith(__file__) for line in loop.lines)
    assert "300 iterations, " in str(profile)


def test_the_iterations_of_a_loop_that_asks_are_not_known():
    def root(a):
        return tg.while_loop(lambda x: np.abs(x * x - a) > 1e-12, lambda x: 0.5 * (x + a / x), a)

    (loop,) = tg.trace(root).profile(2.0).steps
    assert (loop.kind, loop.iterations, loop.flops) == ("loop", None, None)


def test_a_call_of_numpy_is_a_step_whose_operations_nobody_counts():
    profile = tg.trace(lambda a: np.linalg.eigvalsh(a) * 2).profile(np.eye(20))
    call = next(step for step in profile.steps if step.kind == "NumPy")
    assert (call.what, call.flops, call.speed, call.of_peak) == ("eigvalsh", None, None, None)
    assert call.bytes == 8 * (400 + 20)


def test_routines_of_lapack_are_counted_as_in_its_manual():
    def f(a, y):
        return np.linalg.cholesky(a), np.linalg.solve(a, y)

    profile = tg.trace(f).profile(np.eye(60), np.ones((60, 7)))
    flops = {step.what: step.flops for step in profile.steps if step.kind == "LAPACK"}
    assert flops == {"cholesky": 60**3 // 3, "solve": 2 * 60**3 // 3 + 2 * 60**2 * 7}


def test_lines_are_those_of_the_user():
    def f(x):
        y = np.exp(x)
        z = y * y
        return z.sum()

    (step,) = tg.trace(f).profile(np.ones(100)).steps
    first = f.__code__.co_firstlineno
    assert step.lines == tuple(f"{__file__}:{first + k}" for k in (1, 2, 3))
    assert f"test_profile.py:{first + 1}-{first + 3}" in str(tg.trace(f).profile(np.ones(100)))


def test_a_profile_does_nothing_to_the_world():
    seen, a = [], np.zeros(3)

    @tg.trace
    def f(x):
        seen.append(np.sum(x))
        a[0] += 1.0
        x += 1.0
        return x * 2

    x = np.ones(3)
    f(x)
    before = a.copy(), x.copy(), list(seen)
    f.profile(x)
    assert np.array_equal(a, before[0])
    assert np.array_equal(x, before[1])
    assert seen == before[2]


def test_what_has_no_machine_code_yet_is_compiled(monkeypatch):
    monkeypatch.setattr(settings, "first_call", "replay")
    (step,) = tg.trace(lambda x: x * 0.828125 + 3).profile(np.ones(100)).steps
    assert (step.kind, step.flops) == ("kernel", 200)


def test_captured_arrays_and_answers_are_those_of_now():
    scale = np.full(100, 2.0)

    @tg.trace
    def f(x):
        return x * scale if x.sum() > 0 else np.sort(x)

    assert {step.kind for step in f.profile(np.ones(100)).steps} == {"kernel"}
    assert "NumPy" in {step.kind for step in f.profile(-np.ones(100)).steps}


def test_what_has_no_program_has_no_profile():
    @tg.trace
    def f(x, i):
        return x[i]

    with pytest.raises(UnsupportedError, match="f: no program computes this call"):
        f.profile(np.ones(3), np.array([7]))

    def g(x):
        raise KeyError("no")

    with pytest.raises(KeyError, match="no"):  # the user's own, at the user's line
        tg.trace(g).profile(np.ones(3))


def test_tensors_are_profiled_as_arrays_are():
    profile = tg.trace(lambda x: x * 2.0).profile(tg.tensor(np.ones(100), requires_grad=True))
    assert sum(step.bytes for step in profile.steps) >= 1600


def test_steps_that_run_together_are_one_and_what_they_leave_to_each_other_is_not_counted():
    def softmax(x):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    profile = tg.trace(softmax).profile(np.ones((3000, 400)))
    fusion = profile.steps[0]
    assert len(fusion.numbers) >= 2
    assert fusion.bytes == 2 * 8 * 3000 * 400


PROGRAM = """
import sys
import numpy as np, tracegrad as tg

@tg.trace
def f(x):
    y = np.exp(x)
    return (y * x).sum()

for _ in range(3):
    f(np.ones(50))
if sys.argv[1:]:
    print(f.cache_info().traces, *f.profile(np.ones(50)).steps[0].lines)
"""


def test_a_trace_from_disk_is_profiled_with_its_lines(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    root = str(Path(tg.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": root, "TRACEGRAD_CACHE_DIR": str(tmp_path / "cache")}
    environment["TRACEGRAD_CACHE_TRACES"] = "1"
    run = [sys.executable, str(path)]
    subprocess.run(run, env=environment, check=True)
    told = subprocess.run([*run, "again"], env=environment, check=True, capture_output=True, text=True)
    assert told.stdout.split() == ["0", f"{path}:7", f"{path}:8"]


def test_shares_of_the_machine_are_ratios():
    (step,) = tg.trace(lambda x: x + 1.0).profile(np.ones(1000)).steps
    assert math.isclose(step.of_bandwidth, 16000 / step.seconds / 1e9)
    assert math.isclose(step.of_peak, 1000 / step.seconds / 1e9)


def test_the_text_has_a_row_for_each_step_the_slowest_first():
    profile = tg.value_and_grad(loss).profile(W, X, Y)
    lines = str(profile).splitlines()
    head = next(i for i, line in enumerate(lines) if line.lstrip().startswith("step"))
    rows = [int(re.match(r" *(\d+)", line)[1]) for line in lines[head + 1 :]]
    slowest = sorted(profile.steps, key=lambda step: -step.seconds)
    assert rows == [step.numbers[0] for step in slowest]
    assert lines[0].startswith("value_and_grad(loss) (")
    assert repr(profile) == str(profile)


def test_the_picture_is_an_svg_with_a_bar_for_each_step():
    profile = tg.value_and_grad(loss).profile(W, X, Y)
    root = ET.fromstring(profile._repr_svg_())
    space = "{http://www.w3.org/2000/svg}"
    groups = root.findall(f"{space}g")
    assert len(groups) == len(profile.steps)
    widths = [float(g.find(f"{space}rect").attrib["width"]) for g in groups]
    assert widths == sorted(widths, reverse=True)
    assert root.find(f"{space}title").text.startswith("value_and_grad(loss): ")


def test_the_machine_is_measured_once(monkeypatch):
    monkeypatch.undo()
    here = measured.machine()
    assert here is not None
    assert here == measured.machine()
    assert isinstance(here, Machine)
    assert 1e8 < here.bandwidth < 1e13
    assert all(1e8 < peak < 1e15 for peak in here.peaks.values())


@pytest.mark.parametrize("step", [2, -2])
def test_arguments_that_lie_apart_are_profiled_as_they_are_read(step, monkeypatch):
    strides = []
    real = tracegrad.profile.timed
    monkeypatch.setattr(tracegrad.profile, "timed", lambda *args: strides.append(args[3][1].strides) or real(*args))
    every = np.full(80_000, -99_999)  # what lies between, or beside, is no index
    every[::step] = np.arange(40_000)
    x, places = np.random.default_rng(0).standard_normal(40_000), every[::step]
    f = tg.trace(lambda x, i: np.sin(x[i]), tiered=False)
    for _ in range(3):
        np.testing.assert_array_equal(f(x, places), f(x, np.ascontiguousarray(places)))
    assert "read where it lies" in str(f.explain(x, places))
    assert f.profile(x, places).steps[0].bytes >= 40_000 * 8 * 3
    assert strides == [places.strides]
