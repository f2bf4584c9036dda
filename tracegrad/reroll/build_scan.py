"""Build a `scan` from the iterations of a loop: its carries, scanned arrays, constants, and body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.avals import Aval, is_literal
from tracegrad.control.hoist_invariant_reads import read_before
from tracegrad.control.scan_op import scan
from tracegrad.ir import Node, build, recorder
from tracegrad.ir.interpreter import applied
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, fresh, full, reshape, slice, zeros_like
from tracegrad.reroll.iterations import Before, Each, Inside, Iterations, Origin, Same
from tracegrad.reroll.offset_slices import Window, read_again, window_of
from tracegrad.reroll.stack_values import pieces, rows_of
from tracegrad.trace.builder.builder import TraceBuilder

__all__ = ["Uses", "scanned"]

# Positions in an iteration whose values are used after the loop, with the iterations that they come from.
Uses = dict[int, set[int]]


def scanned(builder: TraceBuilder, iterations: Iterations, used: Uses) -> dict[Node, Node] | str:
    """Replace iterations by a scan. Returns the replacements of the nodes that are `used` later, by position and
    iteration; or the reason why there is no scan."""
    if any(iterations.nodes[place].several for place in used):
        return "several results of one node are used together"
    result = _Scan(builder, iterations)
    return result.why or result.run(used)


_NUMBER = Aval((), np.dtype(np.int64))


class _Carry(NamedTuple):
    """Origin of an operand: the value of a chain of carries, `distance` iterations ago."""

    chain: int
    distance: int


class _Row(NamedTuple):
    """Origin of an operand: the row of a scanned array, in this shape."""

    number: int
    shape: tuple[int, ...]


class _Const(NamedTuple):
    number: int


# Origin of an operand in the body: `Inside` is a node of the same iteration, and `Same` is a literal.
_Source = _Carry | _Row | _Const | Inside | Same


class _Scan:
    def __init__(self, builder: TraceBuilder, iterations: Iterations):
        self.builder, self.iterations = builder, iterations
        self.carries: list[_Carry] = []
        self.chains: list[tuple[int, dict[int, Any]]] = []  # position, and initial values by distance
        self.rows: list[Any] = []
        self.consts: list[Node] = []
        self.row_at: dict[Any, int] = {}
        self.const_at: dict[Node, int] = {}
        self.taken: dict[int, int] = {}  # positions whose values are rows, with the row numbers
        self.operands: dict[int, list[_Source]] = {}
        self.starts: dict[int, list[_Source]] = {}  # start indices of moving windows, by position
        self.why = next((why for k in range(iterations.period) if (why := self._place(k))), "")

    # -- what the scan gets ------------------------------------------------------------------------
    def _place(self, place: int) -> str:
        """Find the origins of the operands of the node at this position. Returns the reason if a scan body cannot read
        one."""
        nodes, origins = self.iterations.of(place), self.iterations.origins[place]
        window = window_of(nodes[-1])
        if window is None:
            first = nodes[0].params
            if nodes[0].op is not fresh and any([x.params != first for x in nodes]):  # noqa: C419
                return f"{nodes[0].name} has other parameters in each turn"
        else:
            count = len(origins) - len(window.starts)
            origins, starts = origins[:count], origins[count:]
            moves = any(isinstance(x, Each) for x in starts)
            source = origins[0].value if moves and count == 1 and isinstance(origins[0], Same) else None
            rows = None if source is None else pieces(self.builder, nodes, array=source)
            if rows is not None:
                self.taken[place] = self._row(nodes, rows, ()).number
                return ""
            if moves or (window.mask is not None and window.is_small):
                whole = [window.is_whole(axis) for axis in range(len(starts))]
                self.starts[place] = [Same(0) if w else self._number(x) for w, x in zip(whole, starts)]
        self.operands[place] = [self._source(x, _partner(nodes[-1], window)) for x in origins]
        return ""

    def _source(self, origin: Origin, kind: Aval) -> _Source:
        """The origin in the body of this operand. A literal would have this shape and dtype."""
        if isinstance(origin, Before):
            return _Carry(self._chain(origin.place, _by_distance(origin)), origin.distance)
        if isinstance(origin, Each):
            kind = kind if is_literal(origin.values[0]) else origin.values[0].aval
            numbers = [_literal(x) for x in origin.values]
            if None in numbers:
                return self._row(origin.values, rows_of(self.builder, origin.values), kind.shape)
            key = (kind.dtype, tuple(map(repr, numbers)))
            return self._row(key, _numbers(self.builder, numbers, kind.dtype), kind.shape)
        if isinstance(origin, Same) and not is_literal(origin.value):
            return self._const(origin.value)
        return origin

    def _number(self, origin: Origin) -> _Source:
        """The origin in the body of a start index. A common one of all iterations is an operand too, because an outer
        loop may vary it."""
        if isinstance(origin, Same):
            origin = Same(self.builder.lift(np.int64(origin.value)).node)
        return self._source(origin, _NUMBER)

    def _chain(self, place: int, values: dict[int, Any]) -> int:
        """The carries of the value at this position, with these initial values."""
        alike = [
            number for number, (at, known) in enumerate(self.chains)
            if at == place and all(known.get(m, x) is x for m, x in values.items())
        ]  # fmt: skip
        if not alike:
            alike = [len(self.chains)]
            self.chains.append((place, {}))
        known = self.chains[alike[0]][1]
        self.carries += [_Carry(alike[0], m) for m in sorted(values) if m not in known]
        known.update(values)
        return alike[0]

    def _row(self, key: Any, array: Any, shape: tuple[int, ...]) -> _Row:
        if key not in self.row_at:
            self.row_at[key] = len(self.rows)
            self.rows.append(array)
        return _Row(self.row_at[key], shape)

    def _const(self, node: Node) -> _Const:
        if node not in self.const_at:
            self.const_at[node] = len(self.consts)
            self.consts.append(node)
        return _Const(self.const_at[node])

    # -- the scan ----------------------------------------------------------------------------------
    def run(self, used: Uses) -> dict[Node, Node]:
        count = self.iterations.count
        stacked, last = [], {}
        for place, which in used.items():
            if place in self.taken:
                continue
            reach = {m: n for n, (at, known) in enumerate(self.chains) if at == place for m in known}
            if which == {count - 1} and not reach:
                reach = {1: self._chain(place, {1: None})}
            last[place] = reach
            if any(count - k not in reach for k in which):
                stacked.append(place)
        value = self.builder.value
        inits = [self._initial(*carry) for carry in self.carries]
        operands = [*inits, *self.rows, *map(value, self.consts)]
        avals = [x.aval for x in inits] + [Aval(x.shape[1:], x.dtype) for x in self.rows]
        body = build(lambda *args: self._iteration(args, stacked), [*avals, *(x.aval for x in self.consts)])
        operands, body, _ = read_before(operands, body, len(inits), len(self.rows))
        results = scan(*operands, body=body, carries=len(inits), xs=len(self.rows), length=count, reverse=False)
        ys = dict(zip(stacked, results[len(inits) :]))
        table: dict[Node, Node] = {}
        for place, reach in last.items():
            nodes = self.iterations.of(place)
            for k in sorted(used[place]):
                if place not in ys:
                    new = results[self.carries.index(_Carry(reach[count - k], count - k))]
                else:
                    new = _row_number(ys[place], k)
                table[nodes[k]] = new.node
        return table

    def _initial(self, chain: int, distance: int) -> Any:
        place, known = self.chains[chain]
        node = known[distance]
        return zeros_like(self.iterations.nodes[place]) if node is None else self.builder.value(node)

    def _iteration(self, args: Sequence[Any], stacked: Sequence[int]) -> list[Any]:
        first, second = len(self.carries), len(self.carries) + len(self.rows)
        carries, rows, consts = args[:first], args[first:second], args[second:]
        inside: Any = recorder()
        env: dict[int, Any] = {place: rows[number] for place, number in self.taken.items()}
        period = self.iterations.period
        # The last iteration becomes the body, because the first one may have computed its values differently.
        nodes = self.iterations.nodes[-period:]

        def found(source: _Source) -> Any:
            match source:
                case Inside(place):
                    return env[place]
                case _Carry():
                    return carries[self.carries.index(source)]
                case _Row(number, shape):
                    return rows[number] if rows[number].shape == shape else broadcast_to(rows[number], shape=shape)
                case _Const(number):
                    return consts[number]
            return source.value

        for place, node in enumerate(nodes):
            if place in self.taken:
                continue
            inputs = tuple(map(found, self.operands[place]))
            window = window_of(node)
            if window is not None:
                inside.location = node.location
                starts = self.starts.get(place)
                env[place] = read_again(window, inputs, None if starts is None else list(map(found, starts)))
            elif node.picks is not None:
                env[place] = inputs[0][node.picks]
            else:
                env[place] = applied(node, inputs, dict(node.params), inside)
        before = dict(zip(self.carries, carries))
        new = [env[self.chains[n][0]] if m == 1 else before[_Carry(n, m - 1)] for n, m in self.carries]
        return [*new, *(env[place] for place in stacked)]


def _by_distance(origin: Before) -> dict[int, Node]:
    """The initial values, by their distance before the first iteration."""
    return {origin.distance - k: x for k, x in enumerate(origin.first)}


def _partner(node: Node, window: Window | None) -> Aval:
    """The shape and dtype that a literal operand takes: of another operand, or of a window; a start index is a
    scalar."""
    if window is not None:
        return Aval(window.sizes, window.array.aval.dtype)
    if node.op is dynamic_slice or node.op is dynamic_update_slice:
        return _NUMBER
    avals = [x.aval for x in node.operands if not x.several]
    numbers = [x for x in avals if x.dtype.kind != "b"]
    return next(iter(numbers or avals), _NUMBER)


def _literal(x: Any) -> Any:
    """The literal, or the value of a fill; None for other values."""
    if is_literal(x):
        return x
    return dict(x.params)["value"] if x.op is full else None


def _numbers(builder: TraceBuilder, given: Sequence[Any], dtype: np.dtype[Any]) -> Any:
    """The literals of all iterations as an array."""
    values = np.asarray(given).astype(dtype)
    start, step, length = given[0], given[1] - given[0], len(given)
    if values.dtype.kind != "b" and np.array_equal(values, (start + step * np.arange(length)).astype(dtype)):
        return arange(start=start, step=step, length=length, dtype=dtype.name)
    return builder.lift(values)


def _row_number(array: Any, k: int) -> Any:
    shape = array.shape
    rest = (0,) * (len(shape) - 1)
    piece = slice(array, start=(k, *rest), stop=(k + 1, *shape[1:]), step=(1,) * len(shape))
    return reshape(piece, shape=shape[1:])
