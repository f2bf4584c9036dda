"""From a step of the schedule to a kernel of the loop IR.

The element of a value at an index is an expression; `Lowering.element` writes it down, following views by arithmetic on
the index until it reaches something stored, which it loads. Equal elements are computed once. The kernel then gets its
loop order (the innermost loop runs along memory) and adjacent loops that every access runs through as one are merged.
"""

from __future__ import annotations

import math
from typing import Any

from tracegrad.avals import is_literal, short_name
from tracegrad.codegen.dims import SMALL, Dims
from tracegrad.codegen.loops import (
    Check,
    Compute,
    Guard,
    Index,
    Kernel,
    Load,
    Loop,
    Operand,
    Reduce,
    Store,
    immediate,
)
from tracegrad.codegen.materialize import Storage, in_range, is_trivial_reshape, own_cost
from tracegrad.codegen.poly import ONE, ZERO, Poly, poly
from tracegrad.codegen.scalar import evaluate
from tracegrad.ir import Node
from tracegrad.ops.declare import Elementwise

__all__ = ["COMBINERS", "Arguments", "Lowering"]

COMBINERS = {"reduce_sum": "add", "reduce_prod": "mul", "reduce_max": "maximum", "reduce_min": "minimum",
             "reduce_any": "logical_or", "reduce_all": "logical_and",
             "scatter_add": "scatter"}  # fmt: skip

IMMEDIATE = {repr(float(v)) for v in (0, -0.0, 1, -1, 2, -2, 3, 4, 0.5, -0.5, 0.25, math.inf, -math.inf, math.nan)}


class Arguments:
    """The run-time scalars of a program: sizes `s`, integers `k` and constants `c`, numbered in order of first use."""

    def __init__(self, sizes: dict[str, int]):
        self.sizes = dict(sizes)
        self.constants: dict[str, tuple[str, Any]] = {}
        self._names: dict[Any, str] = {}

    def integer(self, key: Any, value: int) -> Poly:
        """`value` as a polynomial: a constant if small, else a run-time argument."""
        if abs(value) <= SMALL:
            return Poly.constant(value)
        name = self._names.setdefault(("k", *key), f"k{len(self._names)}")
        self.sizes[name] = value
        return Poly.symbol(name)

    def scalar(self, key: Any, value: Any, dtype: str) -> Operand:
        """`value` as an operand: immediate if common or small, else a run-time argument."""
        text = immediate(value, dtype)
        if dtype == "bool" or (text in IMMEDIATE if dtype[0] == "f" else abs(value) <= SMALL):
            return Operand("", dtype, text)
        name = self._names.setdefault(("c", *key), f"c{len(self._names)}")
        self.constants[name] = (dtype, value)
        return Operand(name, dtype)


class _Size:
    """What a `reads` rule is given to make expressions of integers."""

    def __init__(self, lowering: Lowering, node: Node):
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
    """Builds the kernel of one step."""

    def __init__(
        self,
        storage: Storage,
        dims: Dims,
        buffers: dict[Node, str],
        arguments: Arguments,
        counts: dict[Node, set[Any]],
    ):
        self.storage, self.dims, self.buffers, self.arguments = storage, dims, buffers, arguments
        self.counts = counts
        self.kernel = Kernel()
        self._scopes: list[dict[Any, Operand]] = [{}]
        self._blocks: list[list[Any]] = [self.kernel.body]
        self._values = 0

    # -- the step ----------------------------------------------------------------------------------
    def step(self, roots: list[Node]) -> Kernel:
        """The kernel that stores `roots`."""
        space = self._space(roots[0])
        sizes = [d for d in space if d != 1]
        self.kernel.loops = [Loop(f"i{a}", d) for a, d in enumerate(sizes)]
        for root in roots:
            names = iter(self.kernel.loops)
            index = tuple(ZERO if d == 1 else Poly.symbol(next(names).var) for d in self._space(root))
            self._root(root, index)
        self.kernel.cost += sum(isinstance(x, Load | Store) for x in self.kernel.body)
        return self.kernel

    def _space(self, root: Node) -> tuple[Poly, ...]:
        assert root.op is not None
        source = root.inputs[0] if root.op.kind in ("reduction", "scatter") else root
        return self.dims.shape(source)

    def _root(self, root: Node, index: tuple[Poly, ...]) -> None:
        assert root.op is not None
        kind, params = root.op.kind, dict(root.params)
        if kind == "reduction":
            axes = params["axes"]
            over = tuple(next(iter(index[a].symbols)) for a in axes if index[a].symbols)
            kept = tuple(i for a, i in enumerate(index) if a not in axes)
            value = self.element(root.inputs[0], index)
            self._reduce(root, kept, value, over)
        elif kind == "scatter":
            self._scatter(root, index, params)
        elif kind == "cumsum":
            self._cumsum(root, index, params["axis"])
        else:
            value = self._compute(root, index)
            self._scopes[-1][root, index] = value
            self._emit(Store(self._buffer(root, "out"), self.address(root, index), value))

    def _reduce(self, root: Node, kept: tuple[Poly, ...], value: Operand, over: tuple[str, ...]) -> None:
        name = self._buffer(root, "out")
        size = ONE
        for d in self.dims.shape(root):
            size = size * d
        self._emit(Reduce(name, self.address(root, kept), COMBINERS[root.name], value, over, size))
        self.kernel.cost += 1

    def _scatter(self, root: Node, index: tuple[Poly, ...], params: dict[str, Any]) -> None:
        updates, *indices = root.inputs
        depth = indices[0].aval.ndim
        shape = self.dims.shape(root)
        place = dict(
            zip(
                params["axes"],
                (self._checked(i, index[:depth], shape[a]) for i, a in zip(indices, params["axes"])),
            )
        )
        rest = iter(index[depth:])
        where = tuple(place[a] if a in place else next(rest) for a in range(len(shape)))
        self._reduce(root, where, self.element(updates, index), tuple(x.var for x in self.kernel.loops))

    def _cumsum(self, root: Node, index: tuple[Poly, ...], axis: int) -> None:
        name, dtype, here = self._buffer(root, "out"), short_name(root.aval.dtype), self.address(root, index)
        previous = tuple(i - 1 if a == axis else i for a, i in enumerate(index))
        value = self.element(root.inputs[0], index)
        zero = Operand("", dtype, "-0.0" if dtype[0] == "f" else "0")
        ranges = ((ONE, index[axis], self.dims.shape(root)[axis], ONE),)
        body: list[Any] = []
        self._blocks.append(body)
        before = self._load(name, self.address(root, previous), dtype)
        self._blocks.pop()
        guarded = self._named(dtype)
        self._emit(Guard(guarded, ranges, body, before, zero))
        self._emit(Store(name, here, self.compute("add", (guarded, value), dtype)))

    # -- elements ------------------------------------------------------------------------------------
    def element(self, node: Node, index: tuple[Poly, ...]) -> Operand:
        """The element of `node` at `index`."""
        if (known := self._known((node, index))) is not None:
            return known
        if node in self.buffers:
            value = self._load(self._buffer(node, "in"), self.address(node, index), short_name(node.aval.dtype))
        else:
            value = self._compute(node, index)
        self._scopes[-1][node, index] = value
        return value

    def _compute(self, node: Node, index: tuple[Poly, ...]) -> Operand:
        assert node.op is not None
        kind = node.op.kind
        self.kernel.cost += own_cost(node)
        self.counts.setdefault(node, set()).add((id(self.kernel), index))
        if kind == "elementwise":
            return self._elementwise(node, index)
        if kind == "cast":
            return self.compute("cast", (self._operand(node, 0, index),), short_name(node.aval.dtype))
        if kind == "view":
            return self._view(node, index)
        if kind == "reshape":
            return self._reshaped(node, index)
        if kind == "gather":
            return self._gather(node, index)
        if kind == "full":
            params = dict(node.params)
            return self.arguments.scalar((node, "value"), params["value"], short_name(node.aval.dtype))
        assert kind == "arange", kind
        return self._arange(node, index)

    def _elementwise(self, node: Node, index: tuple[Poly, ...]) -> Operand:
        assert node.op is not None
        operands = {name: self._operand(node, k, index) for k, name in enumerate(node.op.operands)}
        assert isinstance(node.op, Elementwise)
        assert node.op.scalar is not None
        return evaluate(node.op.scalar, operands, self.compute)

    def _operand(self, node: Node, k: int, index: tuple[Poly, ...]) -> Operand:
        x = node.inputs[k]
        if not is_literal(x):
            return self.element(x, index)
        dtype = "bool" if type(x) is bool else short_name(_literal_dtype(node, k))
        return self.arguments.scalar((node, k), x, dtype)

    def _view(self, node: Node, index: tuple[Poly, ...]) -> Operand:
        assert node.op is not None
        assert node.op.reads is not None
        shapes = tuple(self.dims.shape(x) for x in node.operands)
        params = dict(node.params)
        reads = node.op.reads(index, _Size(self, node), shapes, self.dims.shape(node), **params)
        dtype = short_name(node.aval.dtype)
        value = self.arguments.scalar((node, "fill"), params.get("value", 0), dtype)
        for read in reversed(reads):
            value = self._guarded(node.inputs[read.operand], read, value)
        return value

    def _guarded(self, x: Node, read: Any, fill: Operand) -> Operand:
        if not read.ranges:
            return self.element(x, tuple(map(poly, read.place)))
        ranges = tuple(tuple(map(poly, (r.low, r.value, r.high, r.step))) for r in read.ranges)
        body: list[Any] = []
        self._blocks.append(body)
        self._scopes.append({})
        result = self.element(x, tuple(map(poly, read.place)))
        self._scopes.pop()
        self._blocks.pop()
        out = self._named(fill.dtype)
        self._emit(Guard(out, ranges, body, result, fill))  # type: ignore[arg-type]
        return out

    def _reshaped(self, node: Node, index: tuple[Poly, ...]) -> Operand:
        x = node.inputs[0]
        if is_trivial_reshape(node):
            kept = iter([i for i, n in zip(index, node.aval.shape) if n != 1])
            return self.element(x, tuple(ZERO if n == 1 else next(kept) for n in x.aval.shape))
        while x not in self.buffers:
            assert x.name == "reshape"
            x = x.inputs[0]
        return self._load(self._buffer(x, "in"), self.address(node, index), short_name(node.aval.dtype))

    def _gather(self, node: Node, index: tuple[Poly, ...]) -> Operand:
        x, *indices = node.inputs
        axes = dict(node.params)["axes"]
        depth = indices[0].aval.ndim
        shape = self.dims.shape(x)
        place = dict(zip(axes, (self._checked(i, index[:depth], shape[a]) for i, a in zip(indices, axes))))
        rest = iter(index[depth:])
        return self.element(x, tuple(place[a] if a in place else next(rest) for a in range(x.aval.ndim)))

    def _checked(self, indices: Node, index: tuple[Poly, ...], size: Poly) -> Poly:
        if in_range(indices, size.evaluate(self.arguments.sizes)):
            return self._progression(indices, index)
        value = self.element(indices, index)
        key = ("check", value, size)
        if key not in self._scopes[-1]:
            out = self._named("i64")
            self._emit(Check(out, value, size))
            self._scopes[-1][key] = out
        return Poly.symbol(self._scopes[-1][key].name)

    def _arange(self, node: Node, index: tuple[Poly, ...]) -> Operand:
        params, dtype = dict(node.params), short_name(node.aval.dtype)
        if isinstance(params["start"], int) and isinstance(params["step"], int):
            total = self.emit_index(self._progression(node, index))
        else:
            step, start = (self.arguments.scalar((node, name), params[name], "f64") for name in ("step", "start"))
            place = self.compute("cast", (self.emit_index(index[0]),), "f64")
            total = self.compute("add", (start, self.compute("mul", (step, place), "f64")), "f64")
        return total if dtype == total.dtype else self.compute("cast", (total,), dtype)

    def _progression(self, node: Node, index: tuple[Poly, ...]) -> Poly:
        """The element of an `arange` of integers."""
        params = dict(node.params)
        start, step = (self.arguments.integer((node, name), params[name]) for name in ("start", "step"))
        return start + step * index[0]

    # -- instructions --------------------------------------------------------------------------------
    def address(self, node: Node, index: tuple[Poly, ...]) -> Poly:
        """The row-major position of `index` in the memory of `node`."""
        total = ZERO
        for i, d in zip(index, self.dims.shape(node)):
            total = total * d + i
        return total

    def compute(self, op: str, args: tuple[Operand, ...], dtype: str) -> Operand:
        key = ("compute", op, args, dtype)
        if (known := self._known(key)) is not None:
            return known
        out = self._named(dtype)
        self._emit(Compute(out, op, args))
        self._scopes[-1][key] = out
        return out

    def emit_index(self, value: Poly) -> Operand:
        key = ("index", value)
        if (known := self._known(key)) is not None:
            return known
        out = self._named("i64")
        self._emit(Index(out, value))
        self._scopes[-1][key] = out
        return out

    def _known(self, key: Any) -> Operand | None:
        """What was computed for `key` here or in an enclosing block."""
        for scope in reversed(self._scopes):
            if key in scope:
                found: Operand = scope[key]
                return found
        return None

    def _load(self, buffer: str, address: Poly, dtype: str) -> Operand:
        out = self._named(dtype)
        self._emit(Load(out, buffer, address))
        return out

    def _buffer(self, node: Node, use: str) -> str:
        name = self.buffers[node]
        before = self.kernel.buffers.get(name)
        if before is None or use == "out":
            self.kernel.buffers[name] = (short_name(node.aval.dtype), use)
        return name

    def _named(self, dtype: str) -> Operand:
        self._values += 1
        return Operand(f"v{self._values - 1}", dtype)

    def _emit(self, instruction: Any) -> None:
        self._blocks[-1].append(instruction)


def _literal_dtype(node: Node, k: int) -> Any:
    """The dtype in which op `node` takes its literal operand number `k`."""
    assert node.op is not None
    dtypes = [x.aval.dtype if isinstance(x, Node) else type(x) for x in node.inputs]
    return node.op.loop_dtypes(*dtypes)[k]  # type: ignore[attr-defined]
