"""How LLVM makes machine code of a module: a target machine, and a pipeline of passes for each kind of text.

LLVM's own pipelines are made for what a C++ compiler writes, and take ten times as long as a kernel needs that is
written as it should run. So text says of which kind it is:

    loops     plain loops, which LLVM unrolls and makes vectors of
    vectors   loops over vectors, written so
    turns     turns that run one after the other, of numbers or of such loops
    calls     loops whose turns call kernels and products, and do nothing else
    glue      what runs once for each call of a program, and what programs share
    cold      what runs once for each step of a program, or more rarely
    written   loops over vectors, of which each instruction is written as it should be

What is quick to compile is slower to run, and the other way round: for kernels there is a pipeline for each level from
1 to 3 of the option `optimize`.

Llvmlite, Numba's layer of LLVM, is called directly: importing numba takes longer than to compile a small program.
Numba's switches mean here what they mean there. `NUMBA_OPT` replaces the pipelines of all kinds by LLVM's own of that
level.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

import llvmlite.binding as ll

from tracegrad.utils.lazy_dataclass import record

__all__ = ["KINDS", "SWITCHES", "Pipeline", "emitted", "initialize", "pipeline_of", "require_memory"]

_T = TypeVar("_T")

KINDS = ("loops", "vectors", "turns", "calls", "glue", "cold", "written")

# What Numba reads from the environment that changes the code it makes.
SWITCHES = (
    "NUMBA_OPT",
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
    "NUMBA_ENABLE_AVX",
    "NUMBA_LOOP_VECTORIZE",
    "NUMBA_SLP_VECTORIZE",
)

# These are slower with AVX than without, says Numba.
_SLOW_AVX = ("corei7-avx", "core-avx-i", "sandybridge", "ivybridge")

_BY_HAND = (
    "always_inliner",
    "global_dead_code_eliminate",
    "sroa",
    "simplify_cfg",
    "new_gvn",  # before the next, which writes equal expressions in several ways, by who else uses their parts
    "instruction_combine",
    "simplify_cfg",
)


@record(frozen=True)
class Pipeline:
    """What is done to a module: LLVM's own passes of a `level` from 0 to 3, or None for a few chosen by hand; then code
    generation of level `codegen`."""

    level: int | None
    codegen: int
    vectorize: bool = False
    unroll: bool = False
    as_written: bool = False  # whether loops keep the addresses that they are written with


_FULL = Pipeline(3, 3, vectorize=True, unroll=True)
# Of a kind, for each level of `optimize`.
_PIPELINES = {
    "loops": (Pipeline(None, 0), Pipeline(2, 2, vectorize=True, unroll=True), _FULL),
    "vectors": (Pipeline(None, 0), Pipeline(None, 1, as_written=True), _FULL),
    "turns": (Pipeline(None, 0), Pipeline(None, 2, as_written=True), _FULL),
    "calls": (Pipeline(None, 0), Pipeline(None, 0), _FULL),
    "glue": (Pipeline(None, 1, as_written=True),) * 3,
    "cold": (Pipeline(None, 0),) * 3,
    "written": (Pipeline(0, 1, as_written=True),) * 3,
}


@cache
def initialize() -> None:
    """LLVM's own initialisation, once, at first use."""
    ll.initialize_native_target()
    ll.initialize_native_asmprinter()


def _switch(name: str, default: _T, parse: Callable[[str], _T]) -> _T:
    """What a switch of Numba's says; what Numba cannot read counts as not set, as there."""
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
    """The pipeline for text of this kind, to be compiled quickly (1), or to run quickly (3).

    >>> pipeline_of("glue").codegen
    1
    """
    level = _switch("NUMBA_OPT", None, _level)
    own = _PIPELINES[kind][optimize - 1] if level is None else Pipeline(level, level, vectorize=True, unroll=True)
    vectorize = own.vectorize and _switch("NUMBA_LOOP_VECTORIZE", True, lambda text: bool(int(text)))
    return Pipeline(own.level, own.codegen, vectorize, own.unroll, own.as_written)


@cache
def _machine(codegen: int) -> Any:
    """A target machine for this CPU whose code may call to anywhere in the address space."""
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


# What LLVM allocates at the most, in bytes: to begin, and for a character of the text. Kernels take up to 140 each.
_TO_BEGIN, _EACH = 8 << 20, 500


def require_memory(size: int, what: str) -> None:
    """MemoryError where the process cannot have so many bytes, by a limit on its address space or its data, say. LLVM
    would end the process.

    >>> require_memory(1 << 60, "this")
    Traceback (most recent call last):
    ...
    MemoryError: this may take 1099511627776 MB, which the process cannot have
    """
    private: dict[str, Any] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        mmap.mmap(-1, size, **private).close()  # no page of it is touched
    except (OSError, OverflowError):
        raise MemoryError(f"{what} may take {size >> 20} MB, which the process cannot have") from None


def emitted(text: str, name: str, pipeline: Pipeline, form: str) -> Any:
    """A module after the passes of a pipeline: its "object" code as bytes, its "assembly" or its "ir" as text.

    Raises `RuntimeError` (llvmlite's) when the text does not parse or verify, and MemoryError before LLVM lacks memory.
    """
    require_memory(_TO_BEGIN + _EACH * len(text), f"to compile {name}")
    machine = _machine(pipeline.codegen)
    # In a context of its own, whose types and constants are given back with it. The module is closed here: who collects
    # a cycle of references, as an error makes that is kept, may close the context first, and closing the module then
    # crashes.
    with ll.parse_assembly(text, ll.create_context()) as module:
        module.name, module.triple, module.data_layout = name, ll.get_process_triple(), str(machine.target_data)
        _optimize(module, machine, pipeline)
        if form == "ir":
            return str(module)
        with _as_written() if pipeline.as_written and ll.llvm_version_info[0] in _KNOWN else nullcontext():
            return machine.emit_object(module) if form == "object" else machine.emit_assembly(module)


# The versions of LLVM that know the option below: one that does not ends the process.
_KNOWN = (20, 21, 22)


@contextmanager
def _as_written() -> Iterator[None]:
    """Without the pass that looks for other ways to write the addresses of a loop, all of them at once: it takes up to
    half of the time of code generation, and ours have nothing to gain. LLVM has a switch for the process alone, so
    nobody else is let into LLVM meanwhile."""
    with ll.ffi.lib._lock:
        ll.set_option("tracegrad", "-disable-lsr")
        try:
            yield
        finally:
            ll.set_option("tracegrad", "-disable-lsr=false")


def _optimize(module: Any, machine: Any, pipeline: Pipeline) -> None:
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
