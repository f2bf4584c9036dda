"""Machine code by its text: kernels that are compiled together, kept together, and found one by one."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact import compiled
from graphs import f64
from plans import sources

import tracegrad as tg
from tracegrad.errors import CacheWarning
from tracegrad.ir import build
from tracegrad.ops.elementwise.table import add, cos, exp, multiply, sin
from tracegrad.ops.shape.linear import broadcast_to, reduce_sum, reshape
from tracegrad.runtime.compile import code_store, jit
from tracegrad.runtime.compile import disk_cache as cache
from tracegrad.runtime.compile.code_store import machine_code_count
from tracegrad.runtime.compile.disk_cache import DiskCache, default_cache
from tracegrad.settings import settings

X = 1 + np.random.default_rng(0).random((21, 33))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty disk cache, no piece in memory, and no warning given."""
    monkeypatch.setattr(code_store, "_loaded", type(code_store._loaded)())
    monkeypatch.setattr(cache, "_warned", set())
    with settings.override(cache=True, cache_dir=tmp_path / "cache"):
        yield


def program(*kernels: Any) -> Any:
    """A program of a kernel for each of these functions: sums of rows are computed in between."""

    def fn(x: Any) -> list[Any]:
        rows, columns = x.shape
        for kernel in kernels:
            sums = reduce_sum(kernel(x), axes=(1,))
            x = add(x, broadcast_to(reshape(sums, shape=(rows, 1)), shape=(rows, columns)))
        return [x]

    return compiled(build(fn, [f64(21, 33)]))


def want(*kernels: Any) -> Any:
    x = X
    for kernel in kernels:
        x = x + kernel(x).sum(1, keepdims=True)
    return x


def halves(x: Any) -> Any:
    return multiply(x, 0.25)


def files() -> dict[str, set[str]]:
    """The names of each file of pieces."""
    table: dict[str, set[str]] = {}
    with os.scandir(default_cache().folder) as entries:
        for entry in entries:
            data = Path(entry.path).read_bytes()
            if b'"kind":"piece"' in data:
                table.setdefault(str(entry.inode()), set()).add(entry.name)
    return table


def test_new_kernels_of_a_program_are_one_module_and_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = []
    make = jit.compile_ir

    def counted(text: Any, name: str, *kind: str) -> bytes:
        modules.append(str(text))
        return make(text, name, *kind)

    monkeypatch.setattr(jit, "compile_ir", counted)
    result = program(halves, exp, halves)
    assert len(result.report.units) > 2
    assert len([text for text in modules if "@kernel." in text or '@"kernel.' in text]) == 1
    ((_, names),) = files().items()
    assert len(names) == len(result.report.units)
    assert sum(origin.seconds for _, origin in result.report.units) <= result.report.seconds["compile"]
    np.testing.assert_allclose(result.run([X])[0], want(lambda x: x / 4, np.exp, lambda x: x / 4), rtol=1e-13)


def test_a_piece_is_found_alone_and_brings_the_others() -> None:
    first = program(halves, exp)
    expected = first.run([X])[0]
    del first
    gc.collect()
    (names,) = files().values()
    for name in sorted(names)[1:]:
        os.unlink(os.path.join(str(default_cache().folder), name))
    count = machine_code_count()
    again = program(halves, exp)
    assert set(sources(again)) == {"disk"}
    assert machine_code_count() == count
    np.testing.assert_array_equal(again.run([X])[0], expected)


def test_a_program_compiles_what_the_ones_before_did_not_have() -> None:
    first = program(halves)
    count = machine_code_count()
    second = program(halves, exp)
    assert {"memory", "compiled"} == set(sources(second))
    assert machine_code_count() - count == sources(second).count("compiled")
    np.testing.assert_allclose(second.run([X])[0], want(lambda x: x / 4, np.exp), rtol=1e-13)
    np.testing.assert_allclose(first.run([X])[0], want(lambda x: x / 4), rtol=1e-13)


def test_files_that_have_a_piece_in_common_are_loaded_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes may have compiled one kernel, each with others of its own."""
    with monkeypatch.context() as alone:
        alone.setattr(DiskCache, "get", lambda self, key: None)
        program(halves, exp)
        gc.collect()
        program(halves, sin)
        gc.collect()
    assert len(files()) == 2
    result = program(halves, exp, sin)
    assert "compiled" not in sources(program(halves, exp)) + sources(program(halves, sin))
    np.testing.assert_allclose(result.run([X])[0], want(lambda x: x / 4, np.exp, np.sin), rtol=1e-12)


def test_what_a_piece_beside_calls_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that comes along may call a function that the program itself has no use for."""
    program(halves, cos)
    gc.collect()
    monkeypatch.setattr(
        jit, "_loaded_modules", {name: code for name, code in jit._loaded_modules.items() if "rare" not in name}
    )
    result = program(halves)
    assert "disk" in sources(result)
    assert "tg.rare_cos.f64" in jit._loaded_modules
    np.testing.assert_allclose(result.run([X])[0], want(lambda x: x / 4), rtol=1e-13)


def test_a_damaged_file_is_compiled_again() -> None:
    first = program(halves, exp)
    expected = first.run([X])[0]
    pieces = len(first.report.units)
    del first
    gc.collect()
    (names,) = files().values()
    path = Path(str(default_cache().folder), min(names))
    path.write_bytes(path.read_bytes()[:-40] + b"x" * 40)
    count = machine_code_count()
    with pytest.warns(CacheWarning, match="damaged"):
        again = program(halves, exp)
    assert machine_code_count() == count + pieces
    np.testing.assert_array_equal(again.run([X])[0], expected)
    del again
    gc.collect()
    assert set(sources(program(halves, exp))) == {"disk"}


def test_without_links_each_piece_has_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    pieces = len(program(halves, exp).report.units)
    gc.collect()
    assert len(files()) == pieces
    assert set(sources(program(halves, exp))) == {"disk"}


def test_names_of_one_file_count_once(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "own"))
    cache.put("a", {}, b"x" * 3000, "b", "c")
    _, count, size = cache.info()
    assert (count, cache.get("a"), cache.get("c")) == (3, ({}, b"x" * 3000), ({}, b"x" * 3000))
    assert 3000 < size < 3500
    assert cache.get("d") is None


def test_a_small_batch_of_another_size_is_no_other_machine_code() -> None:
    def normed(x: Any, g: Any) -> Any:
        d = x - x.mean(-1, keepdims=True)
        return np.sum((d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * g) ** 2)

    derivative = tg.grad(normed, argnums=(0, 1))
    rng = np.random.default_rng(2)
    derivative(rng.random((4, 12, 10)), rng.random(10))
    count = machine_code_count()
    for batch in (2, 3, 7, 9):
        x, g = rng.random((batch, 12, 10)), rng.random(10)
        dx, dg = derivative(x, g)
        assert machine_code_count() == count
        steps = rng.normal(size=x.shape), rng.normal(size=g.shape)
        ahead, behind = (normed(x + h * steps[0], g + h * steps[1]) for h in (1e-6, -1e-6))
        assert np.sum(dx * steps[0]) + dg @ steps[1] == pytest.approx((ahead - behind) / 2e-6, rel=1e-5)
