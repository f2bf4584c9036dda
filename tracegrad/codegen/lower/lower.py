"""Lower one step of the schedule to a kernel of the loop IR.

An element of a value at an index is an expression. `Lowering.element` emits it: views are arithmetic on the index, and
a stored value is a load. Equal elements are computed once. `loop_order.arrange` then orders and coalesces the loops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracegrad.avals import short_name
from tracegrad.codegen.kernels.fma import mark_rounded
from tracegrad.codegen.loopir.kernel import (
    BoundsCheck,
    Compute,
    GuardBlock,
    Index,
    Kernel,
    KernelLoop,
    Load,
    Operand,
    Store,
    immediate,
)
from tracegrad.codegen.loopir.polynomial import ZERO, Poly, poly
from tracegrad.codegen.lower.form_rules import HANDLERS, handler, in_range
from tracegrad.codegen.lower.materialize import Storage
from tracegrad.codegen.lower.symbolic_shapes import SMALL, Dims
from tracegrad.ir import GraphNode

if TYPE_CHECKING:
    from tracegrad.ops.core.index_maps import OperandRead


IMMEDIATE = {repr(float(v)) for v in (0, -0.0, 1, -1, 2, -2, 3, 4, 0.5, -0.5, 0.25, math.inf, -math.inf, math.nan)}


class RuntimeArguments:
    """The run-time scalars of a program: sizes `s`, integers `k` and constants `c`, numbered in order of first use."""

    def __init__(self, sizes: dict[str, int]):
        self.sizes = dict(sizes)
        self.constants: dict[str, tuple[str, Any]] = {}
        self._names: dict[Any, str] = {}
        self.requested: list[tuple[str, str, Any, Any]] = []  # requested arguments: name, "k" or "c", key, value

    def named(self, kind: str, key: tuple[GraphNode | int | str, ...], value: Any) -> str:
        """The name of a run-time argument: an integer "k" or a constant "c"."""
        name = self._names.setdefault((kind, *key), f"{kind}{len(self._names)}")
        if kind == "k":
            self.sizes[name] = value
        else:
            self.constants[name] = value
        self.requested.append((name, kind, key, value))
        return name

    def integer(self, key: tuple[GraphNode | int | str, ...], value: int) -> Poly:
        """`value` as a polynomial: a constant if small, else a run-time argument."""
        if abs(value) <= SMALL:
            return Poly.constant(value)
        return Poly.symbol(self.named("k", key, value))

    def bound_argument(self, value: int) -> Poly:
        """`value`, the start or the length of a part of a loop, as a separate run-time argument."""
        name = f"k{len(self._names)}"
        self._names["part", len(self._names)] = name
        self.sizes[name] = value
        return Poly.symbol(name)

    def scalar(self, key: tuple[GraphNode, int | str], value: Any, dtype: str) -> Operand:
        """`value` as an operand: immediate if common or small, else a run-time argument."""
        text = immediate(value, dtype)
        if dtype == "bool" or (text in IMMEDIATE if dtype[0] == "f" else abs(value) <= SMALL):
            return Operand("", dtype, text)
        return Operand(self.named("c", key, (dtype, value)), dtype)


class _SizeFactory:
    """Factory of integer expressions for a `reads` rule."""

    def __init__(self, lowering: Lowering, node: GraphNode):
        self._lowering, self._node, self._count = lowering, node, 0

    def __call__(self, value: int) -> Poly:
        self._count += 1
        return self._lowering.arguments.integer((self._node, self._count), int(value))

    @staticmethod
    def is_one(size: Poly) -> bool:
        return size == 1

    def divide(self, value: Poly, divisor: int) -> Poly:
        index = self._lowering.emit_index(value)
        quotient = self._lowering.compute("floor_divide", (index, Operand("", "i64", str(divisor))), "i64")
        return Poly.symbol(quotient.name)


class Lowering:
    """Lowering of one step to a kernel."""

    def __init__(
        self,
        storage: Storage,
        dims: Dims,
        buffers: dict[GraphNode, str],
        arguments: RuntimeArguments,
        counts: dict[GraphNode, set[Any]],
    ):
        self.storage, self.dims, self.buffers, self.arguments = storage, dims, buffers, arguments
        self.counts = counts
        self.kernel = Kernel()
        self._scopes: list[dict[Any, Operand]] = [{}]
        self._blocks: list[list[Any]] = [self.kernel.body]
        self._values = 0
        self._products: set[str] = set()
        self._shared: set[str] = set()  # values that are stored, or have several uses

    # -- the step ----------------------------------------------------------------------------------
    def lower_kernel(self, roots: list[GraphNode]) -> Kernel:
        """Lower the kernel that stores `roots`."""
        space = self._space(roots[0])
        sizes = [d for d in space if d != 1]
        self.kernel.loops = [KernelLoop(f"i{a}", d) for a, d in enumerate(sizes)]
        for root in roots:
            names = iter(self.kernel.loops)
            index = tuple(ZERO if d == 1 else Poly.symbol(next(names).var) for d in self._space(root))
            handler(root).root(self, root, index)
        self.kernel.cost += sum([type(x) in (Load, Store) for x in self.kernel.body])
        if not self._products.isdisjoint(self._shared):
            mark_rounded(self.kernel.body, self._shared)
        return self.kernel

    def _space(self, root: GraphNode) -> tuple[Poly, ...]:
        return self.dims.shape(handler(root).space(root))

    # -- elements ------------------------------------------------------------------------------------
    def element(self, node: GraphNode, index: tuple[Poly, ...]) -> Operand:
        """Emit the element of `node` at `index`."""
        key = (node, index)
        if (known := self._known(key)) is not None:
            return known
        if node not in self.buffers:
            return self.value(node, index)
        value = self.load(self.buffer(node, "in"), self.address(node, index), short_name(node.aval.dtype))
        self._scopes[-1][key] = value
        return value

    def value(self, node: GraphNode, index: tuple[Poly, ...]) -> Operand:
        """Compute the element of `node` at `index` in this kernel."""
        form = HANDLERS[type(node.form)]
        self.kernel.cost += form.cost(node)
        self.counts[node].add((id(self.kernel), index))
        value = self._scopes[-1][node, index] = form.element(self, node, index)
        if self.storage.uses[node] != 1 or node in self.buffers:
            self._shared.add(value.name)
        return value

    def operand(self, node: GraphNode, k: int, index: tuple[Poly, ...]) -> Operand:
        """The element at `index` of input `k` of `node`, or its literal."""
        x = node.inputs[k]
        if type(x) is GraphNode:
            return self.element(x, index)
        dtype = "bool" if type(x) is bool else short_name(_literal_dtype(node, k))
        return self.arguments.scalar((node, k), x, dtype)

    def sizes(self, node: GraphNode) -> _SizeFactory:
        """The factory of integer expressions for the `reads` rule of `node`."""
        return _SizeFactory(self, node)

    def shapes(self, node: GraphNode) -> tuple[tuple[tuple[Poly, ...], ...], tuple[Poly, ...]]:
        """The shapes of the operands of `node`, and its own shape."""
        return tuple([self.dims.shape(x) for x in node.operands]), self.dims.shape(node)

    def guarded(self, x: GraphNode, read: OperandRead, fill: Operand) -> Operand:
        """The element of `x` at the index of `read`, or `fill` outside its ranges."""
        if not read.ranges:
            return self.element(x, tuple(map(poly, read.indices)))
        ranges = tuple(tuple(map(poly, (r.low, r.value, r.high, r.step))) for r in read.ranges)
        with self.block() as body:
            result = self.element(x, tuple(map(poly, read.indices)))
        out = self.named(fill.dtype)
        self.emit(GuardBlock(out, ranges, body, result, fill))  # type: ignore[arg-type]
        return out

    def checked(self, indices: GraphNode, index: tuple[Poly, ...], size: Poly) -> Poly:
        """An index read from `indices`, which the kernel checks against the `size` of its axis."""
        if in_range(indices, size.evaluate(self.arguments.sizes)):
            return self.progression(indices, index)
        value = self.element(indices, index)
        key = ("check", value, size)
        if key not in self._scopes[-1]:
            out = self.named("i64")
            self.emit(BoundsCheck(out, value, size))
            self._scopes[-1][key] = out
        return Poly.symbol(self._scopes[-1][key].name)

    def progression(self, node: GraphNode, index: tuple[Poly, ...]) -> Poly:
        """The element of an arithmetic progression of integers."""
        params = dict(node.params)
        start, step = (self.arguments.integer((node, name), params[name]) for name in ("start", "step"))
        return start + step * index[0]

    # -- instructions --------------------------------------------------------------------------------
    def address(self, node: GraphNode, index: tuple[Poly, ...]) -> Poly:
        """The row-major offset of `index` in the memory of `node`."""
        if not index:
            return ZERO
        total, *rest = index
        for i, d in zip(rest, self.dims.shape(node)[1:]):
            total = total * d + i
        return total

    def compute(self, op: str, args: tuple[Operand, ...], dtype: str) -> Operand:
        """Emit `op(*args)`, a scalar function, once (common subexpression elimination)."""
        key = ("compute", op, args, dtype)
        if (known := self._known(key)) is not None:
            return known
        out = self.named(dtype)
        self.emit(Compute(out, op, args))
        if op == "mul":
            self._products.add(out.name)
        self._scopes[-1][key] = out
        return out

    def emit_index(self, value: Poly) -> Operand:
        """The polynomial `value` as an operand."""
        key = ("index", value)
        if (known := self._known(key)) is not None:
            return known
        out = self.named("i64")
        self.emit(Index(out, value))
        self._scopes[-1][key] = out
        return out

    def _known(self, key: object) -> Operand | None:
        """The value computed for `key` in this or an enclosing block, or None."""
        for scope in self._scopes:
            result = scope.get(key)
            if result is not None:
                return result
        return None

    @contextmanager
    def block(self) -> Iterator[list[Any]]:
        """Emit instructions into the body of a guard inside this context; its values are visible only there."""
        body: list[Any] = []
        self._blocks.append(body)
        self._scopes.append({})
        yield body
        self._scopes.pop()
        self._blocks.pop()

    def load(self, buffer: str, address: Poly, dtype: str) -> Operand:
        """Load `buffer[address]`."""
        out = self.named(dtype)
        self.emit(Load(out, buffer, address))
        return out

    def buffer(self, node: GraphNode, use: str) -> str:
        """The name of the buffer of `node`, declared for this `use`: "in" or "out"."""
        name = self.buffers[node]
        before = self.kernel.buffers.get(name)
        if before is None or use == "out":
            self.kernel.buffers[name] = (short_name(node.aval.dtype), use)
        return name

    def named(self, dtype: str) -> Operand:
        """A new value name."""
        number = self._values
        self._values = number + 1
        return Operand(f"v{number}", dtype)

    def emit(self, instruction: object) -> None:
        """Append an instruction to the block under construction."""
        self._blocks[-1].append(instruction)


def _literal_dtype(node: GraphNode, k: int) -> Any:
    """The dtype of literal operand number `k` of `node`."""
    assert node.op is not None
    dtypes = [x.aval.dtype if isinstance(x, GraphNode) else type(x) for x in node.inputs]
    return node.op.loop_dtypes(*dtypes)[k]  # type: ignore[attr-defined]
