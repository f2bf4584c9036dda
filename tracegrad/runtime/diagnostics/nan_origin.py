"""Where the nan of a result arose: the op, its operands there, and the user's line. For `autograd.detect_anomaly`.

A program runs as it is; only where nan is in a result is its graph computed op by op, and followed from that result
back to a value that is nan although nothing that it is made of is. So a nan that `where` leaves out is none. In a loop
the turn is found in which the nan arose, and followed within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tracegrad.errors import located
from tracegrad.ir import Graph, Node, evaluate
from tracegrad.ir.interpreter import WATCHED
from tracegrad.ops.core.forms import Fill
from tracegrad.torch.modes import STATE
from tracegrad.trace.random.draws import rewind

__all__ = ["has_nan", "look", "origin", "raise_origin"]


class BackwardError(RuntimeError):
    """The origin is in a backward pass over Tensors, of whose nodes the graph does not know the lines: as elsewhere
    where an operation raises, the call is then one of plain Python, whose tape knows them."""


def look(function: Any, call: Any, path: Any, outputs: Sequence[Any], captured: Sequence[Any]) -> None:
    """Raise where nan is in a result of a call of a traced function, before it has done anything outside."""
    results = tuple(outputs[: path.trace.arrays])
    if STATE.check_nan and has_nan(results):
        if getattr(path.program, "recalled", False):  # its graph has no lines
            path, _, captured = function.find_in_full(call)
        graph = path.trace.graph.named(path.trace.input_names(function.binder.leaf_names(call)))
        try:
            raise_origin(function.name, graph, [*call.leaves, *captured], results)
        except BackwardError as error:
            told = str(error)
        rewind(call)
        function.body(*call.args, **call.kwargs)
        raise RuntimeError(told)


def has_nan(x: Any) -> bool:
    """Whether nan is in an array, or in one of several."""
    if isinstance(x, tuple | list):
        return any(map(has_nan, x))
    return np.asarray(x).dtype.kind in "fc" and bool(np.isnan(x).any())


def raise_origin(name: str, graph: Graph, inputs: Sequence[Any], results: Sequence[Any]) -> NoReturn:
    """RuntimeError that names where nan arose of which `results`, the first of the graph's outputs, have some."""
    arrays = [np.asarray(x) for x in inputs]
    with np.errstate(all="ignore"):
        for k, x in enumerate(results):
            if has_nan(x):
                _follow(name, graph, arrays, k)
    raise RuntimeError(
        located(f"{name} returned nan values, and none where NumPy computes it op by op; tracegrad.check compares them")
    )


def origin(graph: Graph, inputs: Sequence[Any]) -> str:
    """Where nan arose of which the first output has some, in words; "" where it has none."""
    try:
        with np.errstate(all="ignore"):
            _follow("it", graph, [np.asarray(x) for x in inputs], 0)
    except RuntimeError as error:
        return str(error)
    return ""


def _follow(name: str, graph: Graph, arrays: Sequence[Any], k: int) -> None:
    """RuntimeError for the origin of nan in output `k`, if there is nan in it."""
    computed: dict[Node, Any] = dict(zip(graph.inputs, arrays))
    node = graph.outputs[k]
    if not has_nan(evaluate(node, computed)):
        return
    while (before := _nan_before(node, computed)) is not None:
        node = before
    if node.op is None:
        at = graph.inputs.index(node)
        called = graph.names[at] if at < len(graph.names) and graph.names[at] else f"argument {at}"
        raise RuntimeError(located(f"{name} was given nan values in {called}, first at {_first(computed[node])}"))
    _inside(name, node, computed)
    found = computed[node] if node.several else (computed[node],)
    place = next(i for i, x in enumerate(found) if has_nan(x))
    index = _first(found[place])
    error = BackwardError if _of_backward_call(node) else RuntimeError
    raise error(
        located(
            f"Function '{node.name}' of {name} returned nan values in its {place}th output, first at index {index}"
            f"{_operands(node, computed, np.shape(found[place]), index)}",
            node.location,
        )
    )


def _of_backward_call(node: Node) -> bool:
    """Whether a node is said to come from the line that its cotangent, the number 1, does."""
    seen, stack = {node}, list(node.operands)
    while stack:
        x = stack.pop()
        if isinstance(x.form, Fill) and dict(x.params)["value"] == 1.0 and x.location == node.location:
            return True
        stack += [y for y in x.operands if y not in seen]
        seen.update(x.operands)
    return False


def _nan_before(node: Node, computed: dict[Node, Any]) -> Node | None:
    """An operand that has nan; if there is one, one that has it where the value does."""
    nans = [x for x in node.operands if has_nan(computed[x])]
    here = computed[node]
    for x in nans:
        alike = not isinstance(here, tuple) and not isinstance(computed[x], tuple) and computed[x].shape == here.shape
        if alike and np.any(np.isnan(here) & np.isnan(computed[x])):
            return x
    return nans[0] if nans else None


def _inside(name: str, node: Node, computed: dict[Node, Any]) -> None:
    """The same within the turn of a loop, or the branch, in which nan arose."""
    if not node.regions:
        return

    def look(graph: Graph, operands: Sequence[Any], outputs: Sequence[Any]) -> None:
        if not any(map(has_nan, operands)):
            for k, x in enumerate(outputs):
                if has_nan(x):
                    _follow(name, graph, [np.asarray(x) for x in operands], k)

    before, again = WATCHED.after, {x: computed[x] for x in node.operands}
    try:
        WATCHED.after = look
        evaluate(node, again)
    finally:
        WATCHED.after = before


def _first(x: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(np.isnan(x))[0])


def _operands(node: Node, computed: dict[Node, Any], shape: tuple[int, ...], index: tuple[int, ...]) -> str:
    """The numbers that an elementwise op had there."""
    values = [np.asarray(computed.get(x, x) if isinstance(x, Node) else x) for x in node.inputs]
    if not values or any(x.shape not in ((), shape) for x in values):
        return ""
    return ", of " + " and ".join(str(x[index if x.shape else ()].item()) for x in values)
