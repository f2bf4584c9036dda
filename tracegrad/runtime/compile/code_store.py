"""Find the machine code of a compilation unit by its text: in memory, on disk, or compiled now.

A unit is found by its text, so programs share it: a derivative with its function, a layer with equal layers, a process
with the one before. It lives as long as a program that runs it. Threads that need one unit at the same time compile it
once.

The new kernels of one program are one LLVM module, because a module has a large fixed cost. An object file therefore
contains several units, and is found by each of them. Loading one unit loads the others of its file.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from weakref import WeakValueDictionary

from tracegrad.codegen.instr.support import MERGED, support_module
from tracegrad.codegen.libs.gemm import GEMM, gemm_module
from tracegrad.codegen.libs.linear_algebra import NATIVE, lapack_module
from tracegrad.codegen.libs.sorting import ORDERING, ordering_module
from tracegrad.codegen.program.compilation_units import CompilationUnit
from tracegrad.codegen.program.encode import C_LIBRARY
from tracegrad.codegen.program.interpreter import FUSED_STRIPS, STEP, TOGETHER, WALK, interpreter_module
from tracegrad.codegen.program.region_function import unit_module
from tracegrad.codegen.vecmath import rare_module
from tracegrad.platform.libraries import address, c_library
from tracegrad.runtime.compile import jit
from tracegrad.runtime.compile.disk_cache import default_cache
from tracegrad.runtime.compile.progress import advance
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.gc_pause import impatient
from tracegrad.utils.lazy_dataclass import record

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
class CodeOrigin:
    """The origin of a unit: "memory", "disk", or "compiled"; and the seconds that it took."""

    source: str
    seconds: float


_loaded: WeakValueDictionary[str, jit.NativeCode] = WeakValueDictionary()
_compiled = 0

LoadedUnits = dict[CompilationUnit, tuple[Loaded, CodeOrigin]]

_MAX_MODULE_KERNELS = TUNING.first_call.max_kernels_of_module


@record(frozen=True)
class _ObjectFile:
    """An object file: the keys of its units, with the seconds that each took, and the cold functions that it calls."""

    data: bytes
    source: str
    seconds: dict[str, float]
    rare: list[str]


def machine_code_count() -> int:
    """The number of compilation units that this process has compiled (not loaded from the disk cache)."""
    return _compiled


def machine_code(units: Iterable[CompilationUnit]) -> LoadedUnits:
    """The machine code of compilation units, and its origin. The list includes the dependencies of each unit."""
    keys = {unit: _key(unit) for unit in units}
    result = _in_memory(keys)
    if len(result) < len(keys):
        with jit.LOCK:
            result |= _in_memory(_without(keys, result))  # units that another thread has loaded meanwhile
            result |= _load({unit: key for unit, key in _without(keys, result).items() if not unit.needs})
            rest = _without(keys, result)
            needed = {x: result[x][0] for unit in rest for x in unit.needs}
            for unit, code in needed.items():
                jit.define_symbol(unit.kernel, code.kernel(unit.kernel))
            result |= _load(rest, tuple(needed.values()))
    return result


def missing(units: Iterable[CompilationUnit]) -> dict[str, CompilationUnit]:
    """The units that are neither in memory nor on disk, by key."""
    keys = {unit: _key(unit) for unit in units}
    return {key: unit for unit, key in _without(keys, _in_memory(keys)).items() if not default_cache().has(key)}


def unknown(functions: Iterable[str]) -> list[str]:
    """The shared functions, and the entry point, that are neither in memory nor on disk."""
    names = {_module_with(name)[1] for name in functions}
    return [name for name in (*names, "tracegrad_entry") if not jit.is_known(name)]


def still_missing(keys: Iterable[str]) -> list[str]:
    """The keys whose units are neither in memory nor on disk."""
    return [key for key in keys if key not in _loaded and not default_cache().has(key)]


def _key(unit: CompilationUnit) -> str:
    return hashlib.sha256(f"{jit.cpu_key()} {unit.optimize}\n{unit.text}".encode()).hexdigest()


def _symbol(key: str) -> str:
    return f"tracegrad.{key[:24]}"


def _without(keys: dict[CompilationUnit, str], loaded: LoadedUnits) -> dict[CompilationUnit, str]:
    return {unit: key for unit, key in keys.items() if unit not in loaded}


def _in_memory(keys: dict[CompilationUnit, str]) -> LoadedUnits:
    codes = {unit: _loaded.get(key) for unit, key in keys.items()}
    return {
        unit: (_loaded_unit(code, keys[unit]), CodeOrigin("memory", 0.0))
        for unit, code in codes.items()
        if code is not None
    }


def _loaded_unit(code: jit.NativeCode, key: str) -> Loaded:
    return Loaded(code, code.address(_symbol(key)))


def _load(keys: dict[CompilationUnit, str], needs: tuple[Loaded, ...] = ()) -> LoadedUnits:
    """Load units without other dependencies together, because an engine and executable memory have fixed costs."""
    new: LoadedUnits = {}
    for objects in _group_disjoint(_objects(keys)):
        for name in {name for each in objects for name in each.rare}:
            jit.define_symbol(name, shared_function(name))
        code = jit.load_objects([each.data for each in objects])
        code.dependencies = needs
        for each in objects:
            _loaded.update(dict.fromkeys(each.seconds, code))
        origins = {key: CodeOrigin(each.source, s) for each in objects for key, s in each.seconds.items()}
        new |= {unit: (_loaded_unit(code, key), origins[key]) for unit, key in keys.items() if key in origins}
    return new


def _group_disjoint(objects: Iterable[_ObjectFile]) -> Iterator[list[_ObjectFile]]:
    """Group objects so that no group contains a unit twice."""
    groups: list[list[_ObjectFile]] = []
    for each in objects:
        fitting = (group for group in groups if not any(each.seconds.keys() & other.seconds.keys() for other in group))
        group = next(fitting, None)
        if group is None:
            groups.append([each])
        else:
            group.append(each)
    yield from groups


def _objects(keys: dict[CompilationUnit, str]) -> Iterator[_ObjectFile]:
    """The object files of units, from disk or compiled."""
    advance(added=len(keys))
    known = set[str]()
    for key in keys.values():
        if key not in known and (result := _on_disk(key)) is not None:
            known.update(result.seconds)
            yield result
    advance(done=len(known.intersection(keys.values())))
    new = {unit: key for unit, key in keys.items() if key not in known}
    for group in _module_groups(new):
        yield _compile(group, [new[unit] for unit in group])


def _module_groups(units: Iterable[CompilationUnit]) -> Iterator[Sequence[CompilationUnit]]:
    """Group units that are compiled as one module."""
    kernels: dict[tuple[str, int], list[CompilationUnit]] = {}
    for unit in units:
        if unit.kernel:
            kernels.setdefault((unit.kind, unit.optimize), []).append(unit)
        else:
            yield [unit]
    for group in kernels.values():
        for i in range(0, len(group), _MAX_MODULE_KERNELS):
            yield group[i : i + _MAX_MODULE_KERNELS]


def _on_disk(key: str) -> _ObjectFile | None:
    start = time.perf_counter()
    result = default_cache().get(key)
    if result is None:
        return None
    header, data = result
    share = (time.perf_counter() - start) / len(header["pieces"])
    return _ObjectFile(data, "disk", dict.fromkeys(header["pieces"], share), header["rare"])


def _compile(units: Sequence[CompilationUnit], keys: Sequence[str]) -> _ObjectFile:
    """Compile new units to an object file; the compile time is divided in proportion to their texts."""
    global _compiled
    start = time.perf_counter()
    with impatient():
        module = unit_module(_symbol(keys[0]))
        for unit, key in zip(units, keys, strict=True):
            unit.define(module, _symbol(key))
        rare = [name for name in module.globals if name.startswith(_RARE) and module.globals[name].is_declaration]
        data = jit.compile_ir(str(module), module.name, units[0].kind, units[0].optimize)
    default_cache().put(keys[0], {"kind": "piece", "pieces": [*keys], "rare": rare}, data, *keys[1:])
    _compiled += len(units)
    advance(done=len(units))
    share = (time.perf_counter() - start) / sum([len(unit.text) for unit in units])
    return _ObjectFile(data, "compiled", {key: share * len(unit.text) for unit, key in zip(units, keys)}, rare)


def shared_function(name: str) -> int:
    """The address of a function that programs share: one of `tracegrad.codegen.instr.support`, of the interpreter, of
    `tracegrad.codegen.libs`, or of the C library."""
    if name in C_LIBRARY:
        return address(c_library(), name)
    make, module, kind, optimize = _module_with(name)
    return jit.load_ir(make, module, kind, optimize).address(name)


def _module_with(name: str) -> tuple[Callable[[], str], str, str, int]:
    """The emitter of the module that defines a function, the module's name, and its pipeline."""
    if name in TOGETHER:
        return lambda: interpreter_module(WALK), WALK, "cold", 1
    if name.startswith(_RARE):
        return lambda: rare_module(name), name, "cold", 1
    if name.startswith(GEMM):
        return lambda: gemm_module(name), name, "written", 1
    if name.startswith(MERGED):
        return lambda: support_module(name), f"{MERGED[0]}.{name.partition('.')[2]}", "glue", 1
    if name.startswith(ORDERING):
        return lambda: ordering_module(name), name, "loops", 2
    make = lapack_module if name.startswith(NATIVE) else interpreter_module if name.startswith(STEP) else support_module
    return lambda: make(name), name, "cold" if name in ("tg_chunks", FUSED_STRIPS) else "glue", 1
