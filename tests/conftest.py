"""What the tests share: fixtures, and a cache of kernels that is theirs alone."""

from __future__ import annotations

import gc
import importlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest


def load_single_threaded_blas() -> None:
    """Load the BLAS of NumPy and that of SciPy for one thread each, the package's own as it is for users.

    Threads that wait for each other spin: beside a second process on the same cores they take a hundred times as long.
    """
    name = "OPENBLAS_NUM_THREADS"
    chosen = os.environ.get(name)
    os.environ[name] = chosen or "1"
    importlib.import_module("scipy.linalg")
    if chosen is None:
        del os.environ[name]


# What pytest collects stays, and what tests make lives on in caches until their module ends: a tenth of the time would
# be that of Python's garbage collector.
gc.set_threshold(20_000, 20, 20)
load_single_threaded_blas()
graphs, left_behind, placements = map(importlib.import_module, ("graphs", "left_behind", "placements"))
settings = importlib.import_module("tracegrad.settings").settings
instruction_set = importlib.import_module("tracegrad.platform.processes").instruction_set

GOLDEN = Path(__file__).parent / "golden"

# The folder is that of the first process; its workers have it from the environment.
FOLDER = None if "TRACEGRAD_CACHE_DIR" in os.environ else tempfile.TemporaryDirectory(prefix="tracegrad-tests-")
if FOLDER is not None:
    os.environ["TRACEGRAD_CACHE_DIR"] = FOLDER.name
os.environ.setdefault("TRACEGRAD_CACHE_TRACES", "0")  # for tests that count traces
os.environ.setdefault("TRACEGRAD_VERIFY", "1")
os.environ["TRACEGRAD_PROGRESS"] = "0"
os.environ.setdefault("TRACEGRAD_FIRST_CALL", "compile")
os.environ.setdefault("TRACEGRAD_OPTIMIZE", "1")  # most of the time would be LLVM's


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files with what the tests produce"
    )
    parser.addoption("--points", action="store_true", help="compile every function at its special points")
    parser.addoption("--placements", action="store_true", help="run programs of the meaning tests in all placements")


def pytest_configure(config: pytest.Config) -> None:
    if instruction_set() == "aarch64":
        # NumPy warns of numbers that x86 converts to unsigned integers silently, such as -1.0.
        config.addinivalue_line("filterwarnings", "ignore:invalid value encountered in cast:RuntimeWarning")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The modes and placements of a program of the meaning tests."""
    script = getattr(metafunc.function, "script", None)
    if script is None:
        return
    name = script.__name__
    modes: list[Any] = [*metafunc.function.modes]
    for where in placements.PLACEMENTS if metafunc.config.getoption("--placements") else (placements.chosen(name),):
        reason = placements.FAULTS.get((name, where))
        modes.append(pytest.param(where, marks=[pytest.mark.xfail(strict=True, reason=reason)] if reason else []))
    metafunc.parametrize("mode", modes)


class Golden:
    """The text that a test is to produce: `assert str(graph) == golden`."""

    def __init__(self, path: Path, update: bool):
        self.path, self.update = path, update

    def __repr__(self) -> str:
        return self.path.read_text() if self.path.exists() else f"<no golden file {self.path.name}>"

    def __eq__(self, other: object) -> bool:
        if self.update:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(f"{other}\n")
        return self.path.exists() and self.path.read_text() == f"{other}\n"

    __hash__ = None  # type: ignore[assignment]

    def differing(self, lines: Mapping[str, str]) -> list[str]:
        """The names of the lines `name: text` that are not as in the file. One that the file lacks is no difference."""
        if self.update:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text("".join(f"{name}: {text}\n" for name, text in lines.items()))
        known = dict(line.split(": ", 1) for line in self.path.read_text().splitlines())
        return [name for name, text in lines.items() if known.get(name, text) != text]


def pytest_unconfigure() -> None:
    if FOLDER is not None:
        FOLDER.cleanup()


def pytest_collection_finish() -> None:
    """What was collected, a million objects, lives on: Python's garbage collector passes over it."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_left_behind() -> Iterator[None]:
    """What other modules of tests rely on is as it was; what caches keep from here on is not looked through again."""
    before = left_behind.state()
    yield
    after = left_behind.state()
    assert {name: (before.get(name), x) for name, x in after.items() if x != before.get(name)} == {}
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Random arrays do not depend on which tests ran before."""
    graphs.rng.bit_generator.state = graphs.START


@pytest.fixture
def optimized() -> Iterator[None]:
    """What is compiled runs as it does for users: for modules of tests about machine code. Others have it compiled in a
    third of the time."""
    with settings.override(optimize=2):
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """The golden text of the test, in `golden/<module>/<test>.txt`; `--update-golden` rewrites it."""
    name = request.node.name.replace("[", "-").replace("]", "")
    path = GOLDEN / request.node.module.__name__.rpartition(".")[2] / f"{name}.txt"
    return Golden(path, request.config.getoption("--update-golden"))


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short loops are folded too."""
    counters = importlib.import_module("tracegrad.trace.loops.range_counter")
    monkeypatch.setattr(counters, "MAX_RECORDED_NODES", 0)
    monkeypatch.setattr(counters, "MIN_FOLDED", 3)
    monkeypatch.setattr(importlib.import_module("tracegrad.trace.loops.long_loop_hints"), "_known", {})


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One element for each time that a function has been run to trace it."""
    module, seen = importlib.import_module("tracegrad.trace.driver.trace"), list[Any]()
    trace_call = module._trace_call

    def counted(*args: Any) -> Any:
        seen.append(args[0])
        return trace_call(*args)

    monkeypatch.setattr(module, "_trace_call", counted)
    return seen
