"""Object code: made and loaded without numba, linked to symbols anywhere in memory."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys

import numpy as np
import pytest
from native_squares import SQUARES, run_squares
from paths import ROOT

from tracegrad.errors import UnsupportedError
from tracegrad.runtime.compile import jit


def test_compiled_code_computes_what_the_ir_says() -> None:
    code = jit.load_object(jit.compile_ir(SQUARES, "squares"))
    x = np.linspace(-3, 5, 1001)
    assert np.array_equal(run_squares(code, x), x * x)


def test_alwaysinline_is_inlined_and_the_loop_vectorised() -> None:
    text = jit.optimized_ir(SQUARES, "squares")
    assert "@square" not in text
    assert "x double>" in text, "no vector type in the optimised loop"
    assert "tg_run:" in jit.optimized_assembly(SQUARES, "squares")


def test_equal_modules_give_equal_bytes() -> None:
    assert jit.compile_ir(SQUARES, "same") == jit.compile_ir(SQUARES, "same")


def test_two_objects_with_the_same_symbol_do_not_collide() -> None:
    answers = [jit.load_object(jit.compile_ir(f"define i64 @answer() {{ ret i64 {k} }}", "answer")) for k in (1, 2)]
    call = ctypes.CFUNCTYPE(ctypes.c_int64)
    assert [call(code.address("answer"))() for code in answers] == [1, 2]


def test_invalid_ir_raises_and_the_compiler_stays_usable() -> None:
    with pytest.raises(RuntimeError):
        jit.compile_ir("define i64 @broken() { ret i32 0 }", "broken")
    assert jit.compile_ir("define i64 @fine() { ret i64 0 }", "fine")


def test_an_unknown_symbol_is_an_error_and_not_the_end_of_the_process() -> None:
    code = jit.compile_ir(
        "declare i64 @tg_nobody_defines_this()\n"
        "define i64 @f() { %r = call i64 @tg_nobody_defines_this()\n ret i64 %r }",
        "unknown",
    )
    with pytest.raises(UnsupportedError, match="tg_nobody_defines_this"):
        jit.load_object(code)
    known = jit.load_object(jit.compile_ir("define i64 @fine() { ret i64 0 }", "fine"))
    with pytest.raises(KeyError, match="missing"):
        known.address("missing")


def test_bytes_that_are_no_object_file_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="object file"):
        jit.load_object(b"not an object file at all" * 10)


def test_symbols_of_the_process_are_found() -> None:
    source = """
    declare double @hypot(double, double)
    declare i8* @memcpy(i8*, i8*, i64)
    declare i8* @PyTuple_New(i64)
    define double @call_hypot(double %x, double %y) {
      %r = call double @hypot(double %x, double %y)
      ret double %r
    }
    define i8* @call_memcpy(i8* %to, i8* %from, i64 %n) {
      %r = call i8* @memcpy(i8* %to, i8* %from, i64 %n)
      ret i8* %r
    }
    define i8* @call_tuple(i64 %n) {
      %r = call i8* @PyTuple_New(i64 %n)
      ret i8* %r
    }
    """
    code = jit.load_object(jit.compile_ir(source, "process"))
    hypot = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(code.address("call_hypot"))
    assert hypot(3.0, 4.0) == 5.0
    target, source_array = np.zeros(9), np.arange(9.0)
    copy = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    copy(code.address("call_memcpy"))(target.ctypes.data, source_array.ctypes.data, 72)
    assert np.array_equal(target, source_array)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int64)(code.address("call_tuple"))
    assert make(0) == ()


@pytest.mark.parametrize("high", [0x5A5A_0000_0000, 0x7FFF_FFFF_F000, 0x1000])
def test_a_symbol_may_lie_anywhere_in_the_address_space(high: int) -> None:
    """With 32-bit relocations the loader would fail, or cut the address."""
    jit.define_symbol("tg_test_far", high)
    code = jit.load_object(
        jit.compile_ir(
            "@tg_test_far = external global i8\ndefine i8* @where() { ret i8* @tg_test_far }\n"
            "declare i64 @tg_test_far_function()\n",
            "far",
        )
    )
    assert ctypes.CFUNCTYPE(ctypes.c_uint64)(code.address("where"))() == high


def test_a_function_given_by_define_symbol_is_called() -> None:
    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    def callback(x: int) -> int:
        return x + 1

    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address
    jit.define_symbol("tg_test_callback", address)
    code = jit.load_object(
        jit.compile_ir(
            "declare i64 @tg_test_callback(i64)\n"
            "define i64 @call(i64 %x) { %r = call i64 @tg_test_callback(i64 %x)\n ret i64 %r }",
            "callback",
        )
    )
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("call"))(41) == 42


def test_neither_compiling_nor_loading_imports_numba() -> None:
    program = (
        "import sys, ctypes\n"
        "from tracegrad.runtime.compile import jit as native\n"
        "native.cpu_key()\n"
        "code = native.load_object(native.compile_ir('define i64 @answer() { ret i64 42 }', 'answer'))\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_int64)(code.address('answer'))(), 'numba' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, cwd=ROOT)
    assert done.stdout.split() == [b"42", b"False"]


def test_dead_code_gives_its_memory_back() -> None:
    code = jit.compile_ir(SQUARES, "squares")

    def mappings() -> int:
        with open("/proc/self/maps", encoding="ascii") as file:
            return sum("x" in line.split()[1] for line in file)

    if not os.path.exists("/proc/self/maps"):
        pytest.skip("no /proc")
    saved = [jit.load_object(code) for _ in range(3)]
    gc.collect()
    before = mappings()
    for _ in range(50):
        jit.load_object(code)
    gc.collect()
    assert mappings() <= before + 3
    assert run_squares(saved[0], np.ones(3)).sum() == 3.0


def test_cpu_key_follows_numbas_switches_and_the_compilers_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(stamps: list[str]) -> str:
        monkeypatch.setattr(jit, "source_stamps", lambda: stamps)
        return jit.cpu_key.__wrapped__()

    assert any(stamp.startswith(os.path.join("codegen", "entry", "prologue.ll ")) for stamp in jit.source_stamps())
    plain = key(["native.py 100 5"])
    assert key(["native.py 100 5"]) == plain
    assert key(["native.py 100 6"]) != plain
    assert key(["native.py 100 5", os.path.join("trace", "tracer.py 100 5")]) == plain
    for changed in ("target", "kernels.py 100 5"), ("runtime", "threads", "pool.ll 100 5"):
        assert key(["native.py 100 5", os.path.join(*changed)]) != plain
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert key(["native.py 100 5"]) != plain
