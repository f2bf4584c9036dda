"""Define the loop IR: a kernel is a loop nest over scalar expressions.

    kernel k(b0: f64 in, b1: f64 out; c0: f64) cost 26 for i0 in s0 {
      v0 = load b0[i0] : f64
      v1 = mul(v0, c0) : f64
      v2 = exp(v1) : f64
      store b1[i0] = v2
    }

Instructions are in static single assignment (SSA) form. Addresses and indices are polynomials over loop variables,
sizes (`s0`), integers of the graph (`k0`) and loaded integers (`v3`). `c0` are floating-point constants passed at run
time. A `guard` block computes a value only if all ranges hold. `reduce` combines a value over the loops in `over`. A
kernel's text is its identity: the machine code depends on nothing that the text does not show. It therefore ends its
first line with the optimizations that the code is emitted `without`, if `settings.disable` names any of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from tracegrad.codegen.loopir.polynomial import ONE, Poly
from tracegrad.errors import VerifyError
from tracegrad.optimizations import CHANGES_KERNELS
from tracegrad.settings import left_out
from tracegrad.utils.lazy_dataclass import record

GuardRange = tuple[Poly, Poly, Poly, Poly]  # low, value, high, step
_NAMES = re.compile(r"([bskci](?=\d)(?<!\w.)\d+)\b")  # whole words; the lookbehind is last, because it is slowest


class Operand(NamedTuple):
    """A scalar: a named value, or (with an empty `name`) the immediate spelled `value`, so that 0.0 and -0.0 differ."""

    name: str
    dtype: str
    value: str = ""

    def __str__(self) -> str:
        return self.name or self.value


def immediate(value: Any, dtype: str) -> str:
    """The spelling of `value` as an immediate of `dtype`."""
    return repr(float(value)) if dtype[0] == "f" else repr(bool(value)) if dtype == "bool" else repr(int(value))


class Substitution:
    """Replaces scalars, symbols of polynomials, buffers, and the loops of reductions in statements.

    A statement that does not change is returned as it is. The result of a statement keeps its name, unless `results`
    renames it. Statements read the tables themselves, because a plan substitutes in many statements.

    >>> v, c = Operand("v0", "f64"), Operand("c0", "f64")
    >>> x = Compute(Operand("v1", "f64"), "add", (v, c))
    >>> Substitution({"c0": Operand("", "f64", "2.0")}).statement(x).lines()
    ['v1 = add(v0, 2.0) : f64']
    >>> Substitution(symbols={"i0": Poly.symbol("i1") + 1}).statement(Load(v, "b0", Poly.symbol("i0"))).lines()
    ['v0 = load b0[1 + i1] : f64']
    """

    def __init__(
        self,
        values: Mapping[str, Operand] | None = None,
        symbols: Mapping[str, Poly] | None = None,
        buffers: Mapping[str, str] | None = None,
        results: Mapping[str, Operand] | None = None,
    ):
        self.values = {} if values is None else values
        self.symbols = {} if symbols is None else symbols
        self.buffers = {} if buffers is None else buffers
        self.results = {} if results is None else results

    def statement(self, x: Statement) -> Statement:
        return x.map_operands(self)

    def body(self, body: Sequence[Statement]) -> list[Statement]:
        return [x.map_operands(self) for x in body]

    def operand(self, x: Operand) -> Operand:
        return self.values.get(x.name, x)

    def poly(self, p: Poly) -> Poly:
        return p.substitute(self.symbols) if self.symbols else p

    def over(self, loops: tuple[str, ...]) -> tuple[str, ...]:
        """The loops of a reduction."""
        return loops


class Renaming(Substitution):
    """Renames buffers, sizes and `constants`; the new names must be distinct."""

    def __init__(self, names: Mapping[str, str], constants: Iterable[Operand]):
        values = {x.name: Operand(names[x.name], x.dtype, x.value) for x in constants if x.name in names}
        super().__init__(values, buffers=names)
        self._polys: dict[Poly, Poly] = {}

    def poly(self, p: Poly) -> Poly:
        result = self._polys.get(p)
        if result is None:
            result = self._polys[p] = p.renamed(self.buffers)
        return result


class ValueRenaming(Substitution):
    """Gives values other names, also where they are defined."""

    def __init__(self, values: Mapping[str, Operand], symbols: Mapping[str, Poly] | None = None):
        symbols = {**(symbols or {}), **{name: Poly.symbol(x.name) for name, x in values.items()}}
        super().__init__(values, symbols, results=values)


@record(frozen=True, slots=True)
class Compute:
    """`out = op(args)`; `op` is a scalar function of `tracegrad.codegen.loopir.scalar_templates`.

    A product that is `rounded` is not fused with a sum (`tracegrad.codegen.kernels.fma`).
    """

    out: Operand
    op: str
    args: tuple[Operand, ...]
    rounded: bool = False

    def map_operands(self, to: Substitution) -> Compute:
        out, args, values = to.results.get(self.out.name, self.out), self.args, to.values
        for x in args:
            if x.name in values:
                args = tuple([values.get(y.name, y) for y in args])
                break
        return self if out is self.out and args is self.args else Compute(out, self.op, args, self.rounded)

    def lines(self) -> list[str]:
        op = f"rounded {self.op}" if self.rounded else self.op
        return [f"{self.out.name} = {op}({', '.join([x.name or x.value for x in self.args])}) : {self.out.dtype}"]


@record(frozen=True, slots=True)
class Load:
    """`out = buffer[address]`."""

    out: Operand
    buffer: str
    address: Poly

    def map_operands(self, to: Substitution) -> Load:
        out, address = to.results.get(self.out.name, self.out), to.poly(self.address)
        buffer = to.buffers.get(self.buffer, self.buffer)
        if out is self.out and buffer is self.buffer and address is self.address:
            return self
        return Load(out, buffer, address)

    def lines(self) -> list[str]:
        return [f"{self.out.name} = load {self.buffer}[{self.address}] : {self.out.dtype}"]


@record(frozen=True, slots=True)
class Index:
    """`out` is an integer polynomial as a scalar."""

    out: Operand
    value: Poly

    def map_operands(self, to: Substitution) -> Index:
        out, value = to.results.get(self.out.name, self.out), to.poly(self.value)
        return self if out is self.out and value is self.value else Index(out, value)

    def lines(self) -> list[str]:
        return [f"{self.out} = index {self.value} : {self.out.dtype}"]


@record(frozen=True, slots=True)
class BoundsCheck:
    """`out` is `value` wrapped into [0, size), as NumPy wraps an index; the kernel fails if it is out of range."""

    out: Operand
    value: Operand
    size: Poly

    def map_operands(self, to: Substitution) -> BoundsCheck:
        return BoundsCheck(to.results.get(self.out.name, self.out), to.operand(self.value), to.poly(self.size))

    def lines(self) -> list[str]:
        return [f"{self.out} = check {self.value} in {self.size} : i64"]


@record(frozen=True, slots=True)
class GuardBlock:
    """`out` is `result`, computed by `body`, where low <= value < high (and step divides value - low), else `fill`."""

    out: Operand
    ranges: tuple[GuardRange, ...]
    body: list[Statement]
    result: Operand
    fill: Operand

    def map_operands(self, to: Substitution) -> GuardBlock:
        ranges = tuple([(to.poly(lo), to.poly(v), to.poly(hi), to.poly(st)) for lo, v, hi, st in self.ranges])
        out, body = to.results.get(self.out.name, self.out), to.body(self.body)
        return GuardBlock(out, ranges, body, to.operand(self.result), to.operand(self.fill))

    def lines(self) -> list[str]:
        tests = ", ".join(f"{lo} <= {v} < {hi}" + (f" step {st}" if st != 1 else "") for lo, v, hi, st in self.ranges)
        head = f"{self.out} = guard {tests} else {self.fill} : {self.out.dtype} {{"
        return [head, *_indented(self.body), f"  yield {self.result}", "}"]


@record(frozen=True, slots=True)
class Store:
    """`buffer[address] = value`."""

    buffer: str
    address: Poly
    value: Operand

    def map_operands(self, to: Substitution) -> Store:
        value = to.values.get(self.value.name, self.value)
        return Store(to.buffers.get(self.buffer, self.buffer), to.poly(self.address), value)

    def lines(self) -> list[str]:
        return [f"store {self.buffer}[{self.address}] = {self.value}"]


@record(frozen=True, slots=True)
class Reduce:
    """`buffer[address]`, an element of `size`, combines `value` over the loops `over`.

    A scatter first stores `size` zeros; `size` is 0 if it accumulates into existing values. The index of the first
    extremum is an iteration of the innermost loop; the first nan precedes all extrema (see `fused_arg_reduction.py`).
    """

    buffer: str
    address: Poly
    combiner: str
    value: Operand
    over: tuple[str, ...]
    size: Poly

    def map_operands(self, to: Substitution) -> Reduce:
        buffer, address = to.buffers.get(self.buffer, self.buffer), to.poly(self.address)
        value = to.values.get(self.value.name, self.value)
        return Reduce(buffer, address, self.combiner, value, to.over(self.over), to.poly(self.size))

    @property
    def scatters(self) -> bool:
        """Whether the addresses depend on loaded values."""
        return self.combiner in SCATTERS

    def lines(self) -> list[str]:
        target = f"{self.buffer}[{self.address}] of {self.size}"
        return [f"reduce {self.combiner} {target} by {self.value} over {', '.join(self.over)}"]


Definition = Compute | Load | Index | BoundsCheck | GuardBlock  # statements that define a value
Statement = Definition | Store | Reduce
_CHUNKED_EXTENT = Poly.symbol("rows")
SCATTERS = {"scatter": "add", "scatter_max": "maximum"}  # combiners of scatters, and their operations
ANY = ("logical_or", "add", "maximum", "any")  # combiners of booleans whose result is true if one of them is
ALL = ("logical_and", "mul", "minimum", "all")  # combiners of booleans whose result is true if all are
STOPS = {"any": "logical_or", "all": "logical_and"}  # combiners with an early exit
FIRST = {"first_maximum": "maximum", "first_minimum": "minimum"}  # combiners that return an index, with their extremum
ACCESSES = (Load, Store, Reduce)  # statements that access memory
_OF_VALUES = (Store, BoundsCheck, Reduce)  # statements with one operand, `value`


class KernelLoop(NamedTuple):
    var: str
    extent: Poly


def _disabled() -> frozenset[str]:
    return left_out() & CHANGES_KERNELS


@record(slots=True)
class Kernel:
    """A loop nest, outermost loop first; all statements are in the innermost loop."""

    buffers: dict[str, tuple[str, str]] = field(default_factory=dict)  # name -> (dtype, "in" | "out")
    loops: list[KernelLoop] = field(default_factory=list)
    body: list[Statement] = field(default_factory=list)
    cost: int = 0
    chunked: int = 0  # the depth of the chunked loop
    disabled: frozenset[str] = field(default_factory=_disabled)  # the optimizations that its code is emitted without

    @property
    def across_chunks(self) -> str:
        """The variable of the chunked loop; empty in a kernel without loops."""
        return self.loops[self.chunked].var if self.loops else ""

    @property
    def iterations(self) -> Poly:
        """The number of iterations of the innermost body."""
        return math.prod([loop.extent for loop in self.loops], start=ONE)

    def text(self, name: str = "k") -> str:
        return self._text(name, self.loops)

    def _text(self, name: str, loops: list[KernelLoop]) -> str:
        args = ", ".join([f"{b}: {dtype} {use}" for b, (dtype, use) in self.buffers.items()])
        constants = ", ".join([f"{c}: {dtype}" for c, dtype in self.constants().items()])
        args += f"; {constants}" if constants else ""
        head = "".join([f" for {var} in {extent}" for var, extent in loops])
        head += f" chunked {loops[self.chunked].var}" if self.chunked else ""
        head += f" without {', '.join(sorted(self.disabled))}" if self.disabled else ""
        return "\n".join([f"kernel {name}({args}) cost {self.cost}{head} {{", *_indented(self.body), "}"])

    def renamed(self, names: Mapping[str, str]) -> Kernel:
        """A copy with renamed buffers, sizes and constants; the new names must be distinct."""
        to = Renaming(names, operands(self.body))
        buffers = {names.get(name, name): use for name, use in self.buffers.items()}
        loops = [KernelLoop(var, to.poly(extent)) for var, extent in self.loops]
        return Kernel(buffers, loops, to.body(self.body), self.cost, self.chunked, self.disabled)

    def symbols(self) -> set[str]:
        """Sizes and integers the kernel needs."""
        results: set[str] = set()
        for loop in self.loops:
            results |= loop.extent.symbols
        for p in polynomials(self.body):
            results |= p.symbols
        return {s for s in results if s[0] in "sk"}

    def constants(self) -> dict[str, str]:
        """Constants the kernel needs, with their dtypes."""
        return {name: dtype for name, dtype, _ in operands(self.body) if name and name[0] == "c"}

    def signature(self) -> tuple[str, list[str]]:
        """The text with names numbered by first use and the chunked extent left open, and the original names in order.

        Kernels with one signature are one function; the names say which arguments each of them passes.
        """
        loops = list(self.loops)
        if loops and loops[self.chunked].extent != 0:
            loops[self.chunked] = KernelLoop(loops[self.chunked].var, _CHUNKED_EXTENT)
        tokens = _NAMES.split(self._text("k", loops))
        variables = {var for var, _ in loops}
        used = [name for name in dict.fromkeys(tokens[1::2]) if name[0] != "i" or name in variables]  # i64 is a dtype
        order = {name: f"{name[0]}{k}" for k, name in enumerate(used)}
        tokens[1::2] = [order.get(name, name) for name in tokens[1::2]]
        return "".join(tokens), [name for name in used if name[0] != "i"]


def _indented(body: list[Statement]) -> list[str]:
    """The text lines of all instructions of a body, indented."""
    return [f"  {line}" for x in body for line in x.lines()]


def flattened(body: list[Statement]) -> list[Statement]:
    """All instructions, including the bodies of guards."""
    if GuardBlock not in map(type, body):
        return list(body)
    results = []
    for x in body:
        results.append(x)
        if type(x) is GuardBlock:
            results += flattened(x.body)
    return results


def accesses(body: list[Statement]) -> list[Load | Store | Reduce]:
    """All loads, stores and reductions, including accesses in the bodies of guards."""
    return [x for x in flattened(body) if isinstance(x, ACCESSES)]


def polynomials(body: list[Statement]) -> Iterator[Poly]:
    """Every polynomial in the instructions."""
    for x in body:
        match x:
            case Load() | Store():
                yield x.address
            case Reduce():
                yield x.address
                yield x.size
            case Index():
                yield x.value
            case BoundsCheck():
                yield x.size
            case GuardBlock():
                for r in x.ranges:
                    yield from r
                yield from polynomials(x.body)


def operands(body: list[Statement]) -> list[Operand]:
    """Every scalar operand in the instructions."""
    results: list[Operand] = []
    for x in body:
        if type(x) is Compute:
            results += x.args
        elif type(x) is GuardBlock:
            results += (*operands(x.body), x.result, x.fill)
        elif isinstance(x, _OF_VALUES):
            results.append(x.value)
    return results


def verify_kernel(kernel: Kernel) -> Kernel:
    """Verify `kernel` and return it; `VerifyError` names an instruction that breaks a rule.

    A value is defined once, before its uses, and not used outside of the guard that computes it. Buffers are declared,
    have the dtype of their stores, and only buffers declared "out" are stored to. A reduction is over loops.
    """
    variables = [x.var for x in kernel.loops]
    if len(set(variables)) < len(variables):
        raise VerifyError(f"loop IR: two loops have one variable: {', '.join(variables)}")
    _verify(kernel.body, kernel, {*variables, *kernel.symbols(), *kernel.constants()})
    return kernel


def _verify(body: list[Statement], kernel: Kernel, known: set[str]) -> None:
    for x in body:
        problem = _undefined(used(x), known) or _misused_buffer(x, kernel)
        if isinstance(x, GuardBlock) and not problem:
            inside = set(known)
            _verify(x.body, kernel, inside)
            problem = _undefined({x.result.name}, inside)
            if not problem and not x.result.dtype == x.fill.dtype == x.out.dtype:
                problem = "the two values of a guard differ in dtype"
        if isinstance(x, Reduce) and not set(x.over) <= {loop.var for loop in kernel.loops}:
            problem = "reduces over something that is no loop"
        if hasattr(x, "out") and x.out.name in known:
            problem = f"{x.out.name} is defined twice"
        if problem:
            raise VerifyError(f"loop IR: {problem}: {x.lines()[0]}")
        if hasattr(x, "out"):
            known.add(x.out.name)


def used(x: Statement) -> set[str]:
    """The names that `x` uses, without the instructions inside it."""
    if isinstance(x, GuardBlock):
        return {x.fill.name}.union(*(p.symbols for r in x.ranges for p in r))
    return {o.name for o in operands([x])}.union(*(p.symbols for p in polynomials([x])))


def _undefined(names: set[str], known: set[str]) -> str:
    missing = sorted(n for n in names if n and n not in known)
    return f"{', '.join(missing)} used before definition" if missing else ""


def _misused_buffer(x: Statement, kernel: Kernel) -> str:
    if not isinstance(x, Load | Store | Reduce):
        return ""
    if x.buffer not in kernel.buffers:
        return f"buffer {x.buffer} is not declared"
    dtype, use = kernel.buffers[x.buffer]
    if use != "out" and not isinstance(x, Load):
        return f"buffer {x.buffer} is declared as an input"
    stored = x.out.dtype if isinstance(x, Load) else "i64" if _stores_index(x) else x.value.dtype
    return "" if dtype == stored else f"buffer {x.buffer} is of {dtype}"


def _stores_index(x: Statement) -> bool:
    return isinstance(x, Reduce) and x.combiner in FIRST
