"""Functions that are called once in each process: their traces outlive it, and are compiled when that has paid."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.runtime.compile import code_store
from tracegrad.runtime.compile.disk_cache import DiskCache
from tracegrad.runtime.execution import tiers
from tracegrad.runtime.execution.cost_model import COMPILE
from tracegrad.runtime.execution.program import Unplanned, machine_code_count
from tracegrad.settings import settings

X = np.array([0.25, 0.5, 1.5])


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[DiskCache]:
    """An empty folder for traces and machine code."""
    folder = str(tmp_path / "cache")
    with settings.override(cache=True, cache_dir=folder, cache_traces=True, first_call="replay"):
        yield DiskCache(folder)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Forgets what another process does not know: machine code in memory, and what was missed."""

    def begin() -> None:
        monkeypatch.setattr(code_store, "_loaded", WeakValueDictionary())
        monkeypatch.setattr(tiers, "_seen_units", set())

    begin()
    return begin


def loss(x: Any) -> Any:
    return np.sum(np.sin(x) * np.arctan(x) ** 3)


def slope(x: Any) -> Any:
    return np.cos(x) * np.arctan(x) ** 3 + np.sin(x) * 3 * np.arctan(x) ** 2 / (1 + x**2)


def records(cache: DiskCache) -> list[Any]:
    """What is kept of the calls in a cache."""
    assert cache.folder is not None
    results = [path.read_bytes() for path in Path(cache.folder).glob("*.tgc")]
    lines = [x for data in results if b'"kind":"trace"' in data for x in data[:-32].split(b"\n")[1:]]
    parts = [list(map(json.loads, line.split(b"\t"))) for line in lines]
    return [{**first, "image": image} for first, image in parts]


def path_of(result: Any) -> Any:
    (spec,) = result._specializations.values()
    (path,) = spec.paths
    return path


def new() -> Any:
    """A gradient that no other knows."""
    return tg.trace(tg.grad(loss))


def compiled_without_code() -> Any:
    """A function whose first call finds all of its machine code."""
    result, before = new(), machine_code_count()
    np.testing.assert_allclose(result(X), slope(X), rtol=1e-12)
    assert machine_code_count() == before
    assert not path_of(result).waits
    return result


def test_a_function_that_is_called_once_is_traced_once(cache: DiskCache, process: Any) -> None:
    for iteration in range(4):
        process()
        result, before = new(), machine_code_count()
        np.testing.assert_allclose(result(X), slope(X), rtol=1e-12)
        assert result.cache_info().traces == (iteration == 0)
        assert machine_code_count() == before
        (record,) = records(cache)
        assert record["image"] is None
        assert record["missing"]


def test_the_second_call_compiles_a_graph_that_another_process_has_traced(cache: DiskCache, process: Any) -> None:
    new()(X)
    process()
    result = new()
    result(X)
    before = machine_code_count()
    np.testing.assert_allclose(result(2 * X), slope(2 * X), rtol=1e-12)
    assert machine_code_count() > before
    assert result.cache_info().traces == 0
    (record,) = records(cache)
    assert record["image"]
    process()
    last = compiled_without_code()
    assert path_of(last).program.restored


def test_first_calls_compile_when_they_have_cost_as_much(
    cache: DiskCache, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "READ", COMPILE / 100)
    waits, spent = [], list[float]()
    for _ in range(30):
        process()
        result = new()
        np.testing.assert_allclose(result(X), slope(X), rtol=1e-12)
        waits.append(path_of(result).waits)
        (record,) = records(cache)
        spent.append(record["spent"])
        if not waits[-1]:
            break
    iterations = len(waits) - 1
    assert 2 < iterations < 30
    assert spent[:iterations] == sorted(set(spent[:iterations]))
    assert np.allclose(np.diff(spent[:iterations]), spent[0])
    assert record["image"]
    process()
    compiled_without_code()


def test_arrays_in_fortrans_order_go_with_a_graph_that_another_process_has_traced(
    cache: DiskCache, process: Any
) -> None:
    x = np.linspace(0.0, 1.0, 200 * 300).reshape(200, 300)
    new()(x)
    process()
    result = new()
    for iteration in range(4):
        args = np.asfortranarray(x / (1 + iteration))
        np.testing.assert_allclose(result(args), slope(args), rtol=1e-11)
    assert result.cache_info().traces == 0


def test_machine_code_that_others_have_made_since_is_used(cache: DiskCache, process: Any) -> None:
    new()(X)
    with settings.override(first_call="compile", cache_traces=False):
        new()(X)
    process()
    result, before = new(), machine_code_count()
    result(X)
    assert result.cache_info().traces == 0
    assert machine_code_count() == before
    assert not path_of(result).waits
    (record,) = records(cache)
    assert record["image"]


def test_each_path_has_one_record(cache: DiskCache, process: Any) -> None:
    def chosen(x: Any) -> Any:
        return np.sin(x) * 2.0 if x.sum() > 0 else np.cos(x)

    for iteration in range(3):
        process()
        result = tg.trace(chosen)
        for x in (X, -X, 2 * X, -2 * X):
            np.testing.assert_allclose(result(x), chosen(x), rtol=1e-12)
        assert result.cache_info().traces == (2 if iteration == 0 else 0)
        assert len(records(cache)) == 2
        assert all(record["image"] for record in records(cache))


def test_effects_and_errors_are_those_of_the_function(cache: DiskCache, process: Any) -> None:
    seen: list[Any] = []

    def kept(x: Any, i: Any) -> Any:
        seen.append(np.sin(x[i]))
        return x * seen[-1]

    for iteration in range(3):
        process()
        result = tg.trace(kept)
        seen.clear()
        np.testing.assert_allclose(result(X, 1), X * np.sin(X[1]), rtol=1e-12)
        assert [float(x) for x in seen] == [pytest.approx(np.sin(X[1]))]
        assert result.cache_info().traces == (iteration == 0)
        with pytest.raises(IndexError, match="index 9 is out of bounds"):
            result(X, 9)
        assert len(seen) == 1


def test_explain_and_profile_trace_again_and_compile(cache: DiskCache, process: Any) -> None:
    told = new().explain(X)
    process()
    cache.clear()
    new()(X)
    process()
    result = new()
    result(X)
    assert isinstance(path_of(result).program, Unplanned)
    again = result.explain(X)
    for part in ("entry_guards", "world_guards", "kernels", "graph", "optimized"):
        assert getattr(again, part) == getattr(told, part)
    np.testing.assert_allclose(result(X), slope(X), rtol=1e-12)


def test_a_thread_compiles_a_graph_that_another_process_has_traced(cache: DiskCache, process: Any) -> None:
    new()(X)
    process()
    result = tg.trace(tg.grad(loss), tiered=True)
    result(X)
    for thread in threading.enumerate():
        if thread.name == "tracegrad compiler":
            thread.join()
    np.testing.assert_allclose(result(X), slope(X), rtol=1e-12)
    assert result.cache_info().traces == 0
    assert not path_of(result).waits
    (record,) = records(cache)
    assert record["image"]
