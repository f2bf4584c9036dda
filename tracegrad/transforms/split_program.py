"""Split a function and its derivative into two programs, for `vjp` and `linearize` outside of a trace.

The first program runs the function and returns the residuals with the result. The second program computes the values
that depend on cotangents or tangents. The derivative therefore belongs to the original call, even if outside state has
changed since, and the function does not run again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import Aval, is_literal
from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import Graph, GraphNode, replay, to_text
from tracegrad.ir.builder import sliced
from tracegrad.locks import cached_property
from tracegrad.ops.shape.linear import broadcast_to
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.builder.facts import TraceFact
from tracegrad.trace.builder.value_guards import ValueGuard
from tracegrad.trace.driver.region import emitted
from tracegrad.trace.sources.describe import describe
from tracegrad.transforms import jvp_function, vjp_function
from tracegrad.transforms.flat_function import FlatCall, inlined
from tracegrad.transforms.partition import between, partition

if TYPE_CHECKING:
    from tracegrad.typing import Array


Function = Callable[..., Any]


class DerivativeProgram:
    """The second program: from residuals, and tangents or a cotangent, to the derivative, which has a `structure`.
    `outputs` gives the required structure and leaf avals of a cotangent. The graph is built on first use."""

    def __init__(
        self,
        graph: Callable[[], Graph],
        name: str,
        structure: tree.TreeDef,
        outputs: tuple[tree.TreeDef, tuple[Aval, ...]] | None = None,
        label: str = "",
    ):
        self._graph, self.structure, self.outputs, self.label = functools.cache(graph), structure, outputs, label
        self.__name__ = self.__qualname__ = name
        self.function: Any = None  # its traced function, created on first use (`api`)

    @property
    def graph(self) -> Graph:
        """The graph of the program."""
        return self._graph()

    @cached_property
    def text(self) -> str:
        """The text of the graph."""
        return to_text(self.graph)

    def __call__(self, residuals: list[Array], moving: object) -> Any:
        operands = [*residuals, *self._moved(moving)]
        if current_trace() is not None:
            result = emitted(self.graph, operands)
        else:
            result = replay(self.graph, [np.asarray(x) if is_literal(x) else x for x in operands])[0]
        return tree.unflatten(self.structure, result)

    def _moved(self, moving: Any) -> list[Array]:
        """The checked leaves of the tangents or of the cotangent."""
        if self.outputs is None:
            return [*moving]
        return [ct for ct in vjp_function.cotangents(*self.outputs, moving, self.label) if ct is not None]


class TapeDerivative:
    """As `DerivativeProgram`, for a call that ran as plain Python: the derivative is on the tape."""

    def __init__(self, function: Function):
        self.function = lambda residuals, moving: function(moving)


def pulled(fun: Function, has_aux: bool) -> Function:
    """The function from primals to the result of `fun`, the residuals of its pullback, and the pullback."""
    reads_values: list[bool] = []  # nonempty if a user rule reads the value of a cotangent, or writes outside

    def first(primals: Any) -> Any:
        builder = current_trace()
        if builder is None:
            out, pull, aux = vjp_function.pull_back(fun, primals, has_aux)
            return ((out, aux) if has_aux else out), [], TapeDerivative(pull)
        result, saved, half = _pulled(builder, fun, primals, has_aux, bool(reads_values))
        if half is None and not reads_values:
            reads_values.append(True)
            raise builder.restarts(TraceFact.AGAIN)
        return result, saved, half

    return first


def pulled_again(fun: Function, has_aux: bool) -> Function:
    """The function from primals and a cotangent to the cotangents of the primals, which runs `fun` again."""
    return lambda primals, cotangent: vjp_function.pull_back(fun, primals, has_aux)[1](cotangent)


def linearized(fun: Function, has_aux: bool) -> Function:
    """The function from primals to the output of `fun`, aux, the residuals, and the linear function. The latter maps
    residuals and tangents to the output's tangent."""

    def first(primals: tuple[Array, ...]) -> Any:
        label, builder = describe(fun, "linearize of "), current_trace()
        point = jvp_function.LinearizationPoint(primals, label)
        out, push, aux = jvp_function.linear(fun, point, has_aux)
        if builder is None:
            return out, aux, [], TapeDerivative(push)
        tangents = [builder.cotangent(builder.lift(x)) for x in point.moving]
        with _separate_nodes(builder, tangents) as guards:
            result, structure = tree.flatten(push(tangents))
        if guards:
            text = f"{guards[0].query} of a tangent of {label}, which is not known when the rule runs"
            raise UnsupportedError(located(text, guards[0].location))
        both = _between(builder, tangents, result)
        moved = both.inputs[len(both.inputs) - len(tangents) :]
        graph, nodes = between(both, _residual_choices(both, moved), moved, both.outputs)
        half = DerivativeProgram(lambda: graph, label.name, structure)
        return out, aux, [builder.value(x) for x in nodes], half

    return first


def _pulled(
    builder: TraceBuilder, fun: Function, primals: Any, has_aux: bool, reads_values: bool
) -> tuple[Any, list[Any], DerivativeProgram | None]:
    """In a trace: the result of `fun`, the residuals, and its pullback; without a pullback, the primals are the
    residuals."""
    label, results = describe(fun, "vjp of "), []

    def call(*args: Any) -> Any:
        results.append(inlined(fun)(*args))
        return results[-1]

    arguments = vjp_function.VjpArguments(primals, range(len(primals)), label)
    initial = [builder.lift(x).node for x in arguments.leaves]
    flat = FlatCall(call, arguments, label, has_aux)
    values, pullback = vjp_function.traced_vjp(flat, arguments.leaves)
    if reads_values:
        saved = [x if x.weak else builder.value(node) for x, node in zip(arguments.leaves, initial)]
        return results[0], saved, None
    avals = [Aval(x.shape, x.dtype) for x in flat.split(values)[0]]
    cts = [builder.cotangent(builder.lift(x)) if x.dtype.kind in "fc" else None for x in values[: len(avals)]]
    moving = [ct for ct in cts if ct is not None]
    done = builder.world.writes.written_locations()
    with _separate_nodes(builder, moving) as guards:
        result = pullback(cts)
    if guards or builder.world.writes.written_locations() != done:
        return results[0], [], None
    both = _between(builder, moving, result)
    _, graph, nodes = partition(both, len(both.inputs) - len(moving), 0, both.inputs)
    outputs = flat.structure, tuple(avals)
    half = DerivativeProgram(lambda: graph, label.name, tree.structure(primals), outputs, str(label))
    return results[0], [builder.value(x) for x in nodes], half


@contextmanager
def _separate_nodes(builder: TraceBuilder, moving: Sequence[Any]) -> Iterator[list[ValueGuard]]:
    """Record nodes that belong to the other program, which finds out whether they raise (context manager). Yields the
    guards that depend on `moving`."""
    raising, count = list(builder.raising), len(builder.guards)
    dependents: list[ValueGuard] = []
    yield dependents
    nodes = {x.node for x in moving}
    late = [guard for guard in builder.guards[count:] if guard.node.depends_on(nodes)]
    dependents += [guard for guard in late if guard.unless_raises is None]
    builder.raising = raising
    builder.guards[:] = [guard for guard in builder.guards if guard not in late]


def _between(builder: TraceBuilder, moving: Sequence[Any], outputs: Sequence[Any]) -> Graph:
    """The recorded nodes as a graph from the inputs and `moving` to `outputs`."""
    inputs = [*builder.inputs, *(c.node for c in builder.captures.values())]
    return sliced([*inputs, *(x.node for x in moving)], builder.nodes, [builder.lift(x).node for x in outputs])


def _residual_choices(graph: Graph, moved: Sequence[GraphNode]) -> list[GraphNode]:
    """The values that depend on no tangent and are not fills."""
    late = graph.dependents(moved)
    early = [
        x for x in graph.nodes if x not in late and x.operands and x.op is not broadcast_to and not x.is_multi_result
    ]
    return [*(x for x in graph.inputs if x not in late), *early]
