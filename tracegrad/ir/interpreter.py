"""The meaning of a graph: apply its ops, one after the other, to whatever carries the values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from tracegrad.ad import Entry
from tracegrad.avals import LITERALS, is_literal
from tracegrad.errors import TracegradError, located
from tracegrad.ir.builder import recorder
from tracegrad.ir.graph import Graph, Node
from tracegrad.ops.core.op import Carrier, bind
from tracegrad.utils.errstate import QUIET, restore_traps, set_traps, traps

__all__ = ["WATCHED", "applied", "evaluate", "replay", "run", "turns"]


class _Watched(threading.local):
    """Who is told, in this thread, of each graph that is about to be replayed; and, `after` that, of its operands and
    outputs too."""

    by: Callable[[Graph], None] | None = None
    after: Callable[[Graph, Sequence[Any], Sequence[Any]], None] | None = None


WATCHED = _Watched()


def replay(graph: Graph, operands: Sequence[Any]) -> tuple[list[Any], list[Entry]]:
    """Apply the graph's ops to `operands`, ndarrays or values of a builder. Returns the outputs and the tape.

    An error raised by an op names the user's line that the node comes from.
    """
    builder = recorder() if any(isinstance(x, Carrier) for x in operands) else None
    if WATCHED.by is not None:
        WATCHED.by(graph)
    env: dict[Node, Any] = dict(zip(graph.inputs, operands))
    tape: list[Entry] = []
    for node in graph.nodes:
        assert node.op is not None
        if node.picks is not None:
            env[node] = env[node.operands[0]][node.picks]
            continue
        args = tuple([x if type(x) in LITERALS else env[x] for x in node.inputs])
        params = dict(node.params)
        env[node] = applied(node, args, params, builder)
        tape.append((env[node], node.op, args, params))
    outputs = [env[x] for x in graph.outputs]
    if WATCHED.after is not None:
        WATCHED.after(graph, operands, outputs)
    return outputs, tape


def turns(graph: Graph) -> Callable[[Sequence[Any]], list[Any]]:
    """What replays the graph for operands, turn after turn, and gives the outputs. For ndarrays it is found once which
    function computes what of which values, and then nothing is asked but these functions."""
    literals = [x for node in graph.nodes for x in node.inputs if is_literal(x)]
    begin = len(graph.inputs) + len(literals)
    places = {x: k for k, x in enumerate(graph.inputs)} | {x: begin + k for k, x in enumerate(graph.nodes)}
    supply = iter(range(len(graph.inputs), begin))  # where the literals are
    given = [_taking([next(supply) if is_literal(x) else places[x] for x in node.inputs]) for node in graph.nodes]
    steps = [(taken, *_function(node)) for taken, node in zip(given, graph.nodes)]
    wanted = _taking([places[x] for x in graph.outputs])

    def turn(operands: Sequence[Any]) -> list[Any]:
        if recorder() is not None or WATCHED.after or not all([type(x) is np.ndarray for x in operands]):  # noqa: C419
            return replay(graph, operands)[0]
        if WATCHED.by is not None:
            WATCHED.by(graph)
        values, before = [*operands, *literals], traps()
        try:
            set_traps(QUIET)
            for taken, function, params in steps:
                found = function(*taken(values), **params)
                if found.__class__ is not np.ndarray:
                    found = tuple(map(np.asarray, found)) if isinstance(found, tuple) else np.asarray(found)
                values.append(found)
        except (ArithmeticError, LookupError, ValueError) as error:
            told = _told(error, graph.nodes[len(values) - begin])
            if told is None:
                raise
            raise told from error
        finally:
            restore_traps(before)
        return list(wanted(values))

    return turn


def _function(node: Node) -> tuple[Callable[..., Any], dict[str, Any]]:
    """What computes a node of ndarrays and literals, and the parameters for that."""
    assert node.op is not None
    return (node.op.impl, dict(node.params)) if node.picks is None else (itemgetter(node.picks), {})


def _taking(places: Sequence[int]) -> Callable[[list[Any]], Any]:
    """What takes the values at these places of a list."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


def applied(node: Node, args: tuple[Any, ...], params: dict[str, Any], builder: Any, apply: Any = bind) -> Any:
    """The op of a node applied to values, by `apply(op, args, params)`; `builder` records it, if there is one."""
    assert node.op is not None
    if builder is not None:
        builder.location = node.location
        if not node.operands:
            return builder.emit(node.op, args, params)
    try:
        return apply(node.op, args, params)
    except (ArithmeticError, LookupError, ValueError) as error:
        told = _told(error, node)
        if told is None:
            raise
        raise told from error


def _told(error: Exception, node: Node) -> Exception | None:
    """An error that names the user's line which the node comes from; None where there is nothing to add."""
    if isinstance(error, TracegradError) or not node.location:
        return None
    return type(error)(located(f"{node.name}: {error}", node.location))


def evaluate(wanted: Node, computed: dict[Node, Any]) -> Any:
    """The value of a node by NumPy, and of what it needs; `computed` has the inputs, and keeps what is found."""
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
                found = node.op.impl(*args, **dict(node.params))
            computed[node] = tuple(map(np.asarray, found)) if node.several else np.asarray(found)
    return computed[wanted]


def run(graph: Graph, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The outputs of the graph for ndarrays, computed op by op by NumPy: the reference."""
    return replay(graph, [np.asarray(x) for x in arrays])[0]
