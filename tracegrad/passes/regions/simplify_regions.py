"""Simplification of loops and branches: rules for the ops with regions, asked as any other by `simplify`.

A region is simplified before the node that runs it. Then the node is looked at as a whole:

- a loop of no turn or of one, and a branch whose number is known, are what they compute;
- an operand that holds one value, that repeats rows, or that is another one seen differently (reshaped, broadcast, or
  transposed, where that is read as well) is made inside of the region, where it may simplify and is not stored; equal
  operands become one, and those that nothing reads are not given;
- a carry that holds one value and keeps it, one that never changes, and one that always equals another, or most of
  another, is no carry;
- what depends on constants alone, and is worth it, is computed before the loop;
- a result that is an operand, or the same in every turn, needs no loop; equal results become one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.control import cond_op as branch
from tracegrad.control import scan_op as repeat
from tracegrad.control import while_op as until
from tracegrad.ir import Graph, Node, replay
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.forms import Map
from tracegrad.ops.core.op import Op
from tracegrad.ops.indexing.dynamic_slice import dynamic_update_slice
from tracegrad.ops.shape.linear import broadcast_to, full, reshape, slice
from tracegrad.passes.algebra.shape_rules import BY_OP, rule_for
from tracegrad.passes.core.constant_folding import constant
from tracegrad.passes.core.rewriter import operand, producer
from tracegrad.passes.regions.fold_row_reads import read_inside
from tracegrad.passes.regions.region_rewriter import CARRY, CONSTANT, ROW, Given, Regions, Stand, rebuilt, seen
from tracegrad.passes.regions.sink_last_iteration import computed_behind

__all__ = ["BY_OP"]


# -- loops of a known number of turns ------------------------------------------------------------------------
@rule_for(repeat.scan)
def _(*operands: Any, body: Graph, carries: int, xs: int, length: int, reverse: bool) -> Any:
    if not operands:
        return None
    if length <= 1:
        return _unrolled(operands, body, carries, xs, length)
    loop = _Loop([body], operands, carries, xs)
    loop.regions.hoist(_worth_it)
    ys = loop.outputs[carries:]
    known = {y: rows for y in ys if (rows := _rows(loop.regions, y, length)) is not None}
    kept = [y for y in dict.fromkeys(ys) if y not in known]
    if not loop.regions.changed and len(kept) == len(ys):
        return computed_behind(operands, body=body, carries=carries, xs=xs, length=length, reverse=reverse)
    (region,), given = loop.closed(kept)
    rows = sum(each.sort == ROW for each in given)
    found: tuple[Any, ...] = ()
    if region.outputs:
        params: Any = {"body": region, "carries": loop.count, "xs": rows, "length": length, "reverse": reverse}
        found = computed_behind([each.value for each in given], **params) or _emit(repeat.scan, given, **params)
    known |= dict(zip(kept, found[loop.count :]))
    return (*loop.carried(found), *(known[y] for y in ys))


def _unrolled(operands: Sequence[Any], body: Graph, carries: int, xs: int, length: int) -> tuple[Any, ...]:
    inits, seqs, consts = operands[:carries], operands[carries : carries + xs], operands[carries + xs :]
    if not length:
        return (*inits, *(_zeros(operands[0], (0, *y.shape), y.dtype) for y in body.results[carries:]))
    outputs = replay(body, [*inits, *(reshape(x, shape=x.shape[1:]) for x in seqs), *consts])[0]
    return (*outputs[:carries], *(reshape(y, shape=(1, *y.shape)) for y in outputs[carries:]))


def _zeros(near: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return near.builder.emit(full, (), {"shape": shape, "value": dtype.type(0).item(), "dtype": dtype.name})


def _rows(regions: Regions, y: Node, length: int) -> Any:
    """The rows `y` of all turns, where they need no loop; or None."""
    given = regions.inputs.get(y)
    if given is not None and given.sort == ROW:
        return given.value
    if y in regions.moving():
        return None
    return broadcast_to(regions.outside([y])[0], shape=(length, *y.aval.shape))


# -- loops that run while a condition holds ------------------------------------------------------------------
@rule_for(until.while_loop)
def _(*operands: Any, cond: Graph, body: Graph, carries: int, capacity: int) -> Any:
    if not operands:
        return None
    if cond.outputs[0].op is full and not dict(cond.outputs[0].params)["value"]:
        empty = [_zeros(operands[0], (capacity, *y.shape), y.dtype) for y in body.results[carries:]]
        return (*operands[:carries], _zeros(operands[0], (), np.dtype(np.int64)), *empty)
    if (inside := read_inside(operands, [body, cond], carries)) is not None:
        return until.while_loop(*inside[0], body=inside[1][0], cond=inside[1][1], carries=carries, capacity=capacity)
    loop = _Loop([body, cond], operands, carries, 0)
    loop.regions.hoist(lambda node: _worth_it(node) and isinstance(node.op, Elementwise))  # which never fails
    ys = loop.outputs[carries:]
    kept = list(dict.fromkeys(ys))
    if not loop.regions.changed and len(kept) == len(ys):
        return None
    regions, given = loop.closed(kept)
    if not given:
        return None  # nothing changes from turn to turn
    found = _emit(until.while_loop, given, body=regions[0], cond=regions[1], carries=loop.count, capacity=capacity)
    stacked = dict(zip(kept, found[loop.count + 1 :]))
    return (*loop.carried(found), found[loop.count], *(stacked[y] for y in ys))


class _Loop:
    """A loop without the carries that need not be; the first region is its body."""

    def __init__(self, graphs: list[Graph], operands: Sequence[Any], carries: int, rows: int):
        self.operands, self.carries, self.others = operands, carries, graphs[1:]
        inside = [tuple(zip(graphs, each)) for each in zip(*(graph.inputs for graph in graphs))]
        stands = [seen(x, k < rows, inside[carries + k]) for k, x in enumerate(operands[carries:])]
        self.settle(graphs, stands)
        self.windows = self._windows()
        if self.windows:
            self._build(graphs, stands)
        self.still = self._take_what_stays()

    def settle(self, graphs: list[Graph], stands: list[Stand]) -> None:
        """Find the best assumption about carries that the body keeps: which hold one value, which equal which."""
        inits = self.operands[: self.carries]
        known = {k for k, x in enumerate(inits) if constant(x) is not None}
        label: list[Any] = [x.node for x in inits]
        while True:
            leader = list(range(self.carries))
            for k in range(self.carries):
                leader[k] = next(j for j in range(k + 1) if label[j] == label[k] and (j == k or j not in known))
            self.known, self.leader, self.windows = known, leader, {}
            self._build(graphs, stands)
            outs = self.regions.graphs[0].outputs
            finer = [label[k] if k in known else (label[k], outs[k]) for k in range(self.carries)]
            kept = {k for k in known if _same_value(outs[k], inits[k].node)}
            if kept == known and len(set(finer)) == len(set(label)):
                break
            known, label = kept, finer

    def _build(self, graphs: list[Graph], stands: list[Stand]) -> None:
        """The regions, where what is known of carries stands for them."""
        self.regions = rebuilt(graphs, [*map(self._stand, range(self.carries)), *stands], self.operands[0])

    def _stand(self, k: int) -> Stand:
        if k in self.known:
            return Stand(None, ((full, dict(self.operands[k].node.params)),))
        lead = self.leader[k]
        whole = self.windows.get(lead, lead)
        made = ((slice, dict(self.operands[lead].node.params)),) if whole != lead else ()
        return Stand(Given(CARRY, self.operands[whole], whole), made)

    def _windows(self) -> dict[int, int]:
        """The carries that are always a window of another one, of most of its elements, with the number of that one."""
        outs = self.regions.graphs[0].outputs
        lead = [k for k in range(self.carries) if k not in self.known and self.leader[k] == k]
        found: dict[int, int] = {}
        for k in lead:
            x = self.operands[k]
            if producer(x) is not slice or 2 * x.aval.size < operand(x).aval.size:
                continue
            for j in lead:
                whole = self.operands[j].node is operand(x).node and j not in found and k not in found.values()
                if whole and _is_window(outs[k], outs[j], dict(x.node.params)):
                    found[k] = j
        return found

    def _take_what_stays(self) -> set[int]:
        """Give the carries that the body hands on as they are as constants."""
        body = self.regions.graphs[0]
        found = set()
        for i, given in enumerate(self.regions.given):
            if given.sort == CARRY and body.outputs[given.number] is body.inputs[i]:
                self.regions.given[i] = Given(CONSTANT, given.value)
                self.regions.changed = True
                found.add(given.number)
        return found

    @property
    def outputs(self) -> tuple[Node, ...]:
        return self.regions.graphs[0].outputs

    @property
    def lead(self) -> list[int]:
        """The carries that remain."""
        return [given.number for given in self.regions.given if given.sort == CARRY]

    @property
    def count(self) -> int:
        return len(self.lead)

    def closed(self, ys: Sequence[Node]) -> tuple[list[Graph], list[Given]]:
        """The regions, the body with the results `ys`, and what they are given."""
        outputs = [[*(self.outputs[k] for k in self.lead), *ys], *(g.outputs for g in self.regions.graphs[1:])]
        return self.regions.closed(outputs, self.lead)

    def carried(self, found: Sequence[Any]) -> list[Any]:
        """The last values of all carries, given those of the ones that remain."""
        last = dict(zip(self.lead, found))
        for k, whole in self.windows.items():
            of = self.operands[whole] if whole in self.still else last[whole]
            last[k] = slice(of, **dict(self.operands[k].node.params))
        return [
            self.operands[k] if k in self.known or self.leader[k] in self.still else last[self.leader[k]]
            for k in range(self.carries)
        ]


def _same_value(x: Node, y: Node) -> bool:
    return x.op is full and {k: repr(v) for k, v in x.params} == {k: repr(v) for k, v in y.params}


def _is_window(x: Node, whole: Node, at: dict[str, Any]) -> bool:
    """Whether `x` is what `slice` gives of `whole`, read from it or written into it."""
    if x.op is slice:
        return x.inputs[0] is whole and dict(x.params) == at
    if whole.op is not dynamic_update_slice or whole.inputs[1] is not x or at["step"] != dict(whole.params)["step"]:
        return False
    return bool(whole.inputs[2:] == at["start"])


_CALLS = r"[a-z]\w*(?=\()"
_QUICK = {"absolute", "where", "maximum", "minimum"}


def _worth_it(node: Node) -> bool:
    """Whether to compute `node` once, and to load it in every turn, is better than to compute it in every turn."""
    assert node.op is not None
    form = node.op.form
    if not isinstance(form, Map):
        return not form.cheap
    return form.scalar is None or "/" in form.scalar or not _QUICK.issuperset(re.findall(_CALLS, form.scalar))


# -- branches ------------------------------------------------------------------------------------------------
@rule_for(branch.cond)
def _(index: Any, *operands: Any, branches: tuple[Graph, ...]) -> Any:
    number = constant(index)
    if number is not None or all(b == branches[0] for b in branches):
        assert not isinstance(number, complex)
        return tuple(replay(branches[min(max(int(number or 0), 0), len(branches) - 1)], operands)[0])
    stands = [seen(x, False, [(graph, graph.inputs[k]) for graph in branches]) for k, x in enumerate(operands)]
    regions = rebuilt(branches, stands, index)
    outs = list(zip(*(graph.outputs for graph in regions.graphs)))
    known = {each: value for each in outs if (value := _operand(regions, each)) is not None}
    kept = [each for each in dict.fromkeys(outs) if each not in known]
    if not regions.changed and len(kept) == len(outs):
        return None
    if kept:
        chosen, given = regions.closed([[each[k] for each in kept] for k in range(len(branches))])
        found = _emit(branch.cond, [Given(CONSTANT, index), *given], branches=tuple(chosen))
        known |= dict(zip(kept, found))
    return tuple([known[each] for each in outs])


def _operand(regions: Regions, results: Sequence[Node]) -> Any:
    """The operand that a result is in every branch; or None."""
    places = {g.inputs.index(x) if x in g.inputs else -1 for g, x in zip(regions.graphs, results)}
    place = places.pop()
    return None if places or place < 0 else regions.given[place].value


def _emit(op: Op, given: Sequence[Given], **params: Any) -> tuple[Any, ...]:
    """The results of `op`, which is as simple as it gets."""
    builder = given[0].value.builder
    node = builder.number(op, tuple([each.value.node for each in given]), tuple(sorted(params.items())))
    results: tuple[Any, ...] = builder.valued(node)
    return results
