"""Interpret a graph: apply its ops in order to ndarrays or other carriers (reference interpreter)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from tracegrad.ad import Entry
from tracegrad.avals import LITERALS, is_literal
from tracegrad.errors import TracegradError, located
from tracegrad.ir.builder import Builder, recorder
from tracegrad.ir.graph import Graph, GraphNode
from tracegrad.ops.core.op import Carrier, bind
from tracegrad.utils.errstate import QUIET, restore_traps, set_traps, traps


class _ReplayObservers(threading.local):
    """Per-thread observers of replays: `by` gets each graph before its replay; `after` gets the graph, its operands and
    its outputs."""

    by: Callable[[Graph], None] | None = None
    after: Callable[[Graph, Sequence[Any], Sequence[Any]], None] | None = None


WATCHED = _ReplayObservers()


def replay(graph: Graph, operands: Sequence[Any]) -> tuple[list[Any], list[Entry]]:
    """Apply the graph's ops to `operands`, ndarrays or values of a builder. Returns the outputs and the tape.

    An error raised by an op names the user's line that the node comes from.
    """
    builder = recorder() if any(isinstance(x, Carrier) for x in operands) else None
    if WATCHED.by is not None:
        WATCHED.by(graph)
    env: dict[GraphNode, Any] = dict(zip(graph.inputs, operands))
    tape: list[Entry] = []
    for node in graph.nodes:
        assert node.op is not None
        if node.result_index is not None:
            env[node] = env[node.operands[0]][node.result_index]
            continue
        args = tuple([x if type(x) in LITERALS else env[x] for x in node.inputs])
        params = dict(node.params)
        env[node] = applied(node, args, params, builder)
        tape.append((env[node], node.op, args, params))
    outputs = [env[x] for x in graph.outputs]
    if WATCHED.after is not None:
        WATCHED.after(graph, operands, outputs)
    return outputs, tape


def replayer(graph: Graph) -> Callable[[Sequence[Any]], list[Any]]:
    """A function that replays the graph repeatedly. It resolves the dispatch of each node once for ndarrays."""
    literals = [x for node in graph.nodes for x in node.inputs if is_literal(x)]
    begin = len(graph.inputs) + len(literals)
    positions = {x: k for k, x in enumerate(graph.inputs)} | {x: begin + k for k, x in enumerate(graph.nodes)}
    supply = iter(range(len(graph.inputs), begin))  # positions of the literals
    args = [_selector([next(supply) if is_literal(x) else positions[x] for x in node.inputs]) for node in graph.nodes]
    steps = [(select_args, *_function(node)) for select_args, node in zip(args, graph.nodes)]
    wanted = _selector([positions[x] for x in graph.outputs])

    def replay_once(operands: Sequence[Any]) -> list[Any]:
        if recorder() is not None or WATCHED.after or not all([type(x) is np.ndarray for x in operands]):  # noqa: C419
            return replay(graph, operands)[0]
        if WATCHED.by is not None:
            WATCHED.by(graph)
        values, before = [*operands, *literals], traps()
        try:
            set_traps(QUIET)
            for select_args, function, params in steps:
                result = function(*select_args(values), **params)
                if result.__class__ is not np.ndarray:
                    result = tuple(map(np.asarray, result)) if isinstance(result, tuple) else np.asarray(result)
                values.append(result)
        except (ArithmeticError, LookupError, ValueError) as error:
            located_error = _located_error(error, graph.nodes[len(values) - begin])
            if located_error is None:
                raise
            raise located_error from error
        finally:
            restore_traps(before)
        return list(wanted(values))

    return replay_once


def _function(node: GraphNode) -> tuple[Callable[..., object], dict[str, object]]:
    """The function that computes a node of ndarrays and literals, and its parameters."""
    assert node.op is not None
    return (node.op.impl, dict(node.params)) if node.result_index is None else (itemgetter(node.result_index), {})


def _selector(positions: Sequence[int]) -> Callable[[list[Any]], Iterable[Any]]:
    """A function that selects the values at these positions of a list."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return itemgetter(slice(positions[0], positions[0] + 1) if positions else slice(0))


def applied(
    node: GraphNode,
    args: tuple[object, ...],
    params: dict[str, Any],
    builder: Builder | None,
    apply: Callable[..., object] = bind,
) -> Any:
    """Apply the op of a node to values, by `apply(op, args, params)`; a `builder`, unless None, records it."""
    assert node.op is not None
    if builder is not None:
        builder.location = node.location
        if not node.operands:
            return builder.emit(node.op, args, params)
    try:
        return apply(node.op, args, params)
    except (ArithmeticError, LookupError, ValueError) as error:
        located_error = _located_error(error, node)
        if located_error is None:
            raise
        raise located_error from error


def _located_error(error: Exception, node: GraphNode) -> Exception | None:
    """The error with the user's line of the node; None if the line is unknown, or already in the error."""
    if isinstance(error, TracegradError) or not node.location:
        return None
    return type(error)(located(f"{node.name}: {error}", node.location))


def evaluate(wanted: GraphNode, computed: dict[GraphNode, Any]) -> Any:
    """Evaluate a node, and the nodes it depends on, by NumPy; `computed` has the inputs, and caches the results."""
    stack = [wanted]
    while stack:
        node = stack[-1]
        missing = [x for x in node.operands if x not in computed]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if node not in computed:
            assert node.op is not None
            args = [x if is_literal(x) else computed[x] for x in node.inputs]
            with np.errstate(all="ignore"):
                result = node.op.impl(*args, **dict(node.params))
            computed[node] = tuple(map(np.asarray, result)) if node.is_multi_result else np.asarray(result)
    return computed[wanted]


def run(graph: Graph, arrays: Sequence[object]) -> list[np.ndarray[Any, Any]]:
    """The outputs of the graph for ndarrays, computed op by op by NumPy (reference interpreter)."""
    return replay(graph, [np.asarray(x) for x in arrays])[0]
