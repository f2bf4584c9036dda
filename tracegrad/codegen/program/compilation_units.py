"""Form the compilation units of a plan, keyed by canonical text and shared among programs.

A unit is an instruction function (`tracegrad.codegen.program.interpreter`). Its text shows everything that its machine
code depends on, with names in order of first use. The text does not depend on the enclosing program. Sizes, constants
and locations of buffers are operands. There are two kinds:

- a kernel over symbolic sizes. Its first two operands are its rows [low, high);
- a part: a step with regions, together with the adjacent kernels of a few elements. In one function, LLVM passes values
  between the small kernels in registers. A part calls the larger kernels of its regions by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64, constant_of, memory_type
from tracegrad.codegen.instr.support import INSTRUCTION_TYPE
from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.kernels.scalar_kernel import kernel_function, kernel_symbol
from tracegrad.codegen.loopir.blocking import STRIPS
from tracegrad.codegen.loopir.kernel import BoundsCheck, Kernel, flattened
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.places_and_values import ValueName, location_names
from tracegrad.codegen.plan.program_plan import Plan, functions_of, plans_of
from tracegrad.codegen.plan.region_steps import Nested, ScanStep, regions_of
from tracegrad.codegen.program.region_function import PlanSegment, define_segment, has_llvm_loops
from tracegrad.utils.lazy_dataclass import record

I32 = ir.IntType(32)
_NAME = r"\b[bskc]\d+\b"


@record(frozen=True)
class CompilationUnit:
    """A compilation unit, which programs share. Units with equal text and optimization are equal."""

    text: str
    define: Callable[[ir.IRModule, str], None] = field(
        compare=False, repr=False
    )  # defines it in a module, under a name
    kernel: str = field(default="", compare=False)  # the symbol of the kernel that it exports, or ""
    needs: tuple[CompilationUnit, ...] = field(
        default=(), compare=False, repr=False
    )  # the units whose kernels it calls
    own_kernels: Sequence[Kernel] = field(default=(), compare=False, repr=False)  # the kernels that it contains
    optimize: int = 2  # from 1, quickest to compile, to 3, quickest to run

    @property
    def kind(self) -> str:
        """The kind of its LLVM IR (`tracegrad.runtime.compile.pass_pipelines`), needed only to compile it."""
        if not self.own_kernels:
            return "calls"
        if any(map(has_llvm_loops, self.own_kernels)):
            return "loops"
        return "vectors" if self.kernel and not is_serial(self.own_kernels[0]) else "iterations"


# -- kernels -------------------------------------------------------------------------------------------------
def unit_of_kernel(kernel: Kernel, optimize: int = 2) -> tuple[CompilationUnit, list[str]]:
    """The compilation unit of a kernel, and the names of its operands after the rows; a buffer has two operands."""
    text, names = kernel.signature()
    define = partial(_define_kernel, kernel, names)
    return CompilationUnit(text, define, kernel_symbol(text), own_kernels=(kernel,), optimize=optimize), names


def _define_kernel(kernel: Kernel, names: Sequence[str], module: ir.IRModule, name: str) -> None:
    inner = kernel_function(module, kernel, kernel_symbol(kernel.signature()[0]))
    inner.linkage = "external"
    inner.attributes.add("noinline")  # so that LLVM knows that its buffers do not alias
    function = ir.IRFunction(module, INSTRUCTION_TYPE, name)
    for attribute in ("noinline", "optnone"):  # optimization would take long and have no effect
        function.attributes.add(attribute)
    b, (operands, pointers) = ir.IRBuilder(function.append_basic_block("entry")), function.args
    read = _reader(b, operands)
    low, high = read(), read()
    constants, args = kernel.constants(), []
    for each in names:
        if each in kernel.buffers:
            pointer = b.gep(b.load(b.gep(pointers, [read()])), [read()])
            args.append(b.bitcast(pointer, memory_type(kernel.buffers[each][0]).as_pointer()))
        else:
            args.append(constant_of(b, read(), constants[each]) if each in constants else read())
    if any(isinstance(x, BoundsCheck) for x in flattened(kernel.body)):
        status = b.alloca(I32)
        b.store(ir.IRConstant(I32, 0), status)
        b.call(inner, [*args, status, low, high])
        b.ret(b.load(status))
    else:
        b.call(inner, [*args, ir.IRConstant(I32.as_pointer(), None), low, high])
        b.ret(ir.IRConstant(I32, 0))


def _reader(b: ir.IRBuilder, operands: ir.IRValue) -> Callable[[], Any]:
    """A function that loads the next operand at each call."""
    numbers = iter(range(2**31))
    return lambda: b.load(b.gep(operands, [ir.IRConstant(I64, next(numbers))]))


# -- parts ---------------------------------------------------------------------------------------------------
def unit_of_segment(plan: Plan, first: int, last: int, optimize: int = 2) -> tuple[CompilationUnit, PlanSegment]:
    """The compilation unit of steps `first` to `last` of a plan, and its part, which names the operands."""
    steps = plan.steps[first : last + 1]
    lines = [step.head() if isinstance(step, Nested) else step.text() for step in steps]
    order: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        name = match[0]
        known = name in plan.memory or ValueName(name) in plan.values
        return order.setdefault(name, f"{name[0]}{len(order)}") if known else name

    text = [re.sub(_NAME, renamed, line) for line in lines]
    values = dict.fromkeys(location_names("arena"), 0)
    for name in order:
        if name in plan.memory:
            values |= dict.fromkeys(location_names(name), 0)
        else:
            values[ValueName(name)] = plan.values[ValueName(name)]
    functions = sorted({f for step in steps for f in functions_of(step)})
    values |= dict.fromkeys(map(ValueName, functions), 0)
    nested = [i for i, step in enumerate(steps, first) if isinstance(step, Nested)]
    region_values = [name for name in plan.values if name.outer_step in nested] if nested else []
    values |= {name: plan.values[name] for name in region_values}
    for i, step in enumerate(steps, first):
        for region, inner in regions_of(step):
            text += [f"{i - first}.{region}:", inner.text()]
    value_names = [*functions, *(str(name.counted_from(first)) for name in region_values)]
    text.append(f"part of {len(steps)} steps, values: {', '.join(value_names)}")
    regions = [each for step in steps for _, region in regions_of(step) for each in plans_of(region)]
    within = [x for each in regions for x in each.steps]
    launches = [x for x in within if isinstance(x, Launch) and x.is_separate_function]
    needs = dict.fromkeys(unit_of_kernel(x.kernel, optimize)[0] for x in launches)
    # Strips contain all of their kernels; other steps call functions that run longer than the call.
    strips = any(isinstance(x, ScanStep) and x.blocking.strategy == STRIPS for x in (*steps, *within))
    kernels = [x.kernel for x in (*steps, *within) if isinstance(x, Launch) and (strips or not x.is_separate_function)]
    segment = PlanSegment(first, steps, [name for name in order if name in plan.memory], values, kernels)
    define = partial(define_segment, segment)
    return CompilationUnit("\n".join(text), define, needs=tuple(needs), own_kernels=kernels, optimize=optimize), segment
