"""Rewrite a graph in one replay, with a hook that may replace each op application by a simpler value.

A *hook* is the `simplify` of a `Builder`: `hook(op, operands, params)` returns a value, or None to leave the
application unchanged. The ops that a hook emits pass through the hook again, so one replay reaches the normal form
bottom-up. Unchanged nodes are reused; equal nodes are merged, and dead nodes are dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.errors import VerifyError
from tracegrad.ir import Builder, Graph, GraphNode, GraphValue, Value
from tracegrad.ir.builder import recording
from tracegrad.ir.graph import map_regions
from tracegrad.ops.core.forms import Repeat, While
from tracegrad.ops.core.op import Op
from tracegrad.ops.core.result import result
from tracegrad.ops.elementwise.table import add
from tracegrad.ops.shape.linear import reshape, transpose

Hook = Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]
Finish = Callable[[Graph, set[GraphNode]], Graph]


class Rewriter(Builder):
    """Builder that copies the nodes of another graph, and knows which of them have several users.

    `free` are sums whose terms may be added in any order; after the replay, `finish` takes the graph and the sums.
    `repeated` says that the graph runs repeatedly, as the body of a loop. If there are `forms`, the hook is only
    called for ops of one of these forms.
    """

    def __init__(
        self,
        graph: Graph,
        hook: Hook,
        finish: Finish | None = None,
        repeated: bool = False,
        forms: tuple[type, ...] = (),
    ):
        super().__init__(hook)
        self.hook, self.finish, self.repeated, self.forms = hook, finish, repeated, forms or (object,)
        self.free: set[GraphNode] = set()
        self.inputs = list(graph.inputs)
        # Inputs that another input replaces in the next iteration of a loop, for example if two arrays are swapped.
        known = set(graph.inputs)
        self.swapped = {x for x, y in zip(graph.inputs, graph.outputs) if y in known and y is not x}
        self.uses = Counter([*graph.outputs, *[x for node in graph.nodes for x in node.inputs]])
        self.shared: set[GraphNode] = {x for x in graph.inputs if self.uses[x] > 1}
        self.moved: dict[GraphNode, Any] = {}
        self.used: dict[GraphNode, list[int]] = {}  # the used results of multi-result ops
        for node in graph.nodes:
            if node.result_index is not None:
                self.used.setdefault(node.operands[0], []).append(node.result_index)

    def move(self, node: GraphNode) -> None:
        """Rebuild `node`, or reuse it."""
        op, params = node.op, node.params
        assert op is not None
        get = self.moved.get
        inputs = tuple([get(x, x) for x in node.inputs]) if self.moved else node.inputs
        if node.result_index is not None:
            self.pick(node, inputs, node.result_index)
            return
        if node.regions:
            often = self.repeated or isinstance(op.form, Repeat | While)
            params = map_regions(params, lambda region: rewrite(region, self.hook, self.finish, often, self.forms))
        self.location = node.location
        simpler = None
        if node.is_multi_result or isinstance(op.form, self.forms):
            operands = tuple([x if type(x) in LITERALS else GraphValue(self, x) for x in inputs])
            if node.is_multi_result and self.use_result_rule(node, operands):
                return
            simpler = self.hook(op, operands, dict(params))
        if simpler is not None:
            is_multi = type(simpler) is tuple
            new: Any = tuple([self.lift(x).node for x in simpler]) if is_multi else self.lift(simpler).node
            aval = tuple([x.aval for x in new]) if is_multi else new.aval
            if aval != node.aval:
                raise VerifyError(f"a rewrite of {node.name} turned {node.aval} into {aval}")
        elif inputs == node.inputs and params is node.params:
            new = self.number(op, inputs, params, node)
        else:
            # A replacement has the aval of its node, so the aval of the result is known without a shape rule.
            again = (
                node.of(inputs) if params is node.params else GraphNode(op, inputs, params, node.aval, node.location)
            )
            new = self.number(op, inputs, params, again)
        if new is not node or self.uses[node] > 1:
            self.record_replacement(node, new)

    def pick(self, node: GraphNode, inputs: tuple[object, ...], k: int) -> None:
        """Rebuild `node`, result `k` of an op with several results, from its value in `inputs`."""
        whole = inputs[0]
        if type(whole) is tuple:
            self.record_replacement(node, whole[k])
        else:
            known = node if inputs == node.inputs else None
            self.record_replacement(node, self.number(result, inputs, node.params, known))

    def use_result_rule(self, node: GraphNode, operands: tuple[object, ...]) -> bool:
        """Whether only one result of `node` is used and has a rule of its own, which then replaces the node."""
        assert node.op is not None
        used = self.used.get(node, [])
        rule = node.op.result_rules.get(used[0]) if len(used) == 1 else None
        if rule is None:
            return False
        (k,) = used
        result = self.lift(rule(*operands, **dict(node.params))).node
        aval: Any = node.aval
        if result.aval != aval[k]:
            raise VerifyError(f"a rewrite of {node.name} turned {aval[k]} into {result.aval}")
        self.record_replacement(node, tuple([result if i == k else None for i in range(len(aval))]))
        return True

    def record_replacement(self, node: GraphNode, new: object) -> None:
        """Record `new` as the replacement of `node`; a tuple for an op with several results."""
        if new is not node:
            self.moved[node] = new
        if self.uses[node] > 1 and type(new) is GraphNode:
            self.shared.add(new)

    def run(self, graph: Graph) -> Graph:
        """Rebuild all nodes of `graph`."""
        with recording(self), np.errstate(all="ignore"):
            for node in graph.nodes:
                self.move(node)
        built = self.build([GraphValue(self, self.moved.get(x, x)) for x in graph.outputs])
        return self.finish(built, self.free) if self.finish is not None and self.free else built


def rewrite(
    graph: Graph, hook: Hook, finish: Finish | None = None, repeated: bool = False, forms: tuple[type, ...] = ()
) -> Graph:
    """`graph` with `hook` applied to every application, or to the ops of these `forms`, operands first."""
    return Rewriter(graph, hook, finish, repeated, forms).run(graph)


# -- queries of values for hooks ---------------------------------------------------------------------
def node_of(x: Value) -> GraphNode | None:
    """The node of a value; None for a literal."""
    return x.node if isinstance(x, GraphValue) else None


def producer(x: Value) -> Op | None:
    """The op that computes `x`; None for literals and inputs."""
    return x.node.op if isinstance(x, GraphValue) else None


def operand(x: GraphValue, i: int = 0) -> Any:
    """Operand `i` of the op that computes `x`."""
    result = x.node.inputs[i]
    return x.builder.value(result) if isinstance(result, GraphNode) else result


def source(x: Any) -> Any:
    """The value below the reshapes of `x`."""
    while producer(x) is reshape:
        x = operand(x)
    return x


def swaps(x: Value) -> bool:
    """Whether `x` is a matrix transpose."""
    if not isinstance(x, GraphValue) or x.node.op is not transpose:
        return False
    ndim = len(x.shape)
    return bool(dict(x.node.params)["perm"] == (*range(ndim - 2), ndim - 1, ndim - 2))


def shared(x: GraphValue) -> bool:
    """Whether `x` is known to have users other than the current application."""
    return x.node in getattr(x.builder, "shared", ())


def in_loop(x: GraphValue) -> bool:
    """Whether `x` is computed repeatedly, in the body of a loop."""
    return bool(getattr(x.builder, "repeated", False))


def is_free(x: GraphValue) -> bool:
    """Whether `x` is a sum of two terms that may be added in any order."""
    return producer(x) is add and x.node in getattr(x.builder, "free", ())


def mark_free(x: GraphValue) -> None:
    """Note that the terms of the sum `x` may be added in any order."""
    free: set[GraphNode] = getattr(x.builder, "free", set())
    free.add(x.node)
