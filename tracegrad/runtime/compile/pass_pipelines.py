"""Run LLVM pass pipelines: a target machine, and one pipeline for each kind of module.

LLVM's own pipelines are made for the output of a C++ compiler, and take far longer than a kernel needs whose IR is
already optimized. Each module therefore names its kind:

    loops       plain loops, which LLVM unrolls and vectorizes
    vectors     loops that are already vectors
    iterations  loops whose iterations run in order, of scalars or of inner loops of this kind
    calls       loops whose iterations only call kernels and products
    glue        code that runs once per call of a program, and code that programs share
    cold        code that runs once per step of a program, or more rarely
    written     loops over vectors, emitted instruction by instruction as they should run

Quick compilation gives slower code, and the other way round. Kernels have one pipeline for each level from 1 to 3 of
the option `optimize`.

llvmlite, Numba's LLVM binding, is called directly, because importing numba takes longer than compiling a small program.
Numba's environment variables have the same meaning here. `NUMBA_OPT` replaces the pipelines of all kinds by LLVM's own
pipeline of that level.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

import llvmlite.binding as ll

from tracegrad.platform.memory import can_allocate
from tracegrad.utils.lazy_dataclass import record

_T = TypeVar("_T")

KINDS = ("loops", "vectors", "iterations", "calls", "glue", "cold", "written")

# Numba's environment variables that change the generated code.
SWITCHES = (
    "NUMBA_OPT",
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
    "NUMBA_ENABLE_AVX",
    "NUMBA_LOOP_VECTORIZE",
    "NUMBA_SLP_VECTORIZE",
)

# CPUs that are slower with AVX, according to Numba.
_SLOW_AVX = ("corei7-avx", "core-avx-i", "sandybridge", "ivybridge")

_BY_HAND = (
    "always_inliner",
    "global_dead_code_eliminate",
    "sroa",
    "simplify_cfg",
    "new_gvn",  # before the next, which rewrites equal expressions differently, depending on other uses
    "instruction_combine",
    "simplify_cfg",
)


@record(frozen=True)
class Pipeline:
    """The pipeline of a module: LLVM's own passes of a `level` from 0 to 3, or None for a few selected ones; then code
    generation of level `codegen`."""

    level: int | None
    codegen: int
    vectorize: bool = False
    unroll: bool = False
    as_written: bool = False  # whether loop strength reduction is disabled


_FULL = Pipeline(3, 3, vectorize=True, unroll=True)
# For each kind, one pipeline per level of `optimize`.
_PIPELINES = {
    "loops": (Pipeline(None, 0), Pipeline(2, 2, vectorize=True, unroll=True), _FULL),
    "vectors": (Pipeline(None, 0), Pipeline(None, 1, as_written=True), _FULL),
    "iterations": (Pipeline(None, 0), Pipeline(None, 2, as_written=True), _FULL),
    "calls": (Pipeline(None, 0), Pipeline(None, 0), _FULL),
    "glue": (Pipeline(None, 1, as_written=True),) * 3,
    "cold": (Pipeline(None, 0),) * 3,
    "written": (Pipeline(0, 1, as_written=True),) * 3,
}


@cache
def initialize() -> None:
    """Initialize LLVM, once, at first use."""
    ll.initialize_native_target()
    ll.initialize_native_asmprinter()


def _switch(name: str, default: _T, parse: Callable[[str], _T]) -> _T:
    """The value of a Numba environment variable; an invalid one counts as not set, as in Numba."""
    try:
        return parse(os.environ[name])
    except (KeyError, ValueError):
        return default


def _level(text: str) -> int:
    level = 3 if text == "max" else int(text)
    if not 0 <= level <= 3:
        raise ValueError(text)
    return level


def pipeline_of(kind: str, optimize: int = 2) -> Pipeline:
    """The pipeline for a kind of module, to compile quickly (1), or to run quickly (3).

    >>> pipeline_of("glue").codegen
    1
    """
    level = _switch("NUMBA_OPT", None, _level)
    pipeline = _PIPELINES[kind][optimize - 1] if level is None else Pipeline(level, level, vectorize=True, unroll=True)
    vectorize = pipeline.vectorize and _switch("NUMBA_LOOP_VECTORIZE", True, lambda text: bool(int(text)))
    return Pipeline(pipeline.level, pipeline.codegen, vectorize, pipeline.unroll, pipeline.as_written)


@cache
def _machine(codegen: int) -> Any:
    """A target machine for this CPU, with the large code model."""
    initialize()
    name = _switch("NUMBA_CPU_NAME", None, str) or ll.get_host_cpu_name()
    target = ll.Target.from_triple(ll.get_process_triple())
    return target.create_target_machine(
        cpu=name,
        features=_switch("NUMBA_CPU_FEATURES", None, str) or _features(),
        opt=codegen,
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )


def _features() -> str:
    try:
        features = ll.get_host_cpu_features()
    except RuntimeError:
        return ""
    if not _switch("NUMBA_ENABLE_AVX", ll.get_host_cpu_name() not in _SLOW_AVX, lambda text: bool(int(text))):
        features.update({name: False for name in features if name.startswith("avx")})
    return str(features.flatten())


# Upper bound of LLVM's allocation, in bytes: fixed, and per character of the text.
_TO_BEGIN, _EACH = 8 << 20, 500


def require_memory(size: int, purpose: str) -> None:
    """Raise MemoryError if the process cannot allocate `size` bytes, for instance by a limit of its address space,
    because LLVM would end the process.

    >>> require_memory(1 << 60, "this")
    Traceback (most recent call last):
    ...
    MemoryError: this may take 1099511627776 MB, which the process cannot have
    """
    if not can_allocate(size):
        raise MemoryError(f"{purpose} may take {size >> 20} MB, which the process cannot have")


def emitted(text: str, name: str, pipeline: Pipeline, form: str) -> Any:
    """Run a pipeline on a module: returns its "object" code as bytes, or its "assembly" or "ir" as text.

    Raises `RuntimeError` (llvmlite's) when the text does not parse or verify, and MemoryError before LLVM lacks memory.
    """
    require_memory(_TO_BEGIN + _EACH * len(text), f"to compile {name}")
    machine = _machine(pipeline.codegen)
    # In a context of its own, whose types and constants are freed with it. The module is closed here: a garbage
    # collector that finds both in a cycle may close the context first, and closing the module then crashes.
    with ll.parse_assembly(text, ll.create_context()) as module:
        module.name, module.triple, module.data_layout = name, ll.get_process_triple(), str(machine.target_data)
        _optimize(module, machine, pipeline)
        if form == "ir":
            return str(module)
        with _as_written() if pipeline.as_written and ll.llvm_version_info[0] in _KNOWN else nullcontext():
            return machine.emit_object(module) if form == "object" else machine.emit_assembly(module)


# The versions of LLVM with the option below; others end the process.
_KNOWN = (20, 21, 22)


@contextmanager
def _as_written() -> Iterator[None]:
    """Disable loop strength reduction, which is a large part of code generation and has nothing to gain here. LLVM's
    switch is global to the process, so LLVM is locked meanwhile."""
    with ll.ffi.lib._lock:
        ll.set_option("tracegrad", "-disable-lsr")
        try:
            yield
        finally:
            ll.set_option("tracegrad", "-disable-lsr=false")


def _optimize(module: object, machine: object, pipeline: Pipeline) -> None:
    options = ll.create_pipeline_tuning_options(pipeline.level or 0)
    options.loop_vectorization = options.loop_interleaving = pipeline.vectorize
    options.loop_unrolling = pipeline.unroll
    options.slp_vectorization = _switch("NUMBA_SLP_VECTORIZE", False, lambda text: bool(int(text)))
    builder = ll.create_pass_builder(machine, options)
    if pipeline.level is None:
        passes = ll.create_new_module_pass_manager()
        for each in _BY_HAND:
            getattr(passes, f"add_{each}_pass")()
    else:
        passes = builder.getModulePassManager()
    passes.run(module, builder)
