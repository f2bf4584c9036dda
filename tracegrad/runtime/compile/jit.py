"""Compile LLVM IR to object code, and link object code into the process (JIT).

The interface between the two halves is an object file, which the disk cache stores:

* `compile_ir` makes the object file, by the passes of `tracegrad.runtime.compile.pass_pipelines`.
* `load_object` maps an object file into the process and resolves its symbols.

Machine code calls out by symbol. A symbol belongs to the process (`memcpy`, `sqrt`) or was given its address by
`define_symbol`. The code model is the large one: an address may be anywhere in the address space.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import llvmlite.binding as ll
import numpy as np

from tracegrad.cpython.threads import is_free_threaded
from tracegrad.errors import PACKAGE, UnsupportedError
from tracegrad.locks import reentrant_lock, wait_for_imports
from tracegrad.platform.libraries import c_functions
from tracegrad.platform.object_files import symbols
from tracegrad.platform.processes import at_fork, instruction_set
from tracegrad.runtime.compile.disk_cache import default_cache
from tracegrad.runtime.compile.pass_pipelines import SWITCHES, emitted, initialize, pipeline_of, require_memory
from tracegrad.utils.deferred_signals import uninterrupted

if TYPE_CHECKING:
    from tracegrad import llvmir as ir

# Held while machine code is made or loaded: LLVM is not concurrent, common code is made once, and a forked child
# inherits nothing incomplete. It is reentrant, because a finalizer may need code while its thread makes some.
LOCK = reentrant_lock()


def _lock() -> None:
    LOCK.acquire()
    ll.ffi.lib._lock.__enter__()  # a thread that frees an engine holds only this lock


def _unlock() -> None:
    ll.ffi.lib._lock.__exit__()
    LOCK.release()


at_fork(_lock, _unlock, _unlock)
at_fork(before=wait_for_imports)  # runs before functions registered earlier


def compile_ir(module: ir.IRModule | str, name: str, kind: str = "loops", optimize: int = 2) -> bytes:
    """Compile an LLVM module to object code, optimized for this CPU by the pipeline of its kind (`pass_pipelines`).

    Triple and data layout are set here; the module need not carry them. `name` identifies the module in
    debuggers and has no influence on the symbols. `alwaysinline` functions are inlined before anything else.

    Raises `RuntimeError` (llvmlite's) when the IR does not parse or verify.

    >>> code = compile_ir("define i64 @twice(i64 %x) { %y = add i64 %x, %x\\n ret i64 %y }", "doc")
    >>> import ctypes
    >>> native = load_object(code)
    >>> ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(native.address("twice"))(21)
    42
    """
    with LOCK:
        return bytes(emitted(str(module), name, pipeline_of(kind, optimize), "object"))


def optimized_ir(module: ir.IRModule | str, name: str, kind: str = "loops") -> str:
    """The LLVM IR of a module after optimization, from which `compile_ir` generates machine code.

    >>> text = optimized_ir("define i64 @three() { %y = add i64 1, 2\\n ret i64 %y }", "doc")
    >>> "ret i64 3" in text
    True
    """
    with LOCK:
        return str(emitted(str(module), name, pipeline_of(kind), "ir"))


def optimized_assembly(module: ir.IRModule | str, name: str, kind: str = "loops") -> str:
    """The assembly of the machine code that `compile_ir` generates.

    >>> "three:" in optimized_assembly("define i64 @three() { ret i64 3 }", "doc")
    True
    """
    with LOCK:
        return str(emitted(str(module), name, pipeline_of(kind), "assembly"))


def define_symbol(name: str, address: int) -> None:
    """Define a symbol for machine code loaded from now on: `name` is at `address`, in the whole process.

    A later definition of the same name holds for objects loaded after it. The code or data at the address must
    outlive all code that was linked to it.

    >>> define_symbol("tg_doc_symbol", 4096)
    """
    initialize()
    ll.add_symbol(name, address)


class NativeCode:
    """An object file mapped into the process; its addresses are valid as long as this object lives."""

    __slots__ = ("__weakref__", "_addresses", "_defined", "_engine", "dependencies", "size")

    def __init__(self, engine: Any, defined: frozenset[str], size: int) -> None:
        self._engine = engine
        self._defined = defined
        self._addresses: dict[str, int] = {}
        self.size = size
        self.dependencies: object = None  # the code that it calls

    def __contains__(self, symbol: str) -> bool:
        return symbol in self._defined

    def address(self, symbol: str) -> int:
        """The address of a function or global of the object file; KeyError if there is none of that name."""
        result = self._addresses.get(symbol)
        if result is None:
            # LLVM ends the process on an unknown name, so the defined names are checked first.
            if symbol not in self:
                raise KeyError(f"the object code defines no symbol {symbol!r}")
            result = self._addresses[symbol] = int(self._engine.get_function_address(symbol))
        return result

    def pin(self) -> None:
        """Never free the memory, not even when the interpreter exits."""
        self._engine.detach()


def load_object(code: bytes) -> NativeCode:
    """Map object code made by `compile_ir` into the process.

    The bytes must be complete, because LLVM checks nothing. Raises `UnsupportedError` if the code needs a symbol that
    neither the process nor `define_symbol` defines, or if it is not an object file at all.

    >>> native = load_object(compile_ir("define i64 @seven() { ret i64 7 }", "doc"))
    >>> native.address("seven") != 0
    True
    """
    return load_objects([code])


def load_objects(codes: Sequence[bytes]) -> NativeCode:
    """Map several object files into the process, as `load_object` maps one; they live and die together.

    No two of them may define the same symbol.
    """
    require_memory((4 << 20) + 4 * sum(map(len, codes)), "to load machine code")
    engine = _engine()
    code = _add(engine, codes)
    weakref.finalize(code, _close_engine, engine).atexit = False
    return code


def _close_engine(engine: Any) -> None:
    """Free an engine without code. A signal handler that raised while LLVM's lock is held would never release it."""
    with uninterrupted():
        engine.close()


def _engine() -> Any:
    """Create an engine that maps object files, which live as long as it does.

    LLVM creates it with an empty module, which it would compile before it maps anything, so the module is removed.
    """
    initialize()
    _define_c_functions()
    target, empty = ll.Target.from_triple(ll.get_process_triple()), ll.parse_assembly("")
    engine = ll.create_mcjit_compiler(empty, target.create_target_machine())
    engine.remove_module(empty)
    return engine


@cache
def _define_c_functions() -> None:
    for name, address in c_functions().items():
        ll.add_symbol(name, address)


def _add(engine: Any, codes: Sequence[bytes]) -> NativeCode:
    tables = [each for each in map(symbols, codes) if each is not None]
    if len(tables) < len(codes):
        raise UnsupportedError("not an object file of this machine")
    defined = frozenset[str]().union(*(each.defined for each in tables))
    needed = frozenset[str]().union(*(each.needed for each in tables)) - defined
    missing = sorted(name for name in needed if not ll.address_of_symbol(name))
    if missing:
        raise UnsupportedError(f"object code calls {', '.join(missing)}, which this process does not have")
    for code in codes:
        engine.add_object_file(ll.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return NativeCode(engine, defined, sum(map(len, codes)))


def load_ir(make: Callable[[], str], name: str, kind: str = "glue", optimize: int = 2) -> NativeCode:
    """The machine code of the LLVM IR that `make` emits: from the disk cache, or compiled now.

    It is loaded once and never freed, so callers may keep bare addresses. `make` is part of this package and
    deterministic: its source is part of the key, so on a cache hit it is not called.

    >>> native = load_ir(lambda: "define i64 @eight() { ret i64 8 }", "doc")
    >>> "eight" in native and native is load_ir(lambda: "", "doc")
    True
    """
    result = _loaded_modules.get(name)
    if result is None:
        with LOCK:
            result = _loaded_modules.get(name)
            if result is None:
                result = _loaded_modules[name] = _load_ir(make, name, kind, optimize)
    return result


_loaded_modules: dict[str, NativeCode] = {}


def compile_forever(source: str, *names: str) -> list[int]:
    """The addresses of functions in a module of LLVM IR, from the disk cache or compiled now, and never freed.

    For glue code that other threads may run while Python destroys its objects at exit.

    >>> ctypes.CFUNCTYPE(ctypes.c_int64)(*compile_forever("define i64 @six() { ret i64 6 }", "six"))()
    6
    """
    key = f"forever {cpu_key()}\n{source}"
    result = default_cache().get(key)
    code = compile_ir(source, "forever", "cold") if result is None else result[1]
    if result is None:
        default_cache().put(key, {}, code)
    loaded = load_object(code)
    addresses = [loaded.address(name) for name in names]
    loaded.pin()
    return addresses


def is_known(name: str) -> bool:
    """Whether `load_ir` has this module in memory or on disk."""
    return name in _loaded_modules or default_cache().has(_key(name))


def _load_ir(make: Callable[[], str], name: str, kind: str, optimize: int) -> NativeCode:
    key = _key(name)
    result = default_cache().get(key)
    if result is not None:
        return _add(_lasting_engine(), [result[1]])
    code = compile_ir(make(), name, kind, optimize)
    default_cache().put(key, {}, code)
    return _add(_lasting_engine(), [code])


def _key(name: str) -> str:
    return f"{name} {cpu_key()}"


@cache
def _lasting_engine() -> object:
    """One engine for all code that is never freed, because a new engine costs more than another object file. It
    survives the interpreter's exit: other threads may run its code while Python destroys its objects, and arrays that
    die late call it."""
    engine = _engine()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))
    return engine


@cache
def cpu_key() -> str:
    """The key of everything that object code depends on besides its IR: CPU, features, versions, the compiler's own
    source.

    It is a part of every key of the disk cache. The package's source counts by size and modification time, so that an
    edited compiler never loads code of its former version.

    >>> cpu_key() == cpu_key() and len(cpu_key()) == 64
    True
    """
    import llvmlite

    with uninterrupted():
        initialize()
        cpu = [ll.get_host_cpu_name(), ll.get_host_cpu_features().flatten()]
    parts = [
        sys.implementation.cache_tag or "",
        "without a GIL" if is_free_threaded() else "",
        sys.platform,
        instruction_set(),
        *cpu,
        llvmlite.__version__,
        np.__version__,
        *(f"{switch}={os.environ.get(switch)}" for switch in SWITCHES),
        *filter(_of_compiler, source_stamps()),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def source_stamps() -> list[str]:
    """Each file of the package that has code, with its size and modification time."""
    folders, stamps = [PACKAGE], []
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".ll")):
                    status = entry.stat()
                    stamps.append(f"{entry.path[len(PACKAGE) :]} {status.st_size} {status.st_mtime_ns}")
                elif entry.is_dir() and entry.name != "__pycache__":
                    folders.append(entry.path)
    return sorted(stamps)


def _of_compiler(stamp: str) -> bool:
    """Whether a source file can change the machine code of a text."""
    folder, below, _ = stamp.partition(os.sep)
    return not below or folder in ("ops", "passes", "llvmir", "codegen", "runtime", "target")
