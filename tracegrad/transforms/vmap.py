"""Vectorize a function of one example over a batch (`vmap`).

Inside a trace the function is recorded once, for one example (`trace.driver.region`), and the graph is replayed for the
batch (`ir.batch`); values that do not depend on the batch are computed once. Elsewhere it is called for each example.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import Aval, is_literal
from tracegrad.errors import ShapeError, TraceError, UnsupportedError, located
from tracegrad.ir.batch import replay_batched
from tracegrad.numpy_api.protocols import require_plain
from tracegrad.ops import Carrier, DispatchLevel, TapeCarrier
from tracegrad.ops.core.dispatch import TensorCarrier
from tracegrad.ops.shape.batching import item_at, repeated, spread, to_axis
from tracegrad.ops.shape.linear import concatenate, reshape, slice
from tracegrad.torch.modes import STATE
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.driver.region import Like, at_their_lines, closed, weakened
from tracegrad.trace.random.example_draws import ExampleDraws
from tracegrad.trace.sources.describe import Description, describe
from tracegrad.trace.values.tracer import Tracer
from tracegrad.transforms.flat_function import as_tensors, inlined, is_array

if TYPE_CHECKING:
    from tracegrad.ir import GraphNode
    from tracegrad.tree.pytree import TreeDef
    from tracegrad.typing import Array, Number


Function = Callable[..., Any]
# Number of examples in a chunk, and a function that maps another one over the rows of arrays, as `tg.map` does.
Chunks = tuple[int, Function]


# -- axes --------------------------------------------------------------------------------------------------------------
def check_axes(in_axes: tuple[int | None, ...] | int, out_axes: dict[str, int | None] | int) -> None:
    """Raise TypeError unless each is an int, None, or a container of ints and None."""
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        wrong = [x for x in tree.leaves(axes) if type(x) is not int]
        if wrong:
            text = f"vmap {name} must be an int, None, or a container with those as leaves, got {axes!r}"
            raise TypeError(located(text))


def _of_arguments(in_axes: tuple[int | None, ...] | int, args: tuple[Array, ...], label: Description) -> list[Any]:
    """The axis of each leaf of the positional arguments."""
    if isinstance(in_axes, tuple | list) and len(in_axes) != len(args):
        text = f"in_axes must be an int, None, or have one entry per positional argument, got {len(in_axes)} entries"
        raise ValueError(located(f"{label}: {text} for {len(args)} arguments"))
    if isinstance(in_axes, tuple | list):
        each = zip(in_axes, args, strict=True)
        return [a for i, (axes, x) in enumerate(each) for a in spread(axes, x, f"{label}: in_axes", label.argument(i))]
    return spread(in_axes, args, f"{label}: in_axes", "the arguments")


def _names(args: tuple[Array, ...], kwargs: dict[str, object], label: Description) -> list[str]:
    roots = [(label.argument(i), x) for i, x in enumerate(args)] + sorted(kwargs.items())
    return [path for root, x in roots for path in tree.paths(x, root)]


class _Batch:
    """The leaves of a call, the mapped ones with the batch along axis 0, and the batch size."""

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        in_axes: Any,
        keyword_axis: int | None,
        axis_size: object,
        label: Description,
    ):
        self.call = args, kwargs
        self.leaves = tree.leaves(self.call)
        axes = _of_arguments(in_axes, args, label)
        axes += [keyword_axis] * (len(self.leaves) - len(axes))
        names = _names(args, kwargs, label)
        self.positions = [k for k, a in enumerate(axes) if a is not None]
        sizes = {}
        for k in self.positions:
            axes[k] = _axis(axes[k], self.leaves[k], names[k], label)
            sizes[names[k]] = self.leaves[k].shape[axes[k]], axes[k]
        self.axes = [axes[k] for k in self.positions]
        self.size = _common(sizes, axis_size, label)
        self.mapped: list[Any] = [to_axis(_array(self.leaves[k]), axes[k], 0) for k in self.positions]

    def arguments(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with these values of the mapped leaves. Containers with mapped leaves belong to the example;
        the others are shared by all examples, as in a loop."""
        leaves = list(self.leaves)
        for k, x in zip(self.positions, values):
            leaves[k] = x
        args, kwargs = _with_leaves(self.call, iter(leaves))
        return args, kwargs


def _with_leaves(x: object, leaves: Iterator[Array]) -> Any:
    """`x` with these leaves; a container whose leaves are unchanged is reused."""
    if not tree.is_node(x):
        return next(leaves)
    children = tree.children(x)
    others = [_with_leaves(child, leaves) for child in children]
    return x if all(map(operator.is_, children, others)) else tree.with_children(x, others)


def _axis(axis: int, x: Array, name: str, label: Description) -> int:
    if not isinstance(x, Carrier | np.ndarray | np.generic) and not is_literal(x):
        raise TypeError(
            located(f"{label}: {name} is a {type(x).__name__}, which has no axis to map; give it the axis None")
        )
    require_plain(x, lambda: f"{label}: {name}")
    rank = len(np.shape(x))
    if not -rank <= axis < rank:
        text = f"{name} is to be mapped along axis {axis}, but its shape is {tuple(np.shape(x))}"
        raise ShapeError(located(f"{label}: {text}"))
    return axis % rank


def _common(sizes: dict[str, tuple[int, int]], axis_size: Any, label: Description) -> int:
    """The batch size; ValueError if the arguments do not agree, or if none is mapped."""
    if not sizes and axis_size is None:
        raise ValueError(located(f"{label}: at least one argument must have an axis in in_axes, or axis_size be given"))
    if axis_size is not None:
        wrong = {name: size for name, (size, _) in sizes.items() if size != axis_size}
        if wrong:
            name, size = next(iter(wrong.items()))
            raise ShapeError(
                located(f"{label}: axis_size is {axis_size}, but the mapped axis of {name} has size {size}")
            )
        return int(axis_size)
    if len({size for size, _ in sizes.values()}) > 1:
        shown = "; ".join(f"axis {axis} of {name} has size {size}" for name, (size, axis) in sizes.items())
        raise ShapeError(located(f"{label}: got inconsistent sizes for array axes to be mapped: {shown}"))
    return next(iter(sizes.values()))[0]


def _array(x: Array | Number) -> Any:
    """A mapped argument as a value of the current trace, if there is one."""
    trace = current_trace()
    return x if isinstance(x, Carrier) or trace is None else trace.lift(np.asarray(x))


# -- calls -------------------------------------------------------------------------------------------------------------
def batched_call(
    fun: Function,
    in_axes: Any,
    out_axes: dict[str, int | None] | int,
    axis_size: Any,
    statics: Sequence[str] = (),
    chunks: Chunks | None = None,
    keyword_axis: int | None = 0,
    randomness: str = "",
    name: str = "",
) -> Function:
    """The function `(*args, **kwargs) -> out` for batches; the keyword arguments `statics` are not arrays.

    Random numbers are refused ("error"), the `same` for all examples, or `different`; "" says how to do without. `name`
    is the function's name in PyTorch's texts; "" for NumPy's rules.
    """
    label = describe(fun, "vmap of ")

    def call(*args: Any, **kwargs: Any) -> Any:
        options = {k: kwargs.pop(k) for k in statics if k in kwargs}
        batch = _Batch(args, kwargs, in_axes, keyword_axis, axis_size, label)
        function = functools.partial(inlined(fun), **options) if options else inlined(fun)
        updates = _ArgumentUpdates(batch, label)
        if current_trace() is None:
            outputs, batched, structure = _unbatched_loop(function, batch, label, randomness)
        else:
            draws = ExampleDraws(randomness, batch.size)
            outputs, batched, structure = _vectorized(function, batch, label, chunks, updates, draws)
        result = tree.unflatten(structure, outputs)
        axes = spread(of_one(out_axes, result), result, f"{label}: out_axes", "the result")
        paths = tree.paths(structure, "the result")
        for is_batched, axis, path in zip(batched, axes, paths):
            _require_axis(is_batched, axis, path, label, name)
        placed = [_placed(*each, batch.size, label) for each in zip(outputs, batched, axes, paths)]
        updates.link_views(placed, axes)
        arrays = iter(as_tensors([x for x in placed if is_array(x)], batch.leaves))
        return tree.unflatten(structure, [next(arrays) if is_array(x) else x for x in placed])

    return call


def of_one(out_axes: Any, result: object) -> Any:
    """`out_axes`, which may be a 1-tuple for a result that is one array, as in PyTorch."""
    return out_axes[0] if type(out_axes) is tuple and len(out_axes) == 1 and not tree.is_node(result) else out_axes


def _require_axis(is_batched: bool, axis: int | None, path: str, label: Description, name: str) -> None:
    """Raise ValueError for a result that depends on mapped arguments and has no axis in `out_axes`."""
    if is_batched and axis is None:
        text = f"{label}: out_axes is None for {path}, which depends on arguments that are mapped"
        torchs = f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None"
        raise ValueError(located(torchs if name else text))


def _placed(x: Array, is_batched: bool, axis: int | None, path: str, size: int, label: Description) -> Array | Number:
    """An output with the batch along the requested axis."""
    if axis is None:
        return x
    if not _is_result(x) and not is_literal(x):
        raise TraceError(located(f"{label} must return arrays, but {path} is a {type(x).__name__}"))
    if not is_batched:
        (x,) = repeated(size, [False], [_array(x)])
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise ShapeError(
            located(f"{label}: out_axes is {axis} for {path}, which has {rank} axes with that of the batch")
        )
    placed = to_axis(x, 0, axis % rank)
    return placed.copied() if isinstance(placed, Tracer) else placed  # neither a view of an argument nor read-only


def _is_result(x: object) -> bool:
    """Whether `x` is an array or a value of a trace; a result with the axis None may be anything else."""
    return is_array(x) or isinstance(getattr(x, "level", None), DispatchLevel)


class _ArgumentUpdates:
    """In-place updates of Tensor arguments by a function: each example writes its rows."""

    def __init__(self, batch: _Batch, label: Description):
        self.batch, self.label = batch, label
        self.positions: list[int] = []  # of the updated arguments, among the mapped leaves
        self.results: dict[int, int] = {}  # updated arguments in the result, by leaf number
        self.views: set[int] = set()  # the leaf numbers of results that are arguments, or views of them

    def snapshot(self, values: tuple[Array, ...]) -> list[tuple[Array, GraphNode] | None]:
        """The Tensor arguments, which may be updated, with their present arrays and nodes."""
        for x in values:
            if isinstance(x, TensorCarrier):
                x.array.frozen = ""
        return [(x.array, x.array.node) if isinstance(x, TensorCarrier) else None for x in values]

    def collect(self, values: Sequence[Any], before: Sequence[Any], leaves: Sequence[object]) -> list[Any]:
        """The updated arguments; `leaves` are those of the result of the function."""
        tensors = [k for k, known in enumerate(before) if known is not None]
        if any(values[k].array is not before[k][0] for k in tensors):
            raise UnsupportedError(
                located(f"{self.label} makes an argument a view of itself; say x = x.unsqueeze(0) for x.unsqueeze_(0)")
            )
        self.positions = [k for k in tensors if values[k].array.node is not before[k][1]]
        numbers = {id(values[k]): k for k in self.positions}
        self.results = {n: numbers[id(x)] for n, x in enumerate(leaves) if id(x) in numbers}
        return [values[k] for k in self.positions]

    def note_views(self, values: Sequence[Any], leaves: Sequence[Any]) -> None:
        """Note which leaves of the result of the function lie in the memory of its arguments."""
        known = {id(x) for x in (*values, *self.batch.leaves)}
        self.views = {n for n, x in enumerate(leaves) if {id(x), id(getattr(x, "_base", None))} & known}

    def write(self, rows: Sequence[Array], batched: Sequence[bool]) -> None:
        """Write the rows of updates to the arguments of the call."""
        for k, x, each in zip(self.positions, rows, batched):
            value = _placed(x, each, self.batch.axes[k], "an argument", self.batch.size, self.label)
            self._argument(k).copy_(value)

    def link_views(self, placed: list[Any], axes: Sequence[Any]) -> None:
        """Make results that are an updated argument views of it; others that are no views get memory of their own."""
        owners: list[Any] = [x for x in self.batch.leaves if isinstance(x, TensorCarrier)]
        known = {id(y) for x in owners for y in (x, getattr(x, "_base", None)) if y is not None}
        for n, x in enumerate(placed):
            if n not in self.views and {id(x), id(getattr(x, "_base", None))} & known:
                placed[n] = x.clone()
        for n, k in self.results.items():
            x, axis, to = self._argument(k), self.batch.axes[k], axes[n] % len(placed[n].shape)
            placed[n] = x if axis == to else x.movedim(axis, to)

    def _argument(self, k: int) -> Any:
        return self.batch.leaves[self.batch.positions[k]]


def _vectorized(
    fun: Function,
    batch: _Batch,
    label: Description,
    chunks: Chunks | None,
    updates: _ArgumentUpdates,
    draws: ExampleDraws,
) -> tuple[list[Array], list[bool], TreeDef]:
    """The outputs in the current trace, which of them are batched, and the structure of the result."""

    leaves: list[object] = []
    structure: Any = None

    def one(*values: Array) -> list[Any]:
        nonlocal structure
        before = updates.snapshot(values)
        args, kwargs = batch.arguments(values)
        leaves[:], structure = tree.flatten(fun(*args, **kwargs))
        updates.note_views(values, leaves)
        return [x for x in leaves if _is_result(x)] + updates.collect(values, before, leaves)

    like = [Like(Aval(x.shape[1:], x.dtype), x) for x in batch.mapped]
    examples = batch.size if chunks is None else min(chunks[0], batch.size)
    region = closed(one, like, str(label), once=True, examples=examples, draws=draws)
    flags = [True] * len(like) + list(region.mapped)

    def compute(size: int, mapped: Sequence[Array]) -> tuple[list[Any], list[bool]]:
        numbers = iter(mapped[len(like) :])
        captured = [next(numbers) if is_mapped else x for x, is_mapped in zip(region.captured, region.mapped)]
        return replay_batched(region.graph, size, flags, [*mapped[: len(like)], *captured])

    for k in updates.positions:
        batch.mapped[k] = batch.mapped[k].clone()  # a derivative needs the value before the update
    batch.mapped += [x for x, is_mapped in zip(region.captured, region.mapped) if is_mapped]
    with at_their_lines():
        if chunks is None or chunks[0] >= batch.size:
            outputs, batched = compute(batch.size, batch.mapped)
        else:
            outputs, batched = _in_chunks(compute, batch, *chunks)
    shown = [weakened(x) if weak and not m else x for x, m, weak in zip(outputs, batched, region.weak)]
    count = len(shown) - len(updates.positions)
    updates.write(shown[count:], batched[count:])
    arrays = iter(zip(shown, batched))
    pairs: list[tuple[Any, bool]] = [next(arrays) if _is_result(x) else (x, False) for x in leaves]
    return [x for x, _ in pairs], [flag for _, flag in pairs], structure


def _in_chunks(compute: Any, batch: _Batch, size: int, over: Function) -> tuple[list[Any], list[bool]]:
    """Compute `compute` for the whole batch in chunks of `size`; a remainder is a chunk of its own."""
    iterations, remainder = divmod(batch.size, size)
    batched: list[bool] = []

    def chunk(mapped: Sequence[Any]) -> list[Array]:
        outputs, batched[:] = compute(size, mapped)
        return [x for x, wanted in zip(outputs, batched) if wanted]

    whole = iterations * size
    stacked = over(
        chunk, [reshape(_slice_rows(x, 0, whole), shape=(iterations, size, *x.shape[1:])) for x in batch.mapped]
    )
    result = iter([reshape(x, shape=(whole, *x.shape[2:])) for x in stacked])
    if not remainder and all(batched):
        return list(result), batched
    # Outputs that do not depend on the batch are the same in any chunk.
    outputs, _ = compute(
        remainder or size,
        [_slice_rows(x, whole if remainder else 0, batch.size if remainder else size) for x in batch.mapped],
    )
    for k, x in enumerate(outputs):
        if batched[k]:
            outputs[k] = concatenate(next(result), x, axis=0) if remainder else next(result)
    return outputs, batched


def _slice_rows(x: Array, start: int, stop: int) -> Array:
    """The rows of `x` from `start` to before `stop`."""
    rest = x.shape[1:]
    return slice(x, start=(start, *(0 for _ in rest)), stop=(stop, *rest), step=(1,) * len(x.shape))


def map_rows(fn: Function, arrays: list[Array], size: int, label: str) -> Any:
    """The result of `fn` for each of `size` rows of the arrays `arrays`, stacked along a new axis 0, or None."""
    if current_trace() is None:
        results = [fn(*[_row_at(x, i) for x in arrays]) for i in range(size)]
        return [None if each[0] is None else _joined(each) for each in zip(*results)]
    rows = [Like(Aval(x.shape[1:], np.dtype(x.dtype)), x) for x in arrays]
    region = closed(lambda *operands: list(fn(*operands)), rows, label, once=True)
    flags = [True] * len(arrays) + [False] * len(region.captured)
    with at_their_lines():
        outputs, batched = replay_batched(region.graph, size, flags, [*arrays, *region.captured])
    result: list[Any] = tree.unflatten(region.structure, repeated(size, batched, outputs))
    return result


def _unbatched_loop(
    fun: Function, batch: _Batch, label: Description, randomness: str
) -> tuple[list[Array], list[bool], TreeDef]:
    """As `_vectorized`, by one call of the function per example."""
    from tracegrad.torch.functions.core.generator import drawing_for_examples

    results, before = [], STATE.retains_tape
    try:
        with drawing_for_examples(randomness) as next_example:
            for i in range(batch.size):
                next_example()
                STATE.retains_tape = before or i < batch.size - 1
                results.append(_flat_result(fun, batch, [_row_at(x, i) for x in batch.mapped]))
    finally:
        STATE.retains_tape = before
    if not results:
        example = [_example(x) for x in batch.mapped]
        flat, structure = _flat_result(fun, batch, example)
        return [_joined([x])[:0] for x in flat], [True] * len(flat), structure
    structure = results[0][1]
    if not all(tree.alike(other, structure) for _, other in results):
        raise ShapeError(located(f"{label}: the results of different examples have different structures"))
    rows = list(zip(*(flat for flat, _ in results)))
    batched = [_is_result(each[0]) or any(x != each[0] for x in each) for each in rows]
    return [_joined(each) if flag else each[0] for each, flag in zip(rows, batched)], batched, structure


def _flat_result(fun: Function, batch: _Batch, values: list[Array]) -> tuple[list[Array], TreeDef]:
    args, kwargs = batch.arguments(values)
    return tree.flatten(fun(*args, **kwargs))


def _row_at(x: Array, i: int) -> Array:
    return item_at(x, i) if isinstance(x, Carrier) else x[i]


def _example(x: Any) -> Any:
    """An example of zeros, for an empty batch."""
    zeros = np.zeros(x.shape[1:], x.dtype)
    return x._like(zeros) if isinstance(x, TapeCarrier) else zeros[()]


def _joined(values: Sequence[Any]) -> Array:
    """Stack arrays or numbers along a new axis 0."""
    if not any(isinstance(x, Carrier) for x in values):
        return np.stack([np.asarray(x) for x in values])
    like: Any = next(x for x in values if isinstance(x, Carrier))
    arrays: list[Any] = [x if isinstance(x, Carrier) else like._lift(np.asarray(x)) for x in values]
    return concatenate(*[reshape(x, shape=(1, *x.shape)) for x in arrays], axis=0)
