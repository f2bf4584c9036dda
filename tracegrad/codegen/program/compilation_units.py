"""Pieces of machine code: what of a plan is compiled, each found by its text, whichever program it is for.

A piece is a function of words (`tracegrad.codegen.program.interpreter`). Its text shows all that its machine code
depends on, with names in order of first use, and nothing of the program around it: sizes, constants, and where buffers
are, stand in the words. There are two kinds:

- a kernel over sizes that are not known. Its first words are those of its rows [low, high);
- a part: a step that runs regions, with the kernels of a few elements that stand beside it. These are worth no function
  of their own: LLVM makes registers of what they leave to each other. Others that its regions run it calls by name.
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
    """A function of words that programs share; pieces of one text, optimised alike, are one."""

    text: str
    define: Callable[[ir.Module, str], None] = field(compare=False, repr=False)  # in this module, by this name
    kernel: str = field(default="", compare=False)  # the symbol of the kernel that it defines for others, if it does
    needs: tuple[Piece, ...] = field(default=(), compare=False, repr=False)  # the pieces whose kernels it calls
    own: Sequence[Kernel] = field(default=(), compare=False, repr=False)  # the kernels that are a part of it
    optimize: int = 2  # from 1, quickest to compile, to 3, quickest to run

    @property
    def kind(self) -> str:
        """Of what kind its LLVM IR is: see `tracegrad.runtime.compile.pass_pipelines`. Who does not compile it need not
        know."""
        if not self.own:
            return "calls"
        if any(map(leaves_loops, self.own)):
            return "loops"
        return "vectors" if self.kernel and not is_serial(self.own[0]) else "turns"


# -- kernels -------------------------------------------------------------------------------------------------
def kernel_piece(kernel: Kernel, optimize: int = 2) -> tuple[Piece, list[str]]:
    """The piece that a kernel is, and the names of what stands in its words behind the rows: two for a buffer."""
    text, names = kernel.signature()
    define = partial(_define_kernel, kernel, names)
    return Piece(text, define, kernel_symbol(text), own=(kernel,), optimize=optimize), names


def _define_kernel(kernel: Kernel, names: Sequence[str], module: ir.Module, name: str) -> None:
    inner = kernel_function(module, kernel, kernel_symbol(kernel.signature()[0]))
    inner.linkage = "external"
    inner.attributes.add("noinline")  # so that LLVM knows that its buffers share no memory
    function = ir.Function(module, OF_WORDS, name)
    for attribute in ("noinline", "optnone"):  # LLVM would look long for what could be better
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
    """A function that gives word after word."""
    numbers = iter(range(2**31))
    return lambda: b.load(b.gep(words, [ir.Constant(I64, next(numbers))]))


# -- parts ---------------------------------------------------------------------------------------------------
def part_piece(made: Plan, first: int, last: int, optimize: int = 2) -> tuple[Piece, Part]:
    """The piece that runs steps `first` to `last` of a plan; the values of the part name the words."""
    steps = made.steps[first : last + 1]
    fills = {i: made.fills.get(i, []) for i in range(first, last + 1)}
    lines = [line for i, step in enumerate(steps, first) for line in _lines(step, fills[i])]
    order: dict[str, str] = {}
    known = {*made.memory, *made.values}

    def renamed(found: re.Match[str]) -> str:
        name = found[0]
        return order.setdefault(name, f"{name[0]}{len(order)}") if name in known else name

    text = [re.sub(_NAME, renamed, line) for line in lines]
    values: dict[str, Any] = dict.fromkeys(place_of("arena"), 0)
    for name in order:
        values |= dict.fromkeys(place_of(name), 0) if name in made.memory else {name: made.values[name]}
    functions = sorted({f for i, step in enumerate(steps, first) for f in functions_of(step, fills[i])})
    values |= dict.fromkeys(functions, 0)
    nested = [i for i, step in enumerate(steps, first) if isinstance(step, Nested)]
    own = [name for name in made.values if _step_of(name) in nested] if nested else []
    values |= {name: made.values[name] for name in own}
    for i, step in enumerate(steps, first):
        for region, inner in regions_of(step):
            text += [f"{i - first}.{region}:", inner.text()]
    words = [*functions, *(_renumbered(name, first) for name in own)]
    text.append(f"part of {len(steps)} steps, words: {', '.join(words)}")
    regions = [each for step in steps for _, region in regions_of(step) for each in plans_of(region)]
    within = [x for each in regions for x in each.steps]
    launches = [x for x in within if isinstance(x, Launch) and x.stands_alone]
    needs = dict.fromkeys(kernel_piece(x.kernel, optimize)[0] for x in launches)
    # On strips all kernels are its own; other steps call functions that take longer than the call.
    strips = any(isinstance(x, Repeat) and x.strips for x in (*steps, *within))
    kernels = [x.kernel for x in (*steps, *within) if isinstance(x, Launch) and (strips or not x.stands_alone)]
    part = Part(first, steps, fills, [name for name in order if name in made.memory], values, kernels)
    define = partial(define_part, part)
    return Piece("\n".join(text), define, needs=tuple(needs), own=kernels, optimize=optimize), part


def _lines(step: Any, fills: Sequence[Any]) -> Iterator[str]:
    for buffer, dtype, combiner, size in fills:
        yield f"fill {buffer}: {dtype} of {size} for {combiner}"
    yield step.head() if isinstance(step, Nested) else step.text()


def _step_of(word: str) -> int:
    """The number of the step that a word of the plan belongs to, as those of its regions; -1 if to none."""
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
