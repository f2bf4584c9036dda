"""Flatten user functions for transforms: record flat calls, and find the sub-tape that depends on arguments.

A flat function takes arrays and returns a list of arrays. Inside a trace it is called on fresh copies of its arguments
(`fresh`), so that an inner derivative is not confused with an outer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tracegrad import ad, tree
from tracegrad.avals import LITERALS, is_literal
from tracegrad.errors import located
from tracegrad.ir import GraphNode
from tracegrad.ir.builder import node_of
from tracegrad.numpy_api.faces import represented_type
from tracegrad.ops import Carrier, TapeCarrier
from tracegrad.ops.core.dispatch import TensorCarrier
from tracegrad.ops.core.op import dispatch_operand
from tracegrad.ops.shape.linear import fresh, full
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.sources.describe import Description
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.text_conversions import require_none_read
from tracegrad.trace.values.tracer import Tracer
from tracegrad.trace.world.memoized_results import require_not_remembered
from tracegrad.transforms.container_writeback import ContainerCopies

if TYPE_CHECKING:
    from tracegrad.typing import Array


FlatFunction = Callable[..., Sequence[Any]]


class LeafArguments(Protocol):
    """The arguments of a call, with leaves that a transform replaces."""

    @property
    def args(self) -> Sequence[Any]:
        """All arguments by position."""

    def replaced(self, leaves: Sequence[Array]) -> Sequence[Any]:
        """All arguments, with these leaves."""


# -- in a trace --------------------------------------------------------------------------------------------------------
def on_tape(primals: Sequence[Any]) -> bool:
    """Whether derivatives at these primals are taken on the eager tape, and not in the current trace."""
    return current_trace() is None or any(isinstance(x, TapeCarrier) for x in primals)


def recorded(fn: FlatFunction, primals: Sequence[Any]) -> tuple[TraceBuilder, list[Tracer], list[Any]]:
    """`fn` in the current trace: its builder, the copies of the primals that `fn` was called on, and the outputs."""
    builder = current_trace()
    assert builder is not None
    outside = [full(shape=(), value=x, dtype="float64") if type(x) is float else x for x in primals]
    operands = [builder.lift(x) for x in outside]
    inside = [_copied(builder, x, type(primal) is float) for x, primal in zip(operands, primals)]
    nodes, start, n_guards = [x.node for x in inside], len(builder.nodes), len(builder.guards)
    try:
        with builder.differentiating(nodes):
            # A Tensor counts as its array, because its tape is no part of this derivative.
            outputs = [builder.lift(x.array if isinstance(x, TapeCarrier) else x) for x in fn(*inside)]
            if builder.text_numbers:
                require_none_read(builder, start, outputs)
            if len(builder.guards) > n_guards:
                require_not_remembered(builder, n_guards, outputs)
    except Exception:
        _write_back(builder, operands, inside, nodes)
        raise
    new = builder.rolled([x.node for x in outputs if not is_literal(x)], start)
    for x in outputs:
        if not is_literal(x):
            x.node = new.get(x.node, x.node)
    _write_back(builder, operands, inside, nodes)
    copies = [copy if copy.weak else _unchanged(copy, node) for copy, node in zip(inside, nodes)]
    return builder, copies, outputs


def _write_back(
    builder: TraceBuilder, originals: Sequence[Any], inside: Sequence[Tracer], nodes: Sequence[GraphNode]
) -> None:
    """Write changes that a function made to its arguments `inside` back to the original arguments."""
    for x, copy, node in zip(originals, inside, nodes):
        if copy.node is not node:
            x._assign(builder.value(copy.node))


def _copied(builder: TraceBuilder, x: Any, is_number: bool) -> Tracer:
    node = node_of(fresh(x, tag=builder.new_tag()))
    value = (Number if is_number or x.weak else Tracer)(builder, node)
    value.frozen, value.is_array = x.frozen, x.is_array
    value.share_layout(x)
    return value


def _unchanged(x: Tracer, node: GraphNode) -> Tracer:
    """`x` with its value at this node."""
    value = Tracer(x.builder, node)
    value.is_array = x.is_array
    return value


def dependent_nodes(
    nodes: Sequence[GraphNode], inputs: Sequence[GraphNode], outputs: Sequence[GraphNode]
) -> list[GraphNode]:
    """The nodes that depend on `inputs` and that `outputs` need, in order."""
    needed, result, ahead = set(outputs), [], set(inputs)
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.operands)
            result.append(node)
        if node in ahead:
            ahead.remove(node)
            if not ahead:  # no earlier node depends on an input
                break
    dependent, ordered = set(inputs), []
    for node in reversed(result):
        if node in dependent or not dependent.isdisjoint(node.operands):
            dependent.add(node)
            ordered.append(node)
    return ordered


class _Values(dict[GraphNode, Any]):
    """The values of nodes, each created on first use."""

    def __init__(self, builder: TraceBuilder):
        self.builder = builder

    def __missing__(self, node: GraphNode) -> Any:
        result = self[node] = self.builder.value(node)
        return result


class Tape:
    """Tape entries; iteration in either direction sets the builder's user line to the line of each.

    User code does not see the memory of values computed by a sweep, except in user-defined rules.
    """

    def __init__(self, builder: TraceBuilder, nodes: Sequence[GraphNode]):
        self.builder, self.nodes = builder, [node for node in nodes if node.result_index is None]
        self._value = _Values(builder).__getitem__
        self.entries = [self._entry(node) for node in self.nodes]

    def _entry(self, node: GraphNode) -> ad.Entry:
        assert node.op is not None
        params = dict(node.params)
        # All rules share one value of a node, except user-defined rules, which may update it in place.
        value = self.builder.value if "rule" in params else self._value
        operands = tuple([x if type(x) in LITERALS else value(x) for x in node.inputs])
        return self.builder.valued(node) if node.is_multi_result else value(node), node.op, operands, params

    def __iter__(self) -> Iterator[ad.Entry]:
        return self._located(range(len(self.nodes)))

    def __reversed__(self) -> Iterator[ad.Entry]:
        return self._located(range(len(self.nodes) - 1, -1, -1))

    def _located(self, order: range) -> Iterator[ad.Entry]:
        for k in order:
            self.builder.location = self.nodes[k].location
            self.builder.makes_views = "rule" in self.entries[k][3]
            yield self.entries[k]

    def swept(self, sweep: Callable[..., object], *args: object, **kwargs: object) -> Any:
        """The result of a sweep of this tape; the builder's user line is restored."""
        before = self.builder.location, self.builder.makes_views, self.builder.sweeping
        try:
            self.builder.sweeping = True
            return sweep(self, *args, **kwargs, key=node_of)
        finally:
            self.builder.location, self.builder.makes_views, self.builder.sweeping = before


def inlined(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The callable to run instead of a user function: inside a trace, the one that records it."""
    trace = current_trace()
    if trace is None:
        return fun
    recording: Callable[..., Any] = trace.world.inline(fun)
    return recording


def calling(fun: Callable[..., object]) -> Callable[..., Any]:
    """A function of tracegrad that calls the user function `fun`."""
    return lambda *args, **kwargs: inlined(fun)(*args, **kwargs)


# -- results -----------------------------------------------------------------------------------------------------------
class FlatCall:
    """A function of leaves, which returns the outputs of `fun` and then the arrays of its auxiliary results.

    `fun` is called directly; wrap a user function by `calling`.
    """

    def __init__(self, fun: Callable[..., Any], arguments: Any, label: Description, has_aux: bool):
        self.fun, self.arguments, self.label, self.has_aux = fun, arguments, label, has_aux
        self.structure: Any = None
        self.aux: Any = None

    def __call__(self, *leaves: Array) -> Any:
        args = self.arguments.replaced(leaves)
        copies = ContainerCopies(self.arguments.args, args)
        try:
            result = self.fun(*args)
        finally:
            copies.write_back()
        out, self.aux = pair(result, self.label) if self.has_aux else (result, None)
        outputs, self.structure = tree.flatten(out)
        results = [output(x, self.label) for x in outputs]
        return results if self.aux is None else results + [x for x in tree.leaves(self.aux) if isinstance(x, Carrier)]

    def split(self, values: list[Array]) -> tuple[list[Any], Any]:
        """Split a result of this function into the outputs and the auxiliary results."""
        if self.aux is None:
            return list(values), None
        count = self.structure.num_leaves
        supply = iter(values[count:])
        return list(values[:count]), tree.map(lambda x: next(supply) if isinstance(x, Carrier) else x, self.aux)


def as_tensors(values: Sequence[Any], among: list[Array]) -> Any:
    """Convert `values`, results for arguments with the leaves `among`, to Tensors if any leaf is one."""
    peer: Any = dispatch_operand([x for x in [*among, *values] if isinstance(x, TensorCarrier)])
    if peer is None:
        return list(values)
    return [x if x is None or isinstance(x, TapeCarrier) else peer._lift(x) for x in values]


def output(x: Array, label: Description) -> Array:
    """`x` as an array; it must be an array or a number."""
    if is_literal(x):
        x = np.asarray(x)[()]
    if not is_array(x):
        raise TypeError(located(f"{label}: the outputs must be arrays, got {type_text(x)}"))
    return x


def pair(result: object, label: Description) -> tuple[Any, Any]:
    """`result`, which must be a pair."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(
            located(f"{label}: with has_aux=True the function must return a pair (value, aux), got {type_text(result)}")
        )
    return result


def is_array(x: Any) -> bool:
    return isinstance(x, Carrier | np.ndarray | np.generic)


def type_text(x: object) -> str:
    """The name of a value without a location, for messages."""
    cls = represented_type(x) if isinstance(x, Tracer) else type(x)
    return f"a {cls.__name__}" + (f" of {len(x)}" if isinstance(x, tuple | list | dict) else "")
