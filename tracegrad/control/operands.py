"""Flatten pytree arguments of control-flow functions to op operands, and rebuild their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import LITERALS, Aval, aval_of
from tracegrad.errors import ShapeError, located
from tracegrad.ir import Graph, GraphNode
from tracegrad.ops import Carrier, TapeCarrier
from tracegrad.ops.shape.linear import cast, full
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.driver.region import ClosedFunction, Like, closed, weakened

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


Function = Callable[..., Any]


def required_trace() -> TraceBuilder:
    """The current trace; raises if there is none."""
    result = current_trace()
    assert result is not None
    return result


def records_regions() -> bool:
    """Whether the bodies of loops and branches are recorded as regions. Python runs them outside of traces, and in
    traces that run each iteration in Python."""
    trace = current_trace()
    return trace is not None and (trace.inner is not None or not trace.world.once)


class RecordedFunction:
    """A function as a graph whose result has several parts, each a pytree with its leaves among the outputs."""

    def __init__(self, region: ClosedFunction, structures: Sequence[tree.TreeDef]):
        self.region, self.structures = region, list(structures)

    def results(self, outputs: Sequence[Any]) -> list[Any]:
        """The parts, rebuilt from output values."""
        supply = iter([weakened(x) if weak else x for x, weak in zip(outputs, self.region.weak)])
        return [tree.unflatten(s, [next(supply) for _ in range(s.num_leaves)]) for s in self.structures]


def recorded(
    f: Function,
    args: Sequence[object],
    label: str,
    split_result: Callable[[object], Sequence[object]] = lambda result: (result,),
    wanted: Sequence[Aval | None] = (),
) -> RecordedFunction:
    """`f(*args)` as a graph. `split_result` splits the result; the first outputs take the dtypes `wanted` if they are
    Python numbers."""
    structures: list[tree.TreeDef] = []

    def flat(*operands: object) -> list[Any]:
        result = inlined(f)(*operands)
        results: list[Any] = []
        structures.clear()
        for subtree in split_result(result):
            leaves, structure = tree.flatten(subtree)
            structures.append(structure)
            results += leaves
        return [_in_dtype(x, *wanted[k : k + 1]) for k, x in enumerate(results)]

    return RecordedFunction(closed(flat, args, label), structures)


def _in_dtype(x: Operand, wanted: Aval | None = None) -> Any:
    """A Python number converted to the wanted dtype, if that can represent it: 1 to 1.0, and not the reverse."""
    if wanted is None or not _is_weak(x) or type(x) is complex:
        return x
    fits = np.result_type(_ZERO[_aval(x).dtype.kind], wanted.dtype) == wanted.dtype
    return operand(x, wanted) if fits else x


_ZERO: dict[str, Any] = {"f": 0.0, "i": 0, "u": 0, "b": False, "c": 0j}


def inlined(f: Function) -> Function:
    """The callable to run for `f` here."""
    trace = current_trace()
    function: Function = f if trace is None else trace.world.inline(f)
    return function


def operand(x: Any, aval: Aval) -> Any:
    """The value `x` of the current trace as an operand with this aval."""
    if type(x) in LITERALS:
        return full(shape=(), value=x, dtype=aval.dtype.name)
    if not isinstance(x, TapeCarrier):
        x = required_trace().lift(x if isinstance(x, Carrier) else np.asarray(x))
    return x if x.dtype == aval.dtype else cast(x, dtype=aval.dtype.name)


def carried(
    record: Callable[[list[Any], list[Aval | None]], RecordedFunction],
    initial: Sequence[Any],
    structure: Any,
    label: str,
) -> tuple[RecordedFunction, list[Any]]:
    """A body whose first part has the structure and the avals of the carries, and the leaves it was recorded for.

    `record(like, wanted)` records the body for the leaves `like`; its results take the dtypes `wanted`. A carry that is
    a Python number becomes an array if the body returns an array for it. TypeError if body and initial value disagree.
    """
    like = list(initial)
    while True:
        output = record(like, [None if _is_weak(x) else _aval(x) for x in like])
        if not tree.alike(output.structures[0], structure):
            text = f"a carry of the structure of the initial one, {structure}, got {output.structures[0]}"
            raise TypeError(located(f"{label} must return {text}"))
        weak = output.region.weak
        pairs = [(_aval(x), result) for x, result in zip(like, output.region.avals)]
        changed = [
            k for k, (a, b) in enumerate(pairs) if _is_weak(like[k]) and a.shape == b.shape and (a != b or not weak[k])
        ]
        if not changed:
            break
        for k in changed:
            a, b = pairs[k]
            like[k] = Like(Aval(b.shape, np.result_type(_ZERO[a.dtype.kind], b.dtype)), initial[k])
    for path, (a, b) in zip(tree.paths(structure, "the carry"), pairs):
        if a != b:
            text = f"keep the shapes and dtypes of the carry, but {path} comes in as {a} and goes out as {b}"
            raise TypeError(located(f"{label} must {text}"))
    return output, like


def joined(regions: Sequence[ClosedFunction], count: int) -> tuple[list[Any], list[Graph]]:
    """The combined captures of regions with the same `count` arguments, and their graphs, which take all captures."""
    table: dict[Any, Any] = {}
    for region in regions:
        for x in region.captured:
            table.setdefault(_identity(x), x)
    graphs = []
    for region in regions:
        region_inputs = dict(zip(map(_identity, region.captured), region.graph.inputs[count:]))
        captures = [
            region_inputs[k] if k in region_inputs else GraphNode(None, (), (), aval_of(x)) for k, x in table.items()
        ]
        graphs.append(Graph((*region.graph.inputs[:count], *captures), region.graph.nodes, region.graph.outputs))
    return list(table.values()), graphs


def _identity(x: Any) -> Any:
    return (x.array.node, id(x)) if isinstance(x, TapeCarrier) else x.node


def _is_weak(x: Operand | Like) -> bool:
    return type(x) in LITERALS or bool(getattr(x, "weak", False))


def _aval(x: Operand | Like) -> Aval:
    return x if isinstance(x, Aval) else aval_of(np.asarray(x) if type(x) in LITERALS else x)


def row_count(name: str, leaves: list[Operand], paths: Sequence[str], length: int | None) -> int:
    """The number of rows of the arrays; ValueError if the numbers differ or it is unknown."""
    counts: dict[str, int] = {}
    for x, path in zip(leaves, paths):
        shape = np.shape(x)
        if not shape:
            raise ShapeError(located(f"{name} takes rows of arrays, but {path} has no axis"))
        counts[path] = shape[0]
    if length is not None:
        counts["length"] = length.__index__()
    if not counts:
        raise ValueError(located(f"{name} needs xs or length, to know how many iterations there are"))
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{path} has {n}" for path, n in counts.items())
        raise ShapeError(located(f"{name} got arrays with different numbers of rows: {shown}"))
    return next(iter(counts.values()))


def like_row(x: Operand) -> object:
    """A stand-in for one row of the array `x`; a Tensor if `x` is one."""
    if isinstance(x, TapeCarrier) and x.shape[0]:
        return x[0]  # type: ignore[index]
    aval = Aval(np.shape(x)[1:], _aval(x).dtype)
    return aval if isinstance(x, TapeCarrier) else Like(aval, x)


def stacked(values: Sequence[Any], axis: int = 0) -> Any:
    """Stack arrays, Tensors or numbers along a new axis."""
    if any(isinstance(x, TapeCarrier) for x in values):
        from tracegrad.torch.functions.indexing.joining import stack

        return stack(list(values), axis)
    arrays: list[Any] = [x if isinstance(x, Carrier) else np.asarray(x) for x in values]
    return np.stack(arrays, axis)


def concatenated(values: Sequence[Any], axis: int = 0) -> Any:
    """Concatenate arrays or Tensors along an existing axis."""
    if any(isinstance(x, TapeCarrier) for x in values):
        from tracegrad.torch.functions.indexing.joining import cat

        return cat(list(values), axis)
    return np.concatenate(values, axis)
