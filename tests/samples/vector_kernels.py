"""Compile and run kernels given as loop IR."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
import pytest

from tracegrad.codegen.kernels import vector_kernel, vector_memory, vectorize
from tracegrad.codegen.loopir.kernel import (
    Kernel,
    Operand,
    verify_kernel,
)
from tracegrad.codegen.program.compilation_units import CompilationUnit, unit_of_kernel
from tracegrad.codegen.program.region_function import unit_module
from tracegrad.runtime.compile import jit
from tracegrad.runtime.compile.code_store import shared_function

RARE = ("tg.rare_sin.f64", "tg.rare_sin.f32")


DTYPES = {"bool": np.dtype(bool)} | {
    f"{k}{8 * s}": np.dtype(f"{k}{s}") for k in "iuf" for s in (1, 2, 4, 8) if k + str(s) != "f1"
}


rng = np.random.default_rng(0)


class Room:
    """Some pages of memory between two that nobody may read or write."""

    def __init__(self, pages: int = 2):
        self.map = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.size = pages * mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (0, pages + 1):
            place = ctypes.c_void_p(address + page * mmap.PAGESIZE)
            assert libc.mprotect(place, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0

    def array(self, like: Any, at_end: bool) -> Any:
        """A copy of `like` whose last (or first) byte is the last (or first) that may be touched."""
        whole = np.frombuffer(self.map, dtype="u1", offset=mmap.PAGESIZE, count=self.size)
        whole[...] = 0xA5
        begin = self.size - like.nbytes if at_end else 0
        result = whole[begin : begin + like.nbytes].view(like.dtype).reshape(like.shape)
        result[...] = like
        return result

    def untouched(self, like: Any, at_end: bool) -> bool:
        """Whether all is as it was but for the array."""
        whole = np.frombuffer(self.map, dtype="u1", offset=mmap.PAGESIZE, count=self.size)
        rest = whole[: self.size - like.nbytes] if at_end else whole[like.nbytes :]
        return bool((rest == 0xA5).all())


ROOMS = [Room() for _ in range(5)]


CODE: dict[str, Any] = {}


def function_of(piece: CompilationUnit) -> Any:
    """The machine code of a piece, compiled once."""
    if piece.text not in CODE:
        for name in RARE:
            jit.define_symbol(name, shared_function(name))
        module = unit_module("kernel")
        piece.define(module, "kernel")
        code = jit.load_object(jit.compile_ir(str(module), "kernel", piece.kind))
        CODE[piece.text] = (
            code,
            ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(code.address("kernel")),
        )
    return CODE[piece.text][1]


def ran(kernel: Kernel, sizes: dict[str, int], arrays: dict[str, Any], at_end: bool) -> dict[str, Any]:
    """What arrays are after the kernel; inputs and all around the arrays must be as before."""
    piece, names = unit_of_kernel(verify_kernel(kernel))
    function = function_of(piece)
    placed = {name: room.array(x, at_end) for (name, x), room in zip(arrays.items(), ROOMS)}
    words = [0, sizes[str(kernel.loops[kernel.chunked].extent)]]
    for name in names:
        words += [list(arrays).index(name), 0] if name in arrays else [sizes[name]]
    args = np.array(words, dtype=np.int64)
    pointers = np.array([x.ctypes.data for x in placed.values()], dtype=np.int64)
    assert function(args.ctypes.data, pointers.ctypes.data) == 0
    for room, (name, x) in zip(ROOMS, arrays.items()):
        assert room.untouched(x, at_end)
        assert kernel.buffers[name][1] == "out" or np.array_equal(placed[name], x, equal_nan=x.dtype.kind == "f")
    return {name: x.copy() for name, x in placed.items()}


def v(number: int, dtype: str) -> Operand:
    return Operand(f"v{number}", dtype)


def numbers(dtype: str, *shape: int) -> Any:
    """Whole numbers whose sums are exact."""
    if dtype == "bool":
        return rng.random(shape) < 0.8
    return rng.integers(0 if dtype[0] == "u" else -3, 4, shape).astype(DTYPES[dtype])


def with_vectors_of(size: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let kernels have vectors of so many bytes, as on other machines, and compile them anew; the size itself."""
    monkeypatch.setattr(vectorize, "vector_bytes", lambda: size)
    monkeypatch.setattr(vectorize, "compute_vector_bytes", lambda: size)
    monkeypatch.setattr(vectorize, "narrowest_bytes", lambda: 1)
    for module in (vector_kernel, vector_memory):  # as CPUs do that have no longer vectors
        monkeypatch.setattr(module, "stores_slowly_with_masks", lambda: size == 32)
    monkeypatch.setattr(sys.modules[__name__], "CODE", {})
    return size
