"""Simplify loops and branches: rules for ops with regions, called by `simplify` like any other rule.

A region is simplified before its node. The node is then simplified as a whole:

- a loop of zero or one iterations, and a branch with a known index, are inlined;
- an operand that is a fill, repeats rows, or is a cheap view of another value is recomputed inside the region, where
  it may simplify and is not stored; views are reshape, broadcast, and a transpose if reading it is as cheap;
- equal operands are merged, and unread operands are removed;
- a carry that is always one constant, never changes, or always equals another carry or most of it, is removed;
- a loop-invariant computation that is expensive enough is hoisted;
- a result that is an operand, or the same in every iteration, is moved out of the loop; equal results are merged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.control import cond_op, scan_op, while_op
from tracegrad.ir import Graph, GraphNode, GraphValue, Value, replay
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.forms import Map
from tracegrad.ops.core.op import Op
from tracegrad.ops.indexing.dynamic_slice import dynamic_update_slice
from tracegrad.ops.shape.linear import broadcast_to, full, reshape, slice
from tracegrad.passes.algebra.shape_rules import BY_OP, rule_for
from tracegrad.passes.core.constant_folding import constant
from tracegrad.passes.core.rewriter import operand, producer
from tracegrad.passes.regions.fold_row_reads import read_inside
from tracegrad.passes.regions.region_rewriter import (
    CARRY,
    CONSTANT,
    ROW,
    InputOrigin,
    InputReplacement,
    ParallelRegions,
    rebuilt,
    replacement_of,
)
from tracegrad.passes.regions.sink_last_iteration import sink_unread_carries

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import DType


__all__ = ["BY_OP"]


# -- loops ----------------------------------------------------------------------------------------------------
@rule_for(scan_op.scan, "region-simplification")
def _(*operands: Value, **params: object) -> Any:
    loop = LoopView.from_params(scan_op.scan, params)
    if not operands:
        return None
    return _unrolled(operands, loop) if loop.length <= 1 else _simplified(operands, loop, _is_expensive)


@rule_for(while_op.while_loop, "region-simplification")
def _(*operands: Any, **params: Any) -> Any:
    loop = LoopView.from_params(while_op.while_loop, params)
    if not operands or loop.cond is None:
        return None
    (condition,) = loop.cond.outputs
    if condition.op is full and not dict(condition.params)["value"]:
        empty = [_zeros(operands[0], (loop.length, *y.shape), y.dtype) for y in loop.body.results[loop.carries :]]
        return (*loop.initial(operands), _zeros(operands[0], (), np.dtype(np.int64)), *empty)
    if (inside := read_inside(operands, [loop.body, loop.cond], loop.carries)) is not None:
        args, (body, cond) = inside
        return while_op.while_loop(*args, **loop._replace(body=body, cond=cond).params)
    # The loop may have no iterations, and elementwise ops never fail.
    return _simplified(operands, loop, lambda node: _is_expensive(node) and isinstance(node.op, Elementwise))


def _unrolled(operands: Sequence[Any], loop: LoopView) -> tuple[Any, ...]:
    """The results of a scan of at most one iteration."""
    inits, n = loop.initial(operands), loop.carries
    if not loop.length:
        return (*inits, *(_zeros(operands[0], (0, *y.shape), y.dtype) for y in loop.body.results[n:]))
    rows = [reshape(x, shape=x.shape[1:]) for x in loop.scanned(operands)]
    outputs = replay(loop.body, [*inits, *rows, *loop.constants(operands)])[0]
    return (*outputs[:n], *(reshape(y, shape=(1, *y.shape)) for y in outputs[n:]))


def _zeros(near: GraphValue, shape: tuple[int, ...], dtype: DType) -> Any:
    return near.builder.emit(full, (), {"shape": shape, "value": dtype.type(0).item(), "dtype": dtype.name})


def _simplified(operands: Sequence[Any], loop: LoopView, may_hoist: Callable[[GraphNode], bool]) -> Any:
    """The results of a simpler loop and of what moves out of it; None if nothing is simpler."""
    simpler = _LoopSimplifier(loop, operands)
    simpler.regions.hoist(may_hoist)
    ys = simpler.outputs[loop.carries :]
    known: dict[GraphNode, Any] = {}
    if loop.cond is None:
        known = {y: rows for y in ys if (rows := _stacked_rows(simpler.regions, y, loop.length)) is not None}
    saved = [y for y in dict.fromkeys(ys) if y not in known]
    if not simpler.regions.changed and len(saved) == len(ys):
        return sink_unread_carries(operands, loop) if loop.cond is None else None
    (body, *conds), args = simpler.closed(saved)
    if not args and loop.cond is not None:
        return None  # no value changes between iterations
    rows = sum(each.sort == ROW for each in args)
    cond = conds[0] if conds else None
    smaller = loop._replace(body=body, cond=cond, carries=simpler.count, xs=rows)
    results: tuple[Any, ...] = ()
    if cond is not None or body.outputs:
        if cond is None:
            results = sink_unread_carries([each.value for each in args], smaller)
        results = results or _emit(loop.op, args, smaller.params)
    known |= dict(zip(saved, results[smaller.first_stacked :]))
    trip_count = results[smaller.carries : smaller.first_stacked]
    return (*simpler.carried(results), *trip_count, *(known[y] for y in ys))


def _stacked_rows(regions: ParallelRegions, y: GraphNode, length: int) -> Any:
    """The stacked rows `y` of all iterations, if they need no loop; else None."""
    operands = regions.inputs.get(y)
    if operands is not None and operands.sort == ROW:
        return operands.value
    if y in regions.moving():
        return None
    return broadcast_to(regions.outside([y])[0], shape=(length, *y.aval.shape))


class _LoopSimplifier:
    """A loop without unnecessary carries; the first region is its body."""

    def __init__(self, loop: LoopView, operands: Sequence[Any]):
        self.operands, self.carries = operands, loop.carries
        graphs = [loop.body] if loop.cond is None else [loop.body, loop.cond]
        inside = [tuple(zip(graphs, each)) for each in zip(*(graph.inputs for graph in graphs))]
        replacements = [
            replacement_of(operands[k], k < loop.varying, inside[k]) for k in range(loop.carries, len(operands))
        ]
        self.find_carry_facts(graphs, replacements)
        self.windows = self._windows()
        if self.windows:
            self._build(graphs, replacements)
        self.invariant = self._demote_invariants()

    def find_carry_facts(self, graphs: list[Graph], replacements: list[InputReplacement]) -> None:
        """Find the strongest assumption about carries that the body preserves: constant carries, and equal carries."""
        inits = self.operands[: self.carries]
        known = {k for k, x in enumerate(inits) if constant(x) is not None}
        label: list[Any] = [x.node for x in inits]
        while True:
            leader = list(range(self.carries))
            for k in range(self.carries):
                leader[k] = next(j for j in range(k + 1) if label[j] == label[k] and (j == k or j not in known))
            self.known, self.leader, self.windows = known, leader, {}
            self._build(graphs, replacements)
            outs = self.regions.graphs[0].outputs
            finer = [label[k] if k in known else (label[k], outs[k]) for k in range(self.carries)]
            constant_carries = {k for k in known if _same_value(outs[k], inits[k].node)}
            if constant_carries == known and len(set(finer)) == len(set(label)):
                break
            known, label = constant_carries, finer

    def _build(self, graphs: list[Graph], replacements: list[InputReplacement]) -> None:
        """The regions, with the facts about carries substituted."""
        self.regions = rebuilt(graphs, [*map(self._replacement, range(self.carries)), *replacements], self.operands[0])

    def _replacement(self, k: int) -> InputReplacement:
        if k in self.known:
            return InputReplacement(None, ((full, dict(self.operands[k].node.params)),))
        leader = self.leader[k]
        whole = self.windows.get(leader, leader)
        result = ((slice, dict(self.operands[leader].node.params)),) if whole != leader else ()
        return InputReplacement(InputOrigin(CARRY, self.operands[whole], whole), result)

    def _windows(self) -> dict[int, int]:
        """The carries that are always a window of most of another carry, with the number of that carry."""
        outs = self.regions.graphs[0].outputs
        leaders = [k for k in range(self.carries) if k not in self.known and self.leader[k] == k]
        table: dict[int, int] = {}
        for k in leaders:
            x = self.operands[k]
            if producer(x) is not slice or 2 * x.aval.size < operand(x).aval.size:
                continue
            for j in leaders:
                whole = self.operands[j].node is operand(x).node and j not in table and k not in table.values()
                if whole and _is_window(outs[k], outs[j], dict(x.node.params)):
                    table[k] = j
        return table

    def _demote_invariants(self) -> set[int]:
        """Replace carries that the body passes on unchanged by constants."""
        body = self.regions.graphs[0]
        results = set()
        for i, origin in enumerate(self.regions.origins):
            if origin.sort == CARRY and body.outputs[origin.number] is body.inputs[i]:
                self.regions.origins[i] = InputOrigin(CONSTANT, origin.value)
                self.regions.changed = True
                results.add(origin.number)
        return results

    @property
    def outputs(self) -> tuple[GraphNode, ...]:
        return self.regions.graphs[0].outputs

    @property
    def remaining(self) -> list[int]:
        """The remaining carries."""
        return [origin.number for origin in self.regions.origins if origin.sort == CARRY]

    @property
    def count(self) -> int:
        return len(self.remaining)

    def closed(self, ys: Sequence[GraphNode]) -> tuple[list[Graph], list[InputOrigin]]:
        """The regions, the body with the results `ys`, and their operands."""
        outputs = [[*(self.outputs[k] for k in self.remaining), *ys], *(g.outputs for g in self.regions.graphs[1:])]
        return self.regions.closed(outputs, self.remaining)

    def carried(self, final_values: tuple[Operand, ...]) -> list[Any]:
        """The final values of all carries, computed from the final values of the remaining ones."""
        last = dict(zip(self.remaining, final_values))
        for k, whole in self.windows.items():
            of = self.operands[whole] if whole in self.invariant else last[whole]
            last[k] = slice(of, **dict(self.operands[k].node.params))
        return [
            self.operands[k] if k in self.known or self.leader[k] in self.invariant else last[self.leader[k]]
            for k in range(self.carries)
        ]


def _same_value(x: GraphNode, y: GraphNode) -> bool:
    return x.op is full and {k: repr(v) for k, v in x.params} == {k: repr(v) for k, v in y.params}


def _is_window(x: GraphNode, whole: GraphNode, at: dict[str, tuple[int, ...]]) -> bool:
    """Whether `x` is the `slice` of `whole`, read from it or written into it."""
    if x.op is slice:
        return x.inputs[0] is whole and dict(x.params) == at
    if whole.op is not dynamic_update_slice or whole.inputs[1] is not x or at["step"] != dict(whole.params)["step"]:
        return False
    return bool(whole.inputs[2:] == at["start"])


_CALLS = r"[a-z]\w*(?=\()"
_CHEAP_CALLS = {"absolute", "where", "maximum", "minimum"}


def _is_expensive(node: GraphNode) -> bool:
    """Whether computing `node` once, and loading it in every iteration, is cheaper than recomputing it."""
    assert node.op is not None
    form = node.op.form
    if not isinstance(form, Map):
        return not form.cheap
    return form.scalar is None or "/" in form.scalar or not _CHEAP_CALLS.issuperset(re.findall(_CALLS, form.scalar))


# -- branches ------------------------------------------------------------------------------------------------
@rule_for(cond_op.cond, "region-simplification")
def _(index: GraphValue, *operands: Operand, branches: tuple[Graph, ...]) -> Any:
    number = constant(index)
    if number is not None or all(b == branches[0] for b in branches):
        assert not isinstance(number, complex)
        return tuple(replay(branches[min(max(int(number or 0), 0), len(branches) - 1)], operands)[0])
    replacements = [
        replacement_of(x, False, [(graph, graph.inputs[k]) for graph in branches]) for k, x in enumerate(operands)
    ]
    regions = rebuilt(branches, replacements, index)
    outs = list(zip(*(graph.outputs for graph in regions.graphs)))
    known = {each: value for each in outs if (value := _operand(regions, each)) is not None}
    saved = [each for each in dict.fromkeys(outs) if each not in known]
    if not regions.changed and len(saved) == len(outs):
        return None
    if saved:
        chosen, args = regions.closed([[each[k] for each in saved] for k in range(len(branches))])
        result = _emit(cond_op.cond, [InputOrigin(CONSTANT, index), *args], {"branches": tuple(chosen)})
        known |= dict(zip(saved, result))
    return tuple([known[each] for each in outs])


def _operand(regions: ParallelRegions, results: Sequence[GraphNode]) -> Operand | None:
    """The operand that a result equals in every branch; or None."""
    positions = {g.inputs.index(x) if x in g.inputs else -1 for g, x in zip(regions.graphs, results)}
    position = positions.pop()
    return None if positions or position < 0 else regions.origins[position].value


def _emit(op: Op, origins: Sequence[InputOrigin], params: dict[str, object]) -> tuple[Any, ...]:
    """Emit `op` without further simplification. Returns its results."""
    builder = origins[0].value.builder
    node = builder.number(op, tuple([each.value.node for each in origins]), tuple(sorted(params.items())))
    results: tuple[Any, ...] = builder.valued(node)
    return results
