"""Estimate the cost of interpreting a graph by NumPy and of compiling it, in nanoseconds, from the graph alone.

The estimates decide whether to compile at the first call. They are counts and not measurements, so the same call takes
the same decision on every day and every machine. The constants are rounded up, for a CPU with AVX-512, NumPy 2.4, and
memory that the process has used before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tracegrad.avals import Aval
from tracegrad.codegen.loopir.scalar_templates import COST, functions_of
from tracegrad.ir import Graph, GraphNode
from tracegrad.ops.core.forms import (
    Branch,
    Cast,
    Compose,
    Contract,
    FoldForm,
    Gather,
    IdentityForm,
    Map,
    Move,
    Repeat,
    Scatter,
)
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.ops.core.op import ResultAvals


COMPILE = TUNING.first_call.unit_time
CHARACTER = TUNING.first_call.character_time
SHARED = TUNING.first_call.shared_function_time
CHARACTER_OF_REGIONS = TUNING.first_call.region_character_time
LONG = TUNING.first_call.max_region_text

OP = TUNING.first_call.op_time
BYTE = TUNING.first_call.byte_time
PRODUCT = TUNING.first_call.product_time
SLOW_PRODUCT = TUNING.first_call.slow_product_time
FIRST_TOUCH = TUNING.first_call.first_touch_time
REDUCED_ROW = TUNING.first_call.reduced_row_time
PICKED = TUNING.first_call.gathered_time
ADDED = TUNING.first_call.scattered_time
COMPOSED = TUNING.first_call.composite_time
MULTIPLE_LOOPS = TUNING.first_call.multi_loop_time
CALCULATED = TUNING.first_call.cost_unit_time
DEARER = dict(TUNING.first_call.function_times)


def to_replay(graph: Graph) -> float:
    """The cost of interpreting a graph in fresh memory."""
    return Effort().total(graph) + FIRST_TOUCH * alive_bytes(graph)


def to_compile(text: str, regions: bool = False) -> float:
    """The cost of compiling a unit with this text: a kernel, or a step with regions."""
    return COMPILE + (CHARACTER_OF_REGIONS * min(len(text), LONG) if regions else CHARACTER * len(text))


def alive_bytes(graph: Graph) -> int:
    """The peak bytes of live intermediate values of an interpreted graph, without regions."""
    read = {node: {_origin(x) for x in node.operands} for node in graph.nodes}
    last = {x: node for node, origins in read.items() for x in origins if x.op}
    peak, now = 0, 0
    for node, origins in read.items():
        result = 0 if is_view(node) else _bytes(_results(node))
        freed = sum([_bytes(_results(x)) for x in origins if last.get(x) is node])
        peak = max(peak, now + result - (min(result, freed) if isinstance(node.form, Map) else 0))
        now += result - freed
    return peak


def _origin(x: GraphNode) -> GraphNode:
    """The value that owns the memory of a value."""
    while is_view(x):
        x = x.operands[0]
    return x


def is_view(node: GraphNode) -> bool:
    """Whether a value has no memory of its own."""
    return (
        node.result_index is not None
        or isinstance(node.form, IdentityForm)
        or (node.op is not None and node.op.aliases)
    )


class Effort:
    """Costs of graphs, each computed once. `spend` counts interpreted graphs, and raises `TooLong` when the budget
    `budget` is exceeded."""

    def __init__(self, budget: float = math.inf):
        self.budget = budget
        self._flat: dict[Graph, float] = {}

    def spend(self, graph: Graph) -> None:
        """Count one interpretation of a graph; its regions are counted separately."""
        self.budget -= self.flat(graph)
        if self.budget < 0:
            raise TooLong

    def flat(self, graph: Graph) -> float:
        """The cost of the ops of a graph, without their regions."""
        result = self._flat.get(graph)
        if result is None:
            result = self._flat[graph] = sum([_of_node(node) for node in graph.nodes])
        return result

    def total(self, graph: Graph) -> float:
        """The cost of interpreting a graph; loops of unknown length count one iteration."""
        return self.flat(graph) + sum([self._regions(node) for node in graph.nodes if node.regions])

    def _regions(self, node: GraphNode) -> float:
        each = [self.total(region) for region in node.regions]
        if isinstance(node.form, Branch):
            return max(each)
        return sum(each) * (dict(node.params)["length"] if isinstance(node.form, Repeat) else 1)


class TooLong(Exception):
    """Interpretation has exceeded its budget."""


def _results(node: GraphNode) -> Any:
    return node.aval if node.is_multi_result else (node.aval,)


def _bytes(avals: tuple[Aval, ...] | ResultAvals) -> int:
    return sum([x.size * x.dtype.itemsize for x in avals])


def _of_node(node: GraphNode) -> float:
    if is_view(node):
        return OP
    results = _results(node)
    read = [_read(x).aval for x in node.operands if not x.is_multi_result]
    if isinstance(node.form, Gather):  # it reads only the gathered elements
        read = read[1:]
    return OP + BYTE * _bytes((*results, *read)) + _of_elements(node, results, read)


def _read(x: GraphNode) -> GraphNode:
    """The array read for a value; a broadcast value reads its smaller base."""
    while x.op is not None and x.op.aliases and x.operands and x.operands[0].aval.size < x.aval.size:
        x = x.operands[0]
    return x


def _of_elements(node: GraphNode, results: Sequence[Aval], read: Sequence[Aval]) -> float:
    """The cost of the arithmetic, without memory traffic."""
    form: Any = node.form
    result = sum([x.size for x in results])
    if isinstance(form, Map) and not isinstance(form, Cast):
        return result * _of_template(form.scalar) * (1.0 if results[0].dtype.itemsize > 4 else 0.5)
    if isinstance(form, Contract):
        rate = PRODUCT if results[0].dtype.kind in "fc" else SLOW_PRODUCT
        return rate * results[0].dtype.itemsize * result * node.operands[0].aval.shape[-1]
    if isinstance(form, FoldForm):
        return REDUCED_ROW * result
    if isinstance(form, Gather):
        return PICKED * result
    if isinstance(form, Scatter):
        return ADDED * read[0].size
    if isinstance(form, Cast | Move) or not read:
        return 0.0
    return (COMPOSED if isinstance(form, Compose) else MULTIPLE_LOOPS) * (result + sum([x.size for x in read]))


@cache
def _of_template(template: str | None) -> float:
    if template is None:
        return MULTIPLE_LOOPS
    names = functions_of(template)
    return sum([DEARER[x] if x in DEARER else CALCULATED * COST[x] for x in names if x in DEARER or x in COST])
