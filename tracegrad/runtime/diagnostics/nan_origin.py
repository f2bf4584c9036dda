"""Find the origin of a NaN in a result: the op, its operands, and the user's line (`autograd.detect_anomaly`).

The program runs unchanged. Only if a result has a NaN, its graph is computed op by op, and searched from that result
back to a NaN whose operands have none. A NaN that `where` masks is thus not reported. In a loop, the iteration in which
the NaN arose is found first, and searched inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tracegrad.errors import located
from tracegrad.ir import Graph, GraphNode, evaluate
from tracegrad.ir.interpreter import WATCHED
from tracegrad.ops.core.forms import Fill
from tracegrad.torch.modes import STATE
from tracegrad.trace.random.draws import rewind

if TYPE_CHECKING:
    from tracegrad.typing import Array, NDArray


class BackwardError(RuntimeError):
    """The origin is in a backward pass over Tensors, whose nodes have no source lines in the graph. The call then runs
    as plain Python, whose tape knows the lines, as for other errors of operations."""


def check_outputs(function: Any, call: Any, path: Any, outputs: Sequence[Any], captured: Sequence[Any]) -> None:
    """Raise if a result of a traced call has a NaN, before the call has side effects."""
    results = tuple(outputs[: path.trace.arrays])
    if STATE.check_nan and has_nan(results):
        if getattr(path.program, "restored", False):  # a restored graph has no source lines
            path, _, captured = function.find_in_full(call)
        graph = path.trace.graph.named(path.trace.input_names(function.binder.leaf_names(call)))
        try:
            raise_origin(function.name, graph, [*call.leaves, *captured], results)
        except BackwardError as error:
            message = str(error)
        rewind(call)
        function.body(*call.args, **call.kwargs)
        raise RuntimeError(message)


def has_nan(x: Any) -> bool:
    """Whether an array, or one of several arrays, has a NaN."""
    if isinstance(x, tuple | list):
        return any(map(has_nan, x))
    return np.asarray(x).dtype.kind in "fc" and bool(np.isnan(x).any())


def raise_origin(name: str, graph: Graph, inputs: Sequence[object], results: Sequence[object]) -> NoReturn:
    """Raise RuntimeError with the origin of the NaN in `results`, the first of the graph's outputs."""
    arrays = [np.asarray(x) for x in inputs]
    with np.errstate(all="ignore"):
        for k, x in enumerate(results):
            if has_nan(x):
                _follow(name, graph, arrays, k)
    raise RuntimeError(
        located(f"{name} returned nan values, and none where NumPy computes it op by op; tracegrad.check compares them")
    )


def origin(graph: Graph, inputs: list[Array]) -> str:
    """The text of the origin of the NaN in the first output; "" if there is none."""
    try:
        with np.errstate(all="ignore"):
            _follow("it", graph, [np.asarray(x) for x in inputs], 0)
    except RuntimeError as error:
        return str(error)
    return ""


def _follow(name: str, graph: Graph, arrays: list[NDArray], k: int) -> None:
    """Raise RuntimeError for the origin of the NaN in output `k`, if it has one."""
    computed: dict[GraphNode, Any] = dict(zip(graph.inputs, arrays))
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
    result = computed[node] if node.is_multi_result else (computed[node],)
    output_index = next(i for i, x in enumerate(result) if has_nan(x))
    index = _first(result[output_index])
    error = BackwardError if _has_backward_location(node) else RuntimeError
    raise error(
        located(
            f"Function '{node.name}' of {name} returned nan values in its {output_index}th output, first at index "
            f"{index}"
            f"{_operands(node, computed, np.shape(result[output_index]), index)}",
            node.location,
        )
    )


def _has_backward_location(node: GraphNode) -> bool:
    """Whether a node has the source line of the backward call, whose cotangent is the number 1."""
    seen, stack = {node}, list(node.operands)
    while stack:
        x = stack.pop()
        if isinstance(x.form, Fill) and dict(x.params)["value"] == 1.0 and x.location == node.location:
            return True
        stack += [y for y in x.operands if y not in seen]
        seen.update(x.operands)
    return False


def _nan_before(node: GraphNode, computed: dict[GraphNode, NDArray]) -> GraphNode | None:
    """An operand with a NaN, preferably at the position of the result's NaN."""
    nans = [x for x in node.operands if has_nan(computed[x])]
    value = computed[node]
    for x in nans:
        alike = not isinstance(value, tuple) and not isinstance(computed[x], tuple) and computed[x].shape == value.shape
        if alike and np.any(np.isnan(value) & np.isnan(computed[x])):
            return x
    return nans[0] if nans else None


def _inside(name: str, node: GraphNode, computed: dict[GraphNode, NDArray]) -> None:
    """Search inside the iteration of a loop, or the branch, in which the NaN arose."""
    if not node.regions:
        return

    def check_iteration(graph: Graph, operands: Sequence[Any], outputs: Sequence[object]) -> None:
        if not any(map(has_nan, operands)):
            for k, x in enumerate(outputs):
                if has_nan(x):
                    _follow(name, graph, [np.asarray(x) for x in operands], k)

    before, again = WATCHED.after, {x: computed[x] for x in node.operands}
    try:
        WATCHED.after = check_iteration
        evaluate(node, again)
    finally:
        WATCHED.after = before


def _first(x: NDArray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(np.isnan(x))[0])


def _operands(
    node: GraphNode, computed: dict[GraphNode, NDArray], shape: tuple[int, ...], index: tuple[int, ...]
) -> str:
    """The operands of an elementwise op at the index, as text."""
    values = [np.asarray(computed.get(x, x) if isinstance(x, GraphNode) else x) for x in node.inputs]
    if not values or any(x.shape not in ((), shape) for x in values):
        return ""
    return ", of " + " and ".join(str(x[index if x.shape else ()].item()) for x in values)
