"""The meaning of a graph: apply its ops, one after the other, to whatever carries the values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.ad import Entry
from tracegrad.avals import is_literal
from tracegrad.errors import TracegradError, located
from tracegrad.ir.builder import recorder
from tracegrad.ir.graph import Graph, Node
from tracegrad.ops.op import Carrier, bind

__all__ = ["WATCHED", "applied", "evaluate", "replay", "run"]


class _Watched(threading.local):
    """Who is told, in this thread, of each graph that is about to be replayed."""

    by: Callable[[Graph], None] | None = None


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
        args = tuple(x if is_literal(x) else env[x] for x in node.inputs)
        params = dict(node.params)
        env[node] = applied(node, args, params, builder)
        tape.append((env[node], node.op, args, params))
    return [env[x] for x in graph.outputs], tape


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
        if isinstance(error, TracegradError) or not node.location:
            raise
        raise type(error)(located(f"{node.name}: {error}", node.location)) from error


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
