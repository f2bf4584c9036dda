"""Machine code by what it is made of: pieces in memory, on disk, or compiled now.

A piece is found by its text, so programs share it: a derivative with its function, a layer with the others, a process
with the one before. It is kept as long as a program that runs it. Several threads that need one piece compile it once.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

from tracegrad.codegen.pieces import Piece
from tracegrad.codegen.support import support_module
from tracegrad.codegen.vecmath import rare_module
from tracegrad.codegen.walker import STEP, WALK, walker_module
from tracegrad.records import record
from tracegrad.runtime import native
from tracegrad.runtime.cache import default_cache
from tracegrad.runtime.progress import advance

__all__ = ["Loaded", "Origin", "machine_code", "machine_code_count", "shared_function"]


class Loaded:
    """A piece in memory: the address of its function, as long as this object lives."""

    __slots__ = ("__weakref__", "_code", "address", "needs")

    def __init__(self, code: native.NativeCode, address: int):
        self._code, self.address = code, address
        self.needs: list[Loaded] = []  # what it calls

    def kernel(self, symbol: str) -> int:
        """The address of the kernel that it defines for others."""
        return self._code.address(symbol)


@record(frozen=True)
class Origin:
    """Where a piece was found: in "memory", on "disk", or nowhere ("compiled"); and the seconds that it took."""

    source: str
    seconds: float


_loaded: WeakValueDictionary[str, Loaded] = WeakValueDictionary()
_compiled = 0


def machine_code_count() -> int:
    """How many pieces of machine code this process has compiled (not loaded from the disk cache)."""
    return _compiled


def machine_code(pieces: Iterable[Piece]) -> dict[Piece, tuple[Loaded, Origin]]:
    """The machine code of pieces, and where it came from."""
    keys = {piece: hashlib.sha256(f"{native.cpu_key()}\n{piece.text}".encode()).hexdigest() for piece in pieces}
    found = _in_memory(keys)
    if len(found) < len(keys):
        with native.LOCK:
            found |= _in_memory(_without(keys, found))  # what another thread has loaded meanwhile
            found |= _load(_without(keys, found), found)
    return found


def _without(keys: dict[Piece, str], found: dict[Piece, Any]) -> dict[Piece, str]:
    return {piece: key for piece, key in keys.items() if piece not in found}


def _in_memory(keys: dict[Piece, str]) -> dict[Piece, tuple[Loaded, Origin]]:
    loaded = {piece: _loaded.get(key) for piece, key in keys.items()}
    return {piece: (code, Origin("memory", 0.0)) for piece, code in loaded.items() if code is not None}


def _load(keys: dict[Piece, str], found: dict[Piece, tuple[Loaded, Origin]]) -> dict[Piece, tuple[Loaded, Origin]]:
    """Load pieces, together: what takes time is to begin, and to make memory executable."""
    if not keys:
        return {}
    for needed in {x for piece in keys for x in piece.needs if x in found}:
        native.define_symbol(needed.kernel, found[needed][0].kernel(needed.kernel))
    advance(more=len(keys))
    objects = {piece: _object(piece, key) for piece, key in keys.items()}
    code = native.load_objects([data for data, _ in objects.values()])
    new = {}
    for piece, key in keys.items():
        new[piece] = Loaded(code, code.address(_symbol(key))), objects[piece][1]
        new[piece][0].needs = [(found | new)[x][0] for x in piece.needs]
        _loaded[key] = new[piece][0]
    return new


def _object(piece: Piece, key: str) -> tuple[bytes, Origin]:
    """The object file of a piece, from disk or compiled."""
    global _compiled
    start = time.perf_counter()
    found = default_cache().get(key)
    if found is not None:
        advance(done=1)
        return found[1], Origin("disk", time.perf_counter() - start)
    name = _symbol(key)
    data = native.compile_ir(piece.make(name), name)
    default_cache().put(key, {"kind": "piece"}, data)
    _compiled += 1
    advance(done=1)
    return data, Origin("compiled", time.perf_counter() - start)


def _symbol(key: str) -> str:
    return f"tracegrad.{key[:24]}"


def shared_function(name: str) -> int:
    """The address of a function that programs share: see `tracegrad.codegen.support` and `tracegrad.codegen.walker`."""
    make = rare_module if name.startswith("tg.rare_") else support_module
    if name == WALK or name.startswith(STEP):
        make = walker_module
    kind = "glue" if make is walker_module and not name.startswith(f"{STEP}fill.") else "loops"
    return native.load_ir(lambda: make(name), name, kind).address(name)
