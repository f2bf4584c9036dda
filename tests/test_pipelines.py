"""Pipelines of LLVM passes: what each makes of its kind of text, and what Numba's switches change."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.test_native import SQUARES, run_squares
from tracegrad.codegen.target import cpu
from tracegrad.runtime.compile import jit as native
from tracegrad.runtime.compile import pass_pipelines as pipelines


@pytest.fixture(autouse=True)
def machines_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Target machines are kept, and made of the switches at that time."""
    for switch in pipelines.SWITCHES:
        monkeypatch.delenv(switch, raising=False)
    monkeypatch.setattr(pipelines, "_machine", pipelines._machine.__wrapped__)


def test_loops_become_vectors_where_the_text_is_of_loops() -> None:
    assert "x double>" in native.optimized_ir(SQUARES, "squares", "loops")
    assert "x double>" not in native.optimized_ir(SQUARES, "squares", "glue")


@pytest.mark.parametrize("kind", pipelines.KINDS)
def test_functions_to_be_inlined_are(kind: str) -> None:
    assert "@square" not in native.optimized_ir(SQUARES, "squares", kind)


@pytest.mark.parametrize("kind", pipelines.KINDS)
def test_the_same_text_is_the_same_code(kind: str) -> None:
    assert native.compile_ir(SQUARES, "same", kind) == native.compile_ir(SQUARES, "same", kind)


def test_numba_opt_is_the_level_of_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, level in (("0", 0), ("1", 1), ("3", 3), ("max", 3)):
        monkeypatch.setenv("NUMBA_OPT", value)
        found = {pipelines.pipeline_of(kind) for kind in pipelines.KINDS}
        assert [(x.level, x.codegen) for x in found] == [(level, level)]
    monkeypatch.setenv("NUMBA_OPT", "0")
    assert "%j = add nuw nsw i64 %i, 1" in native.optimized_ir(SQUARES, "squares")
    for value in ("4", "", "fast"):
        monkeypatch.setenv("NUMBA_OPT", value)
        assert pipelines.pipeline_of("loops").vectorize, "what numba cannot read counts as not set"


def test_numba_loop_vectorize_leaves_loops_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_LOOP_VECTORIZE", "0")
    assert "x double>" not in native.optimized_ir(SQUARES, "squares")


@pytest.mark.skipif("x86" not in native.ll.get_process_triple(), reason="registers of x86-64")
def test_the_cpu_and_its_features_are_those_that_numba_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide_registers() -> set[str]:
        return set(re.findall(r"%([yz])mm", native.optimized_assembly(SQUARES, "squares")))

    monkeypatch.setenv("NUMBA_CPU_NAME", "haswell")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+avx2")
    assert wide_registers() == {"y"}
    monkeypatch.setenv("NUMBA_CPU_NAME", "nehalem")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "-avx")
    assert wide_registers() == set()
    monkeypatch.setenv("NUMBA_ENABLE_AVX", "0")
    assert "+avx" not in pipelines._features()
    monkeypatch.delenv("NUMBA_CPU_FEATURES")
    assert not {name for name in cpu.features.__wrapped__() if name.startswith("avx")}


def test_a_higher_level_does_more() -> None:
    for kind in ("loops", "vectors"):
        levels = [pipelines.pipeline_of(kind, optimize) for optimize in (1, 2, 3)]
        assert [x.codegen for x in levels] == sorted({x.codegen for x in levels})
    code = [native.compile_ir(SQUARES, "squares", "loops", optimize) for optimize in (1, 2, 3)]
    x = np.linspace(-2, 5, 1001)
    for each in code:
        assert np.array_equal(run_squares(native.load_object(each), x), x * x)
    assert code[0] != code[1]


def test_addresses_are_kept_as_written_where_the_pipeline_says_so_and_nowhere_else() -> None:
    def code(pipeline: pipelines.Pipeline) -> bytes:
        return bytes(pipelines.emitted(SQUARES, "squares", pipeline, "object"))

    assert native.ll.llvm_version_info[0] in pipelines._KNOWN, "does this LLVM have the option?"
    usual = pipelines.pipeline_of("loops")
    before, kept = code(usual), code(replace(usual, as_written=True))
    assert before == code(usual) != kept
    x = np.linspace(-2, 5, 1001)
    assert np.array_equal(run_squares(native.load_object(kept), x), x * x)
