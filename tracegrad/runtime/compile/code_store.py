"""Find the machine code of a compilation unit by its text: in memory, on disk, or compiled now.

A unit is found by its text, so programs share it: a derivative with its function, a layer with equal layers, a process
with the one before. It lives as long as a program that runs it. Threads that need one unit at the same time compile it
once.

The new kernels of one program are one LLVM module, because a module has a large fixed cost. An object file therefore
contains several units, and is found by each of them. Loading one unit loads the others of its file.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from weakref import WeakValueDictionary

from tracegrad.codegen.instr.support import MERGED, support_module
from tracegrad.codegen.libs.gemm import GEMM, gemm_module
from tracegrad.codegen.libs.linear_algebra import NATIVE, lapack_module
from tracegrad.codegen.libs.sorting import ORDERING, ordering_module
from tracegrad.codegen.program.compilation_units import Piece
from tracegrad.codegen.program.encode import C_LIBRARY
from tracegrad.codegen.program.interpreter import BAND, STEP, TOGETHER, WALK, walker_module
from tracegrad.codegen.program.region_function import module_of_pieces
from tracegrad.codegen.vecmath import rare_module
from tracegrad.runtime.compile import jit
from tracegrad.runtime.compile.disk_cache import default_cache
from tracegrad.runtime.compile.progress import advance
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.gc_pause import impatient
from tracegrad.utils.lazy_dataclass import record

__all__ = [
    "Loaded", "Origin", "machine_code", "machine_code_count", "missing", "shared_function", "still_missing", "unknown",
]  # fmt: skip

_RARE = "tg.rare_"


class Loaded:
    """A compilation unit in memory: the address of its function, valid as long as this object lives."""

    __slots__ = ("_code", "address")

    def __init__(self, code: jit.NativeCode, address: int):
        self._code, self.address = code, address

    def kernel(self, symbol: str) -> int:
        """The address of the kernel that the unit defines for others."""
        return self._code.address(symbol)


@record(frozen=True)
class Origin:
    """The origin of a unit: "memory", "disk", or "compiled"; and the seconds that it took."""

    source: str
    seconds: float


_loaded: WeakValueDictionary[str, jit.NativeCode] = WeakValueDictionary()
_compiled = 0

Found = dict[Piece, tuple[Loaded, Origin]]

_MOST_TOGETHER = TUNING.first_call.max_kernels_of_module


@record(frozen=True)
class _Object:
    """An object file: the keys of its units, with the seconds that each took, and the cold functions that it calls."""

    data: bytes
    source: str
    seconds: dict[str, float]
    rare: list[str]


def machine_code_count() -> int:
    """The number of compilation units that this process has compiled (not loaded from the disk cache)."""
    return _compiled


def machine_code(pieces: Iterable[Piece]) -> Found:
    """The machine code of compilation units, and its origin. The list includes the dependencies of each unit."""
    keys = {piece: _key(piece) for piece in pieces}
    result = _in_memory(keys)
    if len(result) < len(keys):
        with jit.LOCK:
            result |= _in_memory(_without(keys, result))  # units that another thread has loaded meanwhile
            result |= _load({piece: key for piece, key in _without(keys, result).items() if not piece.needs})
            rest = _without(keys, result)
            needed = {x: result[x][0] for piece in rest for x in piece.needs}
            for piece, code in needed.items():
                jit.define_symbol(piece.kernel, code.kernel(piece.kernel))
            result |= _load(rest, tuple(needed.values()))
    return result


def missing(pieces: Iterable[Piece]) -> dict[str, Piece]:
    """The units that are neither in memory nor on disk, by key."""
    keys = {piece: _key(piece) for piece in pieces}
    return {key: piece for piece, key in _without(keys, _in_memory(keys)).items() if not default_cache().has(key)}


def unknown(functions: Iterable[str]) -> list[str]:
    """The shared functions, and the entry point, that are neither in memory nor on disk."""
    names = {_module_with(name)[1] for name in functions}
    return [name for name in (*names, "tracegrad_entry") if not jit.is_known(name)]


def still_missing(keys: Iterable[str]) -> list[str]:
    """The keys whose units are neither in memory nor on disk."""
    return [key for key in keys if key not in _loaded and not default_cache().has(key)]


def _key(piece: Piece) -> str:
    return hashlib.sha256(f"{jit.cpu_key()} {piece.optimize}\n{piece.text}".encode()).hexdigest()


def _symbol(key: str) -> str:
    return f"tracegrad.{key[:24]}"


def _without(keys: dict[Piece, str], found: Found) -> dict[Piece, str]:
    return {piece: key for piece, key in keys.items() if piece not in found}


def _in_memory(keys: dict[Piece, str]) -> Found:
    codes = {piece: _loaded.get(key) for piece, key in keys.items()}
    return {
        piece: (_piece(code, keys[piece]), Origin("memory", 0.0)) for piece, code in codes.items() if code is not None
    }


def _piece(code: jit.NativeCode, key: str) -> Loaded:
    return Loaded(code, code.address(_symbol(key)))


def _load(keys: dict[Piece, str], needs: tuple[Loaded, ...] = ()) -> Found:
    """Load units without other dependencies together, because an engine and executable memory have fixed costs."""
    new: Found = {}
    for objects in _apart(_objects(keys)):
        for name in {name for each in objects for name in each.rare}:
            jit.define_symbol(name, shared_function(name))
        code = jit.load_objects([each.data for each in objects])
        code.keeps = needs
        for each in objects:
            _loaded.update(dict.fromkeys(each.seconds, code))
        origins = {key: Origin(each.source, s) for each in objects for key, s in each.seconds.items()}
        new |= {piece: (_piece(code, key), origins[key]) for piece, key in keys.items() if key in origins}
    return new


def _apart(objects: Iterable[_Object]) -> Iterator[list[_Object]]:
    """Group objects so that no group contains a unit twice."""
    groups: list[list[_Object]] = []
    for each in objects:
        fitting = (group for group in groups if not any(each.seconds.keys() & other.seconds.keys() for other in group))
        group = next(fitting, None)
        if group is None:
            groups.append([each])
        else:
            group.append(each)
    yield from groups


def _objects(keys: dict[Piece, str]) -> Iterator[_Object]:
    """The object files of units, from disk or compiled."""
    advance(more=len(keys))
    known = set[str]()
    for key in keys.values():
        if key not in known and (result := _on_disk(key)) is not None:
            known.update(result.seconds)
            yield result
    advance(done=len(known.intersection(keys.values())))
    new = {piece: key for piece, key in keys.items() if key not in known}
    for group in _together(new):
        yield _compile(group, [new[piece] for piece in group])


def _together(pieces: Iterable[Piece]) -> Iterator[Sequence[Piece]]:
    """Group units that are compiled as one module."""
    kernels: dict[tuple[str, int], list[Piece]] = {}
    for piece in pieces:
        if piece.kernel:
            kernels.setdefault((piece.kind, piece.optimize), []).append(piece)
        else:
            yield [piece]
    for group in kernels.values():
        for i in range(0, len(group), _MOST_TOGETHER):
            yield group[i : i + _MOST_TOGETHER]


def _on_disk(key: str) -> _Object | None:
    start = time.perf_counter()
    result = default_cache().get(key)
    if result is None:
        return None
    header, data = result
    share = (time.perf_counter() - start) / len(header["pieces"])
    return _Object(data, "disk", dict.fromkeys(header["pieces"], share), header["rare"])


def _compile(pieces: Sequence[Piece], keys: Sequence[str]) -> _Object:
    """Compile new units to an object file; the compile time is divided in proportion to their texts."""
    global _compiled
    start = time.perf_counter()
    with impatient():
        module = module_of_pieces(_symbol(keys[0]))
        for piece, key in zip(pieces, keys, strict=True):
            piece.define(module, _symbol(key))
        rare = [name for name in module.globals if name.startswith(_RARE) and module.globals[name].is_declaration]
        data = jit.compile_ir(str(module), module.name, pieces[0].kind, pieces[0].optimize)
    default_cache().put(keys[0], {"kind": "piece", "pieces": [*keys], "rare": rare}, data, *keys[1:])
    _compiled += len(pieces)
    advance(done=len(pieces))
    share = (time.perf_counter() - start) / sum([len(piece.text) for piece in pieces])
    return _Object(data, "compiled", {key: share * len(piece.text) for piece, key in zip(pieces, keys)}, rare)


def shared_function(name: str) -> int:
    """The address of a function that programs share: one of `tracegrad.codegen.instr.support`, of the interpreter, of
    `tracegrad.codegen.libs`, or of the C library."""
    if name in C_LIBRARY:
        return ctypes.cast(getattr(_c_library(), name), ctypes.c_void_p).value or 0
    make, module, kind, optimize = _module_with(name)
    return jit.load_ir(make, module, kind, optimize).address(name)


def _module_with(name: str) -> tuple[Callable[[], str], str, str, int]:
    """The emitter of the module that defines a function, the module's name, and its pipeline."""
    if name in TOGETHER:
        return lambda: walker_module(*TOGETHER), WALK, "cold", 1
    if name.startswith(_RARE):
        return lambda: rare_module(name), name, "cold", 1
    if name.startswith(GEMM):
        return lambda: gemm_module(name), name, "written", 1
    if name.startswith(MERGED):
        return lambda: support_module(name), f"{MERGED[0]}.{name.partition('.')[2]}", "glue", 1
    if name.startswith(ORDERING):
        return lambda: ordering_module(name), name, "loops", 2
    make = lapack_module if name.startswith(NATIVE) else walker_module if name.startswith(STEP) else support_module
    return lambda: make(name), name, "cold" if name in ("tg_chunks", BAND) else "glue", 1


@cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL("ucrtbase" if os.name == "nt" else None)
