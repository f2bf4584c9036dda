"""From the turns of a loop to a `scan`: its carries, the arrays it takes rows of, its constants, and its body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracegrad.avals import Aval, is_literal
from tracegrad.control.repeat import scan
from tracegrad.ir import Node, build, recorder
from tracegrad.ir.replay import applied
from tracegrad.ops.fills import arange
from tracegrad.ops.linear import broadcast_to, fresh, reshape, slice, zeros_like
from tracegrad.rolling.rows import pieces, rows_of
from tracegrad.rolling.turns import Before, Each, Inside, Same, Turns
from tracegrad.trace.builder import TraceBuilder

__all__ = ["scanned"]


def scanned(builder: TraceBuilder, turns: Turns, used: Mapping[int, set[int]]) -> dict[Node, Node] | str:
    """What stands for the nodes of the turns that are `used` later: for each place, of which turns; or why there is no
    such scan."""
    if any(turns.nodes[place].several for place in used):
        return "several results of one node are used together"
    made = _Scan(builder, turns)
    return made.why or made.run(used)


class _Scan:
    def __init__(self, builder: TraceBuilder, turns: Turns):
        self.builder, self.turns = builder, turns
        self.carries: list[tuple[int, int]] = []  # of each, its chain and how many turns back it is
        self.chains: list[tuple[int, dict[int, Any]]] = []  # the place, and the value before the loop, by distance
        self.read: dict[tuple[int, int], int] = {}  # the chain that an operand reads
        self.rows: list[Any] = []
        self.consts: list[Node] = []
        self.row_at: dict[Any, int] = {}
        self.const_at: dict[Node, int] = {}
        self.taken: dict[int, int] = {}  # the places whose values are rows of an array
        self.why = next((why for k in range(turns.period) if (why := self._place(k))), "")

    # -- what the scan gets ------------------------------------------------------------------------
    def _place(self, place: int) -> str:
        """Find what the node at this place reads; if no body of a scan can read it, why."""
        nodes, origins = self.turns.of(place), self.turns.origins[place]
        if any(_meaning(x) != _meaning(nodes[0]) for x in nodes):
            array = pieces(self.builder, nodes) if isinstance(origins[0], Same) else None
            if array is None:
                return f"{nodes[0].name} has other parameters in each turn"
            self.taken[place] = self._row(nodes, array)
            return ""
        for k, origin in enumerate(origins):
            if isinstance(origin, Before):
                self.read[place, k] = self._chain(origin.place, _by_distance(origin))
            elif isinstance(origin, Each):
                if is_literal(origin.values[0]):
                    self._row(_key(origin, nodes[0]), _numbers(self.builder, origin, nodes[0]))
                else:
                    self._row(origin.values, rows_of(self.builder, origin.values))
            elif isinstance(origin, Same) and not is_literal(origin.value):
                self._const(origin.value)
        return ""

    def _chain(self, place: int, values: dict[int, Any]) -> int:
        """The carries of the value at this place, which had these values before the first turn."""
        alike = [
            number for number, (at, known) in enumerate(self.chains)
            if at == place and all(known.get(m, x) is x for m, x in values.items())
        ]  # fmt: skip
        if not alike:
            alike = [len(self.chains)]
            self.chains.append((place, {}))
        known = self.chains[alike[0]][1]
        self.carries += [(alike[0], m) for m in sorted(values) if m not in known]
        known.update(values)
        return alike[0]

    def _row(self, key: Any, array: Any) -> int:
        if key not in self.row_at:
            self.row_at[key] = len(self.rows)
            self.rows.append(array)
        return self.row_at[key]

    def _const(self, node: Node) -> int:
        if node not in self.const_at:
            self.const_at[node] = len(self.consts)
            self.consts.append(node)
        return self.const_at[node]

    # -- the scan ----------------------------------------------------------------------------------
    def run(self, used: Mapping[int, set[int]]) -> dict[Node, Node]:
        count = self.turns.count
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
        body = build(lambda *args: self._turn(args, stacked), [*avals, *(x.aval for x in self.consts)])
        results = scan(*operands, body=body, carries=len(inits), xs=len(self.rows), length=count, reverse=False)
        ys = dict(zip(stacked, results[len(inits) :]))
        found: dict[Node, Node] = {}
        for place, reach in last.items():
            nodes = self.turns.of(place)
            for k in sorted(used[place]):
                if place not in ys:
                    new = results[self.carries.index((reach[count - k], count - k))]
                else:
                    new = _row_number(ys[place], k)
                found[nodes[k]] = new.node
        return found

    def _initial(self, chain: int, distance: int) -> Any:
        place, known = self.chains[chain]
        node = known[distance]
        return zeros_like(self.turns.nodes[place]) if node is None else self.builder.value(node)

    def _turn(self, args: Sequence[Any], stacked: Sequence[int]) -> list[Any]:
        first, second = len(self.carries), len(self.carries) + len(self.rows)
        carries, rows, consts = args[:first], args[first:second], args[second:]
        inside = recorder()
        env: dict[int, Any] = {place: rows[number] for place, number in self.taken.items()}
        period = self.turns.period
        # The last turn stands for all: the first may have come by its values in another way.
        nodes = self.turns.nodes[-period:]

        def operand(place: int, k: int) -> Any:
            origin = self.turns.origins[place][k]
            if isinstance(origin, Inside):
                return env[origin.place]
            if isinstance(origin, Before):
                return carries[self.carries.index((self.read[place, k], origin.distance))]
            if isinstance(origin, Each):
                if is_literal(origin.values[0]):
                    row = rows[self.row_at[_key(origin, nodes[place])]]
                    shape = _partner(nodes[place]).shape
                    return broadcast_to(row, shape=shape) if shape else row
                return rows[self.row_at[origin.values]]
            return origin.value if is_literal(origin.value) else consts[self.const_at[origin.value]]

        for place, node in enumerate(nodes):
            if place in env:
                continue
            given = tuple([operand(place, k) for k in range(len(node.inputs))])
            env[place] = given[0][node.picks] if node.picks is not None else applied(
                node, given, dict(node.params), inside
            )  # fmt: skip
        before = dict(zip(self.carries, carries))
        new = [env[self.chains[n][0]] if m == 1 else before[n, m - 1] for n, m in self.carries]
        return [*new, *(env[place] for place in stacked)]


def _meaning(node: Node) -> Any:
    """The parameters that a turn must have in common with the others."""
    return node.params if node.op is not fresh else ()


def _by_distance(origin: Before) -> dict[int, Node]:
    """What the value had been so many turns before the first one."""
    return {origin.distance - k: x for k, x in enumerate(origin.first)}


def _partner(node: Node) -> Aval:
    """The operand whose shape and dtype a literal beside it takes."""
    others = [x for x in node.operands if x.aval.dtype.kind != "b"] or list(node.operands)
    return others[0].aval


def _key(origin: Each, node: Node) -> Any:
    return _partner(node).dtype, tuple(map(repr, origin.values))


def _numbers(builder: TraceBuilder, origin: Each, node: Node) -> Any:
    """The literals of all turns as an array."""
    dtype = _partner(node).dtype
    values = np.asarray(origin.values).astype(dtype)
    start, step = origin.values[0], origin.values[1] - origin.values[0]
    length = len(values)
    if values.dtype.kind != "b" and np.array_equal(values, (start + step * np.arange(length)).astype(dtype)):
        return arange(start=start, step=step, length=length, dtype=dtype.name)
    return builder.lift(values)


def _row_number(array: Any, k: int) -> Any:
    shape = array.shape
    rest = (0,) * (len(shape) - 1)
    piece = slice(array, start=(k, *rest), stop=(k + 1, *shape[1:]), step=(1,) * len(shape))
    return reshape(piece, shape=shape[1:])
