"""Machine code for other systems, made here by LLVM."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from tracegrad.runtime.compile import pass_pipelines

__all__ = ["object_code"]


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def object_code(text: str, triple: str, cpu: str = "", pipeline: pass_pipelines.Pipeline | None = None) -> bytes:
    """The object file of IR for a system and a CPU, made by a pipeline, or without any passes."""
    _initialize()
    level = 2 if pipeline is None else pipeline.codegen
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, opt=level, codemodel="jitdefault", jit=True
    )
    with llvm.parse_assembly(text, llvm.create_context()) as module:
        module.triple, module.data_layout = triple, str(machine.target_data)
        if pipeline is not None:
            pass_pipelines._optimize(module, machine, pipeline)
        return bytes(machine.emit_object(module))
