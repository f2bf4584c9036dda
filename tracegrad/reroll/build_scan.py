"""Build a `scan` from the iterations of a loop: its carries, scanned arrays, constants, and body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.avals import Aval, is_literal
from tracegrad.control.hoist_invariant_reads import run_loop
from tracegrad.control.scan_op import scan
from tracegrad.ir import GraphNode, build, recorder
from tracegrad.ir.builder import node_of
from tracegrad.ir.interpreter import applied
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, fresh, full, reshape, slice, zeros_like
from tracegrad.reroll.iterations import (
    CarriedOperand,
    InvariantOperand,
    LocalOperand,
    Origin,
    RecordedIterations,
    VaryingOperand,
)
from tracegrad.reroll.offset_slices import SliceWindow, apply_window, window_of
from tracegrad.reroll.stack_values import join_slices, stack_rows
from tracegrad.trace.builder.builder import TraceBuilder

if TYPE_CHECKING:
    from tracegrad.typing import DType


# Positions in an iteration whose values are used after the loop, with the iterations that they come from.
Uses = dict[int, set[int]]


def scanned(builder: TraceBuilder, iterations: RecordedIterations, used: Uses) -> dict[GraphNode, GraphNode] | str:
    """Replace iterations by a scan. Returns the replacements of the nodes that are `used` later, by position and
    iteration; or the reason why there is no scan."""
    if any(iterations.nodes[position].is_multi_result for position in used):
        return "several results of one node are used together"
    result = _ScanBuilder(builder, iterations)
    return result.why or result.run(used)


_NUMBER = Aval((), np.dtype(np.int64))


class _CarrySource(NamedTuple):
    """Origin of an operand: the value of a chain of carries, `distance` iterations ago."""

    chain: int
    distance: int


class _RowSource(NamedTuple):
    """Origin of an operand: the row of a scanned array, in this shape."""

    number: int
    shape: tuple[int, ...]


class _ConstSource(NamedTuple):
    number: int


# Origin of an operand in the body: `LocalOperand` is a node of the same iteration, and `InvariantOperand` is a literal.
_Source = _CarrySource | _RowSource | _ConstSource | LocalOperand | InvariantOperand


class _ScanBuilder:
    def __init__(self, builder: TraceBuilder, iterations: RecordedIterations):
        self.builder, self.iterations = builder, iterations
        self.carries: list[_CarrySource] = []
        self.chains: list[tuple[int, dict[int, Any]]] = []  # position, and initial values by distance
        self.rows: list[Any] = []
        self.consts: list[GraphNode] = []
        self.row_numbers: dict[Any, int] = {}
        self.const_at: dict[GraphNode, int] = {}
        self.scanned_rows: dict[int, int] = {}  # positions whose values are rows, with the row numbers
        self.operands: dict[int, list[_Source]] = {}
        self.starts: dict[int, list[_Source]] = {}  # start indices of moving windows, by position
        self.why = next((why for k in range(iterations.period) if (why := self._analyze(k))), "")

    # -- what the scan gets ------------------------------------------------------------------------
    def _analyze(self, position: int) -> str:
        """Find the origins of the operands of the node at this position. Returns the reason if a scan body cannot read
        one."""
        nodes, origins = self.iterations.of(position), self.iterations.origins[position]
        window = window_of(nodes[-1])
        if window is None:
            first = nodes[0].params
            if nodes[0].op is not fresh and any([x.params != first for x in nodes]):  # noqa: C419
                return f"{nodes[0].name} has other parameters in each iteration"
        else:
            count = len(origins) - len(window.starts)
            origins, starts = origins[:count], origins[count:]
            moves = any(isinstance(x, VaryingOperand) for x in starts)
            source = origins[0].value if moves and count == 1 and isinstance(origins[0], InvariantOperand) else None
            rows = None if source is None else join_slices(self.builder, nodes, array=source)
            if rows is not None:
                self.scanned_rows[position] = self._scanned_row(nodes, rows, ()).number
                return ""
            if moves or (window.mask is not None and window.is_small):
                whole = [window.is_whole(axis) for axis in range(len(starts))]
                self.starts[position] = [InvariantOperand(0) if w else self._number(x) for w, x in zip(whole, starts)]
        self.operands[position] = [self._source(x, _partner(nodes[-1], window)) for x in origins]
        return ""

    def _source(self, origin: Origin, kind: Aval) -> _Source:
        """The origin in the body of this operand. A literal would have this shape and dtype."""
        if isinstance(origin, CarriedOperand):
            return _CarrySource(self._chain(origin.position, _by_distance(origin)), origin.distance)
        if isinstance(origin, VaryingOperand):
            kind = kind if is_literal(origin.values[0]) else origin.values[0].aval
            numbers = [_literal(x) for x in origin.values]
            if None in numbers:
                return self._scanned_row(origin.values, stack_rows(self.builder, origin.values), kind.shape)
            key = (kind.dtype, tuple(map(repr, numbers)))
            return self._scanned_row(key, _numbers(self.builder, numbers, kind.dtype), kind.shape)
        if isinstance(origin, InvariantOperand) and not is_literal(origin.value):
            return self._const(origin.value)
        return origin

    def _number(self, origin: Origin) -> _Source:
        """The origin in the body of a start index. A common one of all iterations is an operand too, because an outer
        loop may vary it."""
        if isinstance(origin, InvariantOperand):
            origin = InvariantOperand(self.builder.lift(np.int64(origin.value)).node)
        return self._source(origin, _NUMBER)

    def _chain(self, position: int, values: dict[int, Any]) -> int:
        """The carries of the value at this position, with these initial values."""
        alike = [
            number
            for number, (at, known) in enumerate(self.chains)
            if at == position and all(known.get(m, x) is x for m, x in values.items())
        ]
        if not alike:
            alike = [len(self.chains)]
            self.chains.append((position, {}))
        known = self.chains[alike[0]][1]
        self.carries += [_CarrySource(alike[0], m) for m in sorted(values) if m not in known]
        known.update(values)
        return alike[0]

    def _scanned_row(self, key: Any, array: Any, shape: tuple[int, ...]) -> _RowSource:
        if key not in self.row_numbers:
            self.row_numbers[key] = len(self.rows)
            self.rows.append(array)
        return _RowSource(self.row_numbers[key], shape)

    def _const(self, node: GraphNode) -> _ConstSource:
        if node not in self.const_at:
            self.const_at[node] = len(self.consts)
            self.consts.append(node)
        return _ConstSource(self.const_at[node])

    # -- the scan ----------------------------------------------------------------------------------
    def run(self, used: Uses) -> dict[GraphNode, GraphNode]:
        count = self.iterations.count
        stacked, last = [], {}
        for position, numbers in used.items():
            if position in self.scanned_rows:
                continue
            reach = {m: n for n, (at, known) in enumerate(self.chains) if at == position for m in known}
            if numbers == {count - 1} and not reach:
                reach = {1: self._chain(position, {1: None})}
            last[position] = reach
            if any(count - k not in reach for k in numbers):
                stacked.append(position)
        value = self.builder.value
        inits = [self._initial(*carry) for carry in self.carries]
        operands = [*inits, *self.rows, *map(value, self.consts)]
        avals = [x.aval for x in inits] + [Aval(x.shape[1:], x.dtype) for x in self.rows]
        body = build(lambda *args: self._iteration(args, stacked), [*avals, *(x.aval for x in self.consts)])
        results = run_loop(operands, LoopView(scan, body, len(inits), len(self.rows), count))
        ys = dict(zip(stacked, results[len(inits) :]))
        table: dict[GraphNode, GraphNode] = {}
        for position, reach in last.items():
            nodes = self.iterations.of(position)
            for k in sorted(used[position]):
                if position not in ys:
                    new = results[self.carries.index(_CarrySource(reach[count - k], count - k))]
                else:
                    new = _row_at(ys[position], k)
                table[nodes[k]] = node_of(new)
        return table

    def _initial(self, chain: int, distance: int) -> Any:
        position, known = self.chains[chain]
        node = known[distance]
        return zeros_like(self.iterations.nodes[position]) if node is None else self.builder.value(node)

    def _iteration(self, args: Sequence[Any], stacked: Sequence[int]) -> list[Any]:
        first, second = len(self.carries), len(self.carries) + len(self.rows)
        carries, rows, consts = args[:first], args[first:second], args[second:]
        inside: Any = recorder()
        env: dict[int, Any] = {position: rows[number] for position, number in self.scanned_rows.items()}
        period = self.iterations.period
        # The last iteration becomes the body, because the first one may have computed its values differently.
        nodes = self.iterations.nodes[-period:]

        def value_of(source: _Source) -> Any:
            match source:
                case LocalOperand(place):
                    return env[place]
                case _CarrySource():
                    return carries[self.carries.index(source)]
                case _RowSource(number, shape):
                    return rows[number] if rows[number].shape == shape else broadcast_to(rows[number], shape=shape)
                case _ConstSource(number):
                    return consts[number]
            return source.value

        for position, node in enumerate(nodes):
            if position in self.scanned_rows:
                continue
            inputs = tuple(map(value_of, self.operands[position]))
            window = window_of(node)
            if window is not None:
                inside.location = node.location
                starts = self.starts.get(position)
                env[position] = apply_window(window, inputs, None if starts is None else list(map(value_of, starts)))
            elif node.result_index is not None:
                env[position] = inputs[0][node.result_index]
            else:
                env[position] = applied(node, inputs, dict(node.params), inside)
        before = dict(zip(self.carries, carries))
        new = [env[self.chains[n][0]] if m == 1 else before[_CarrySource(n, m - 1)] for n, m in self.carries]
        return [*new, *(env[position] for position in stacked)]


def _by_distance(origin: CarriedOperand) -> dict[int, GraphNode]:
    """The initial values, by their distance before the first iteration."""
    return {origin.distance - k: x for k, x in enumerate(origin.first)}


def _partner(node: GraphNode, window: SliceWindow | None) -> Aval:
    """The shape and dtype that a literal operand takes: of another operand, or of a window; a start index is a
    scalar."""
    if window is not None:
        return Aval(window.sizes, window.array.aval.dtype)
    if node.op is dynamic_slice or node.op is dynamic_update_slice:
        return _NUMBER
    avals = [x.aval for x in node.operands if not x.is_multi_result]
    numbers = [x for x in avals if x.dtype.kind != "b"]
    return next(iter(numbers or avals), _NUMBER)


def _literal(x: GraphNode | float) -> Any:
    """The literal, or the value of a fill; None for other values."""
    if is_literal(x):
        return x
    return dict(x.params)["value"] if x.op is full else None


def _numbers(builder: TraceBuilder, literals: Sequence[Any], dtype: DType) -> Any:
    """The literals of all iterations as an array."""
    values = np.asarray(literals).astype(dtype)
    start, step, length = literals[0], literals[1] - literals[0], len(literals)
    if values.dtype.kind != "b" and np.array_equal(values, (start + step * np.arange(length)).astype(dtype)):
        return arange(start=start, step=step, length=length, dtype=dtype.name)
    return builder.lift(values)


def _row_at(array: Any, k: int) -> Any:
    shape = array.shape
    rest = (0,) * (len(shape) - 1)
    element = slice(array, start=(k, *rest), stop=(k + 1, *shape[1:]), step=(1,) * len(shape))
    return reshape(element, shape=shape[1:])
