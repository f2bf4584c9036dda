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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64, constant_of, memory_type
from tracegrad.codegen.instr.support import OF_WORDS
from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.kernels.scalar_kernel import kernel_function, kernel_symbol
from tracegrad.codegen.loopir.kernel import Check, Kernel, flattened
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.planner import Plan, functions_of, plans_of
from tracegrad.codegen.plan.region_steps import Nested, Repeat, regions_of
from tracegrad.codegen.program.region_function import Part, define_part, leaves_loops, place_of
from tracegrad.utils.lazy_dataclass import record

__all__ = ["Piece", "kernel_piece", "part_piece"]

I32 = ir.IntType(32)
_NAME = r"\b[bskc]\d+\b"


@record(frozen=True)
class Piece:
    """A compilation unit, which programs share. Units with equal text and optimization are equal."""

    text: str
    define: Callable[[ir.Module, str], None] = field(compare=False, repr=False)  # defines it in a module, under a name
    kernel: str = field(default="", compare=False)  # the symbol of the kernel that it exports, or ""
    needs: tuple[Piece, ...] = field(default=(), compare=False, repr=False)  # the units whose kernels it calls
    own: Sequence[Kernel] = field(default=(), compare=False, repr=False)  # the kernels that it contains
    optimize: int = 2  # from 1, quickest to compile, to 3, quickest to run

    @property
    def kind(self) -> str:
        """The kind of its LLVM IR (`tracegrad.runtime.compile.pass_pipelines`), needed only to compile it."""
        if not self.own:
            return "calls"
        if any(map(leaves_loops, self.own)):
            return "loops"
        return "vectors" if self.kernel and not is_serial(self.own[0]) else "iterations"


# -- kernels -------------------------------------------------------------------------------------------------
def kernel_piece(kernel: Kernel, optimize: int = 2) -> tuple[Piece, list[str]]:
    """The compilation unit of a kernel, and the names of its operands after the rows; a buffer has two operands."""
    text, names = kernel.signature()
    define = partial(_define_kernel, kernel, names)
    return Piece(text, define, kernel_symbol(text), own=(kernel,), optimize=optimize), names


def _define_kernel(kernel: Kernel, names: Sequence[str], module: ir.Module, name: str) -> None:
    inner = kernel_function(module, kernel, kernel_symbol(kernel.signature()[0]))
    inner.linkage = "external"
    inner.attributes.add("noinline")  # so that LLVM knows that its buffers do not alias
    function = ir.Function(module, OF_WORDS, name)
    for attribute in ("noinline", "optnone"):  # optimization would take long and have no effect
        function.attributes.add(attribute)
    b, (words, pointers) = ir.IRBuilder(function.append_basic_block("entry")), function.args
    read = _reader(b, words)
    low, high = read(), read()
    constants, args = kernel.constants(), []
    for each in names:
        if each in kernel.buffers:
            place = b.gep(b.load(b.gep(pointers, [read()])), [read()])
            args.append(b.bitcast(place, memory_type(kernel.buffers[each][0]).as_pointer()))
        else:
            args.append(constant_of(b, read(), constants[each]) if each in constants else read())
    if any(isinstance(x, Check) for x in flattened(kernel.body)):
        status = b.alloca(I32)
        b.store(ir.Constant(I32, 0), status)
        b.call(inner, [*args, status, low, high])
        b.ret(b.load(status))
    else:
        b.call(inner, [*args, ir.Constant(I32.as_pointer(), None), low, high])
        b.ret(ir.Constant(I32, 0))


def _reader(b: ir.IRBuilder, words: Any) -> Callable[[], Any]:
    """A function that loads the next operand at each call."""
    numbers = iter(range(2**31))
    return lambda: b.load(b.gep(words, [ir.Constant(I64, next(numbers))]))


# -- parts ---------------------------------------------------------------------------------------------------
def part_piece(plan: Plan, first: int, last: int, optimize: int = 2) -> tuple[Piece, Part]:
    """The compilation unit of steps `first` to `last` of a plan, and its part, which names the operands."""
    steps = plan.steps[first : last + 1]
    fills = {i: plan.fills.get(i, []) for i in range(first, last + 1)}
    lines = [line for i, step in enumerate(steps, first) for line in _lines(step, fills[i])]
    order: dict[str, str] = {}
    known = {*plan.memory, *plan.values}

    def renamed(found: re.Match[str]) -> str:
        name = found[0]
        return order.setdefault(name, f"{name[0]}{len(order)}") if name in known else name

    text = [re.sub(_NAME, renamed, line) for line in lines]
    values: dict[str, Any] = dict.fromkeys(place_of("arena"), 0)
    for name in order:
        values |= dict.fromkeys(place_of(name), 0) if name in plan.memory else {name: plan.values[name]}
    functions = sorted({f for i, step in enumerate(steps, first) for f in functions_of(step, fills[i])})
    values |= dict.fromkeys(functions, 0)
    nested = [i for i, step in enumerate(steps, first) if isinstance(step, Nested)]
    own = [name for name in plan.values if _step_of(name) in nested] if nested else []
    values |= {name: plan.values[name] for name in own}
    for i, step in enumerate(steps, first):
        for region, inner in regions_of(step):
            text += [f"{i - first}.{region}:", inner.text()]
    words = [*functions, *(_renumbered(name, first) for name in own)]
    text.append(f"part of {len(steps)} steps, words: {', '.join(words)}")
    regions = [each for step in steps for _, region in regions_of(step) for each in plans_of(region)]
    within = [x for each in regions for x in each.steps]
    launches = [x for x in within if isinstance(x, Launch) and x.stands_alone]
    needs = dict.fromkeys(kernel_piece(x.kernel, optimize)[0] for x in launches)
    # Strips contain all of their kernels; other steps call functions that run longer than the call.
    strips = any(isinstance(x, Repeat) and x.strips for x in (*steps, *within))
    kernels = [x.kernel for x in (*steps, *within) if isinstance(x, Launch) and (strips or not x.stands_alone)]
    part = Part(first, steps, fills, [name for name in order if name in plan.memory], values, kernels)
    define = partial(define_part, part)
    return Piece("\n".join(text), define, needs=tuple(needs), own=kernels, optimize=optimize), part


def _lines(step: Any, fills: Sequence[Any]) -> Iterator[str]:
    for buffer, dtype, combiner, size in fills:
        yield f"fill {buffer}: {dtype} of {size} for {combiner}"
    yield step.head() if isinstance(step, Nested) else step.text()


def _step_of(word: str) -> int:
    """The number of the step to which a run-time value of the plan, or of its regions, belongs; -1 if to none."""
    outer, slash, _ = word.partition("/")
    number = outer.partition(".")[0] if slash else word.rpartition(".")[2]
    return int(number) if number.isdigit() else -1


def _renumbered(word: str, first: int) -> str:
    outer, slash, inner = word.partition("/")
    if slash:
        number, _, region = outer.partition(".")
        return f"{int(number) - first}.{region}/{inner}"
    name, _, number = word.rpartition(".")
    return f"{name}.{int(number) - first}"
