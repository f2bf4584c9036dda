"""A function and its derivative in two programs: what `vjp` and `linearize` do outside of a trace.

The first runs the function, and gives beside its result what the derivative reads of it; the second computes what
cotangents, or tangents, have a part in. So the derivative is that of the call, whatever has changed since then, and the
function is not run again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import Aval, is_literal
from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import Graph, Node, replay, to_text
from tracegrad.ir.builder import sliced
from tracegrad.locks import cached_property
from tracegrad.ops.shape.linear import broadcast_to
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.builder.value_guards import ValueGuard
from tracegrad.trace.driver.region import emitted
from tracegrad.trace.sources.describe import describe
from tracegrad.transforms import jvp_function as forward
from tracegrad.transforms import vjp_function as reverse
from tracegrad.transforms.flat_function import FlatCall, inlined
from tracegrad.transforms.partition import between, partition

__all__ = ["Half", "linearized", "pulled", "pulled_again"]

Function = Callable[..., Any]


class Half:
    """The second program: from what was kept, and tangents or a cotangent, to the derivative, which has a `structure`.
    Of a cotangent `outputs` says what it has to be: a structure, and the avals of its leaves. The graph is given, or
    made when it is needed."""

    def __init__(
        self, graph: Callable[[], Graph], name: str, structure: tree.TreeDef,
        outputs: tuple[tree.TreeDef, tuple[Aval, ...]] | None = None, label: str = "",
    ):  # fmt: skip
        self._graph, self.structure, self.outputs, self.label = functools.cache(graph), structure, outputs, label
        self.__name__ = self.__qualname__ = name
        self.function: Any = None  # what is called in its place, once it is made

    @property
    def graph(self) -> Graph:
        """What it computes."""
        return self._graph()

    @cached_property
    def text(self) -> str:
        """The text of the graph."""
        return to_text(self.graph)

    def __call__(self, kept: Sequence[Any], moving: Any) -> Any:
        operands = [*kept, *self._moved(moving)]
        if current_trace() is not None:
            found = emitted(self.graph, operands)
        else:
            found = replay(self.graph, [np.asarray(x) if is_literal(x) else x for x in operands])[0]
        return tree.unflatten(self.structure, found)

    def _moved(self, moving: Any) -> list[Any]:
        """The leaves of what is given, checked."""
        if self.outputs is None:
            return [*moving]
        return [ct for ct in reverse.cotangents(*self.outputs, moving, self.label) if ct is not None]


class Now:
    """As a `Half`, of a call that ran as plain Python: the derivative is on the tape."""

    def __init__(self, function: Function):
        self.function = lambda kept, moving: function(moving)


def pulled(fun: Function, has_aux: bool) -> Function:
    """The function from primals to what `fun` returns, what is kept for its pullback, and that."""
    looks: list[bool] = []  # whether a rule of the user's asks for the value of a cotangent, or changes something

    def first(primals: Any) -> Any:
        builder = current_trace()
        if builder is None:
            out, pull, aux = reverse.pull_back(fun, primals, has_aux)
            return ((out, aux) if has_aux else out), [], Now(pull)
        result, kept, half = _pulled(builder, fun, primals, has_aux, bool(looks))
        if half is None and not looks:
            looks.append(True)
            raise builder.restarts()
        return result, kept, half

    return first


def pulled_again(fun: Function, has_aux: bool) -> Function:
    """The function from primals and a cotangent to the cotangents of the primals, for which `fun` runs again."""
    return lambda primals, cotangent: reverse.pull_back(fun, primals, has_aux)[1](cotangent)


def linearized(fun: Function, has_aux: bool) -> Function:
    """The function from primals to the output of `fun`, aux, what is kept for the function from tangents (of the leaves
    that can move) to its tangent, and that."""

    def first(primals: Any) -> Any:
        who, builder = describe(fun, "linearize of "), current_trace()
        point = forward.Point(primals, who)
        out, push, aux = forward.linear(fun, point, has_aux)
        if builder is None:
            return out, aux, [], Now(push)
        tangents = [builder.cotangent(builder.lift(x)) for x in point.moving]
        with _apart(builder, tangents) as asked:
            found, structure = tree.flatten(push(tangents))
        if asked:
            text = f"{asked[0].asked} of a tangent of {who}, which is not known when the rule runs"
            raise UnsupportedError(located(text, asked[0].location))
        both = _between(builder, tangents, found)
        moved = both.inputs[len(both.inputs) - len(tangents) :]
        graph, nodes = between(both, _kept(both, moved), moved, both.outputs)
        half = Half(lambda: graph, who.name, structure)
        return out, aux, [builder.value(x) for x in nodes], half

    return first


def _pulled(
    builder: TraceBuilder, fun: Function, primals: Any, has_aux: bool, looks: bool
) -> tuple[Any, list[Any], Half | None]:
    """In a trace: what `fun` returns, what is kept, and its pullback; without one, the primals are kept."""
    who, results = describe(fun, "vjp of "), []

    def call(*args: Any) -> Any:
        results.append(inlined(fun)(*args))
        return results[-1]

    arguments = reverse.Arguments(primals, range(len(primals)), who)
    begun = [builder.lift(x).node for x in arguments.leaves]
    flat = FlatCall(call, arguments, who, has_aux)
    values, pullback = reverse.traced_vjp(flat, arguments.leaves)
    if looks:
        kept = [x if x.weak else builder.value(node) for x, node in zip(arguments.leaves, begun)]
        return results[0], kept, None
    avals = [Aval(x.shape, x.dtype) for x in flat.split(values)[0]]
    cts = [builder.cotangent(builder.lift(x)) if x.dtype.kind in "fc" else None for x in values[: len(avals)]]
    moving = [ct for ct in cts if ct is not None]
    done = builder.world.writes.places()
    with _apart(builder, moving) as asked:
        found = pullback(cts)
    if asked or builder.world.writes.places() != done:
        return results[0], [], None
    both = _between(builder, moving, found)
    _, graph, nodes = partition(both, len(both.inputs) - len(moving), 0, both.inputs)
    outputs = flat.structure, tuple(avals)
    half = Half(lambda: graph, who.name, tree.structure(primals), outputs, str(who))
    return results[0], [builder.value(x) for x in nodes], half


@contextmanager
def _apart(builder: TraceBuilder, moving: Sequence[Any]) -> Iterator[list[ValueGuard]]:
    """While what is recorded belongs to the other program: whether it raises is found out there. Gives the questions
    for values that `moving` has a part in."""
    raising, count = list(builder.raising), len(builder.guards)
    asked: list[ValueGuard] = []
    yield asked
    nodes = {x.node for x in moving}
    late = [guard for guard in builder.guards[count:] if guard.node.depends_on(nodes)]
    asked += [guard for guard in late if guard.unless_raises is None]
    builder.raising = raising
    builder.guards = [guard for guard in builder.guards if guard not in late]


def _between(builder: TraceBuilder, moving: Sequence[Any], found: Sequence[Any]) -> Graph:
    """What has been recorded, as a graph from the inputs and what is `moving` to what was `found`."""
    inputs = [*builder.inputs, *(c.node for c in builder.captures.values())]
    return sliced([*inputs, *(x.node for x in moving)], builder.nodes, [builder.lift(x).node for x in found])


def _kept(graph: Graph, moved: Sequence[Node]) -> list[Node]:
    """The values that no tangent has a part in, and that are more than one number repeated."""
    late = set(moved)
    for node in graph.nodes:
        if not late.isdisjoint(node.operands):
            late.add(node)
    early = [x for x in graph.nodes if x not in late and x.operands and x.op is not broadcast_to and not x.several]
    return [*(x for x in graph.inputs if x not in late), *early]
