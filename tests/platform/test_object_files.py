"""The symbols of object files, in all formats, of code that LLVM makes for other systems."""

from __future__ import annotations

import pytest
from object_code import object_code

from tracegrad.platform.object_files import Symbols, symbols
from tracegrad.runtime.compile import jit

TEXT = """
declare double @needed(double)
@shared = global double 1.0
@outside = external global double
define internal double @hidden(double %x) noinline { %y = fadd double %x, 1.0 ret double %y }
define double @_first.f64(double %x) {
  %y = frem double %x, 3.0
  %z = call double @needed(double %y)
  %h = call double @hidden(double %z)
  %o = load double, ptr @outside
  %s = fadd double %h, %o
  ret double %s
}
define double @second(double %x) { %y = call double @_first.f64(double %x) ret double %y }
"""
# Windows as llvmlite has it: code for its calls and its libraries, in ELF files.
TRIPLES = (
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "x86_64-apple-macosx11.0.0",
    "arm64-apple-macosx11.0.0",
    "x86_64-pc-windows-msvc-elf",
)


@pytest.mark.parametrize("triple", TRIPLES)
def test_symbols_of_an_object_file(triple: str) -> None:
    result = symbols(object_code(TEXT, triple))
    assert result is not None
    assert {"_first.f64", "second", "shared"} <= result.defined
    assert result.needed == {"needed", "outside", "fmod"}


@pytest.mark.parametrize("triple", TRIPLES)
def test_a_file_without_functions_has_no_symbols(triple: str) -> None:
    result = symbols(object_code("", triple))
    assert result == Symbols(frozenset(), frozenset())


@pytest.mark.parametrize("code", [b"", b"\x7fELF", b"MZ\x90\x00", b"\x64\x86" + bytes(100), b"!<arch>\n"])
def test_what_is_no_object_file_has_none(code: bytes) -> None:
    assert symbols(code) is None
    with pytest.raises(jit.UnsupportedError, match="not an object file"):
        jit.load_object(code)
