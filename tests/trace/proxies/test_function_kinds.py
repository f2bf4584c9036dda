"""The table of functions that have replacements in traced code: one example of each row, and the table in README.md."""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import importlib
import json
import logging
import math
import os
import time
import typing
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tests.helpers.readme_tables import require_section, table
from tracegrad.trace.proxies.module_proxies import FUNCTION_KINDS, replacement

X = np.array([1.0, 2.0])


def annotated(x: int, y: float) -> None: ...


# By name of a row: a function of it, and traced code that calls the function.
COMPILED: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "array creation of NumPy": (np.zeros, lambda x: np.zeros(2) + x),
    "function of `math` and of Python's numbers": (math.exp, lambda x: math.exp(x[0]) * x),
    "read of the process or the system": (os.getcwd, lambda x: x * len(os.getcwd())),
    "log, warning, or JSON text": (logging.getLogger, lambda x: x * len(logging.getLogger("silent").name)),
    "parser of text": (json.loads, lambda x: x * json.loads("3.0")),
    "digest": (hashlib.sha256, lambda x: x * len(hashlib.sha256(b"text").digest())),
    "import": (importlib.import_module, lambda x: importlib.import_module("numpy").sin(x)),
    "NumPy function that dispatches on arrays": (np.concatenate, lambda x: np.concatenate([x, x])),
    "NumPy function that does not dispatch": (np.vectorize, lambda x: np.vectorize(lambda y: 2.0 * y)(x)),
    "evaluation of annotations": (typing.get_type_hints, lambda x: x * len(typing.get_type_hints(annotated))),
    "identity, class, or container read in C": (heapq.heappop, lambda x: x * heapq.heappop([2.0, 3.0])),
    "matrix or polynomial class of NumPy": (np.poly1d, lambda x: x * np.poly1d([1.0, 2.0])(3.0)),
    "maker of random generators": (np.random.default_rng, lambda x: x * np.random.default_rng(0).random()),
}
REFUSED: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "clock, entropy, or input": (time.time, lambda x: x * time.time()),
    "file or process": (os.remove, lambda x: x * len(str(os.remove("there is no such file")))),
}


def test_each_row_has_an_example() -> None:
    assert {kind.name for kind in FUNCTION_KINDS} == COMPILED.keys() | REFUSED.keys()


@pytest.mark.parametrize("kind", FUNCTION_KINDS, ids=lambda kind: kind.name)
def test_an_example_has_a_replacement_of_its_kind(kind: Any) -> None:
    function, _ = (COMPILED | REFUSED)[kind.name]
    assert id(function) in kind.replacements
    assert replacement(function) is not None


@pytest.mark.parametrize("name", COMPILED)
def test_a_call_is_compiled_and_has_the_result_of_python(name: str) -> None:
    use = COMPILED[name][1]
    f = tg.trace(use)
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(f(X)), use(X))
    assert f.cache_info().traces == 1


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_is_not_compiled(name: str) -> None:
    f = tg.trace(REFUSED[name][1])
    with warnings.catch_warnings(), contextlib.suppress(tg.errors.UnsupportedError, FileNotFoundError):
        warnings.simplefilter("ignore", tg.errors.PerformanceWarning)
        f(X)
    assert f.cache_info().traces == 0


def test_the_readme_has_the_table(request: pytest.FixtureRequest) -> None:
    rows = [(kind.name, kind.result) for kind in FUNCTION_KINDS]
    require_section("trace/proxies", "Replaced functions", table(("function", "in traced code"), rows), request)
