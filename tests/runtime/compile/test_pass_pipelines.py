"""Pipelines of LLVM passes: what each makes of its kind of text, and what Numba's switches change."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from native_squares import SQUARES, run_squares

from tracegrad.runtime.compile import jit, pass_pipelines
from tracegrad.target import cpu


@pytest.fixture(autouse=True)
def machines_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Target machines are kept, and made of the switches at that time."""
    for switch in pass_pipelines.SWITCHES:
        monkeypatch.delenv(switch, raising=False)
    monkeypatch.setattr(pass_pipelines, "_machine", pass_pipelines._machine.__wrapped__)


def test_loops_become_vectors_where_the_text_is_of_loops() -> None:
    assert "x double>" in jit.optimized_ir(SQUARES, "squares", "loops")
    assert "x double>" not in jit.optimized_ir(SQUARES, "squares", "glue")


@pytest.mark.parametrize("kind", pass_pipelines.KINDS)
def test_functions_to_be_inlined_are(kind: str) -> None:
    assert "@square" not in jit.optimized_ir(SQUARES, "squares", kind)


@pytest.mark.parametrize("kind", pass_pipelines.KINDS)
def test_the_same_text_is_the_same_code(kind: str) -> None:
    assert jit.compile_ir(SQUARES, "same", kind) == jit.compile_ir(SQUARES, "same", kind)


def test_numba_opt_is_the_level_of_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, level in (("0", 0), ("1", 1), ("3", 3), ("max", 3)):
        monkeypatch.setenv("NUMBA_OPT", value)
        results = {pass_pipelines.pipeline_of(kind) for kind in pass_pipelines.KINDS}
        assert [(x.level, x.codegen) for x in results] == [(level, level)]
    monkeypatch.setenv("NUMBA_OPT", "0")
    assert "%j = add nuw nsw i64 %i, 1" in jit.optimized_ir(SQUARES, "squares")
    for value in ("4", "", "fast"):
        monkeypatch.setenv("NUMBA_OPT", value)
        assert pass_pipelines.pipeline_of("loops").vectorize, "what numba cannot read counts as not set"


def test_numba_loop_vectorize_leaves_loops_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_LOOP_VECTORIZE", "0")
    assert "x double>" not in jit.optimized_ir(SQUARES, "squares")


@pytest.mark.skipif("x86" not in jit.ll.get_process_triple(), reason="registers of x86-64")
def test_the_cpu_and_its_features_are_those_that_numba_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide_registers() -> set[str]:
        return set(re.findall(r"%([yz])mm", jit.optimized_assembly(SQUARES, "squares")))

    monkeypatch.setenv("NUMBA_CPU_NAME", "haswell")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+avx2")
    assert wide_registers() == {"y"}
    monkeypatch.setenv("NUMBA_CPU_NAME", "nehalem")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "-avx")
    assert wide_registers() == set()
    monkeypatch.setenv("NUMBA_ENABLE_AVX", "0")
    assert "+avx" not in pass_pipelines._features()
    monkeypatch.delenv("NUMBA_CPU_FEATURES")
    assert not {name for name in cpu.features.__wrapped__() if name.startswith("avx")}


def test_a_higher_level_does_more() -> None:
    for kind in ("loops", "vectors"):
        levels = [pass_pipelines.pipeline_of(kind, optimize) for optimize in (1, 2, 3)]
        assert [x.codegen for x in levels] == sorted({x.codegen for x in levels})
    code = [jit.compile_ir(SQUARES, "squares", "loops", optimize) for optimize in (1, 2, 3)]
    x = np.linspace(-2, 5, 1001)
    for each in code:
        assert np.array_equal(run_squares(jit.load_object(each), x), x * x)
    assert code[0] != code[1]


def test_addresses_are_kept_as_written_where_the_pipeline_says_so_and_nowhere_else() -> None:
    def code(pipeline: pass_pipelines.Pipeline) -> bytes:
        return bytes(pass_pipelines.emitted(SQUARES, "squares", pipeline, "object"))

    assert jit.ll.llvm_version_info[0] in pass_pipelines._KNOWN, "does this LLVM have the option?"
    usual = pass_pipelines.pipeline_of("loops")
    before, saved = code(usual), code(replace(usual, as_written=True))
    assert before == code(usual) != saved
    x = np.linspace(-2, 5, 1001)
    assert np.array_equal(run_squares(jit.load_object(saved), x), x * x)
