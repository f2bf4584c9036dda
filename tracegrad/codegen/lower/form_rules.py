"""Lower each op form: axes of the result, operands to store, and code of one element.

`handler(node)` returns the handler of the form of the node's op. The compiler uses no other property of an op, so a
new op form needs only a new handler.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from tracegrad.avals import short_name
from tracegrad.codegen.instr.scalar import identity
from tracegrad.codegen.loopir.kernel import SCATTERS, GuardBlock, Operand, Reduce, Store
from tracegrad.codegen.loopir.polynomial import ONE, ZERO
from tracegrad.codegen.loopir.scalar_templates import evaluate, lowerable, template_cost
from tracegrad.codegen.lower.form_rule import Axes, Handler, Index
from tracegrad.codegen.lower.index_map_analysis import moved
from tracegrad.codegen.lower.matmul_layout import factors_of
from tracegrad.codegen.lower.packing_heuristic import is_head
from tracegrad.codegen.lower.window_rules import CheckedHandler, PatchHandler, WindowHandler
from tracegrad.ir import GraphNode
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.core import forms

if TYPE_CHECKING:
    from tracegrad.codegen.lower.lower import Lowering
    from tracegrad.codegen.lower.materialize import Storage
    from tracegrad.codegen.lower.symbolic_shapes import Dims

__all__ = [
    "HANDLERS",
    "Handler",
    "checks_indices",
    "handler",
    "in_range",
    "is_trivial_reshape",
    "is_view",
    "same_block",
]


# -- element by element --------------------------------------------------------------------------------------------
class _MapRule(Handler):
    pointwise = aligned = True

    def called(self, node: GraphNode) -> bool:
        dtypes = [x.aval.dtype if isinstance(x, GraphNode) else node.operands[0].aval.dtype for x in node.inputs]
        return not lowerable(node.form.scalar, tuple(map(short_name, dtypes)))

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        return dims.joined(operands)

    def cost(self, node: GraphNode) -> int:
        return template_cost(node.form.scalar)

    def element(self, lowering: Lowering, node: GraphNode, index: Index) -> Operand:
        assert node.op is not None
        operands = {name: lowering.operand(node, k, index) for k, name in enumerate(node.op.operands)}
        return evaluate(node.form.scalar, operands, lowering.compute)


class _CastRule(_MapRule):
    def called(self, node: GraphNode) -> bool:
        return False

    def cost(self, node: GraphNode) -> int:
        return 1

    def element(self, lowering: Lowering, node: GraphNode, index: Index) -> Operand:
        return lowering.compute("cast", (lowering.operand(node, 0, index),), short_name(node.aval.dtype))


# -- moving elements -----------------------------------------------------------------------------------------------
class _MoveRule(Handler):
    def called(self, node: GraphNode) -> bool:
        return False

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        results = []
        for n, runs in zip(node.aval.shape, moved(node).axes):
            along = [operands[k][axis] for k, axis in runs]
            results.append(dims.join(*along) if along else dims.new(n))
        return tuple(results)

    def whole(self, node: GraphNode) -> tuple[GraphNode, ...]:
        return () if node.form.partial else node.operands

    def repeats(self, node: GraphNode) -> bool:
        result = moved(node)
        return result.repeats or (not result.guards and node.aval.size > sum([x.aval.size for x in node.operands]))

    def cost(self, node: GraphNode) -> int:
        return 2 * moved(node).guards

    def element(self, lowering: Lowering, node: GraphNode, index: Index) -> Operand:
        params, dtype = dict(node.params), short_name(node.aval.dtype)
        reads = node.form.reads(index, lowering.sizes(node), *lowering.shapes(node), **params)
        value = lowering.arguments.scalar((node, "fill"), params.get("value", 0), dtype)
        for read in reversed(reads):
            value = lowering.guarded(node.inputs[read.operand], read, value)
        return value


class _AlongRule(_MoveRule):
    """Rules for ops along axes, which know their axis map without the probing of `index_map_analysis`."""

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        (x,), shape, old = operands, node.aval.shape, node.operands[0].aval.shape
        along = node.form.axes(len(old), len(shape), **dict(node.params))
        return tuple([x[k] if k is not None and old[k] == n else dims.new(n) for k, n in zip(along, shape)])

    def repeats(self, node: GraphNode) -> bool:
        return not node.form.fills and node.aval.size > node.operands[0].aval.size

    def cost(self, node: GraphNode) -> int:
        return 2 if node.form.fills else 0


class _IdentityRule(_MoveRule):
    pointwise = aligned = True

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        return operands[0]

    def repeats(self, node: GraphNode) -> bool:
        return False

    def cost(self, node: GraphNode) -> int:
        return 0

    def element(self, lowering: Lowering, node: GraphNode, index: Index) -> Operand:
        return lowering.element(node.inputs[0], index)


class _ReshapeRule(_MoveRule):
    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        old, new = node.inputs[0].aval.shape, node.aval.shape
        out: list[int | None] = [None] * len(new)
        i, j = _match(list(enumerate(old)), list(enumerate(new)), operands[0], out)
        _match(list(enumerate(old))[i:][::-1], list(enumerate(new))[j:][::-1], operands[0], out)
        return tuple(dims.new(n) if a is None else a for a, n in zip(out, new))

    def store(self, storage: Storage, node: GraphNode) -> None:
        base = _block_base(node.inputs[0], storage.reason)
        if not is_trivial_reshape(node) and not isinstance(base.form, forms.Progression):
            storage.store_base(base, "reshaped, so read as one block of memory")

    def repeats(self, node: GraphNode) -> bool:
        return False

    def cost(self, node: GraphNode) -> int:
        return 0

    def element(self, lowering: Lowering, node: GraphNode, index: Index) -> Operand:
        x = node.inputs[0]
        if is_trivial_reshape(node):
            saved = iter([i for i, n in zip(index, node.aval.shape) if n != 1])
            return lowering.element(x, tuple(ZERO if n == 1 else next(saved) for n in x.aval.shape))
        while x not in lowering.buffers:
            if isinstance(x.form, forms.Progression):
                return lowering.element(x, (lowering.address(node, index),))
            assert same_block(x) or is_prefix(x)
            x = x.inputs[0]
        return lowering.load(lowering.buffer(x, "in"), lowering.address(node, index), short_name(node.aval.dtype))


def _match(
    old: list[tuple[int, int]], new: list[tuple[int, int]], axes: Axes, out: list[int | None]
) -> tuple[int, int]:
    """Match axes of equal sizes in order, and skip axes of size one; returns the positions reached in both shapes."""
    i = j = 0
    while i < len(old) and j < len(new):
        if old[i][1] == new[j][1]:
            out[new[j][0]] = axes[old[i][0]]
            i, j = i + 1, j + 1
        elif old[i][1] == 1:
            i += 1
        elif new[j][1] == 1:
            j += 1
        else:
            break
    return i, j


class _GatherRule(Handler):
    indexed = True

    def called(self, node: GraphNode) -> bool:
        return False

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        x, *indices = operands
        axes = dict(node.params)["axes"]
        return (*dims.joined(indices), *(a for i, a in enumerate(x) if i not in axes))

    def whole(self, node: GraphNode) -> tuple[GraphNode, ...]:
        return node.operands[1:]

    def repeats(self, node: GraphNode) -> bool:
        return True

    def cost(self, node: GraphNode) -> int:
        return 2

    def element(self, lowering: Lowering, node: GraphNode, index: Index) -> Operand:
        x, *indices = node.inputs
        return lowering.element(x, _scattered(lowering, indices, dict(node.params)["axes"], index, x))


def _scattered(lowering: Lowering, indices: list[Any], axes: Axes, index: Index, whole: GraphNode) -> Index:
    """The index into `whole`: `indices` along `axes`, read at the first part of `index`, and the rest of `index`."""
    depth = indices[0].aval.ndim
    shape = lowering.dims.shape(whole)
    checked = {a: lowering.checked(i, index[:depth], shape[a]) for i, a in zip(indices, axes)}
    rest = iter(index[depth:])
    return tuple(checked[a] if a in checked else next(rest) for a in range(len(shape)))


# -- reductions ------------------------------------------------------------------------------------------------------
class _ReductionRule(Handler):
    def called(self, node: GraphNode) -> bool:
        return False

    def store(self, storage: Storage, node: GraphNode) -> None:
        storage.store(node, f"result of {node.name}")


class _FoldRule(_ReductionRule):
    aligned = late = True

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        axes = dict(node.params)["axes"]
        return tuple(a for i, a in enumerate(operands[0]) if i not in axes)

    def space(self, node: GraphNode) -> GraphNode:
        return node.operands[0]

    def root(self, lowering: Lowering, node: GraphNode, index: Index) -> None:
        axes = dict(node.params)["axes"]
        over = tuple(next(iter(index[a].symbols)) for a in axes if index[a].symbols)
        saved = tuple(i for a, i in enumerate(index) if a not in axes)
        value = lowering.element(node.inputs[0], index)
        if axes and not over and node.form.combine == "add" and value.dtype[0] == "f":
            # Axes of size 1 have no loop that begins with 0.0, and NumPy's sum of one -0.0 is 0.0.
            value = lowering.compute("add", (value, Operand("", value.dtype, "0.0")), value.dtype)
        _reduce(lowering, node, saved, node.form.combine, value, over)


def _reduce(
    lowering: Lowering, node: GraphNode, index: Index, combine: str, value: Operand, over: tuple[str, ...]
) -> None:
    name = lowering.buffer(node, "out")
    size = ONE
    for d in lowering.dims.shape(node):
        size = size * d
    lowering.emit(Reduce(name, lowering.address(node, index), combine, value, over, size))
    lowering.kernel.cost += 1


class _ScatterRule(_ReductionRule):
    late = needs_own_loops = True

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        updates, *indices = operands
        axes = dict(node.params)["axes"]
        head = dims.joined([updates[: len(indices[0])], *indices])
        rest = iter(updates[len(head) :])
        return tuple(dims.new(n) if i in axes else next(rest) for i, n in enumerate(node.aval.shape))

    def space(self, node: GraphNode) -> GraphNode:
        return node.operands[0]

    def root(self, lowering: Lowering, node: GraphNode, index: Index) -> None:
        updates, *indices = node.inputs
        target = _scattered(lowering, indices, dict(node.params)["axes"], index, node)
        value = lowering.element(updates, index)
        (combiner,) = (name for name, operation in SCATTERS.items() if operation == node.form.combine)
        _reduce(lowering, node, target, combiner, value, tuple(x.var for x in lowering.kernel.loops))


class _ScanRule(_ReductionRule):
    needs_own_loops = True

    def called(self, node: GraphNode) -> bool:
        return node.form.combine != "add" and node.aval.dtype.kind in "bc"

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        return operands[0]

    def root(self, lowering: Lowering, node: GraphNode, index: Index) -> None:
        axis, dtype = dict(node.params)["axis"], short_name(node.aval.dtype)
        name, address = lowering.buffer(node, "out"), lowering.address(node, index)
        previous = tuple(i - 1 if a == axis else i for a, i in enumerate(index))
        value = lowering.element(node.inputs[0], index)
        combine = node.form.combine
        start = "-0.0" if (combine, dtype[0]) == ("add", "f") else str(identity(combine, dtype).constant)
        ranges = ((ONE, index[axis], lowering.dims.shape(node)[axis], ONE),)
        with lowering.block() as body:
            before = lowering.load(name, lowering.address(node, previous), dtype)
        guarded = lowering.named(dtype)
        lowering.emit(GuardBlock(guarded, ranges, body, before, Operand("", dtype, start)))
        lowering.emit(Store(name, address, lowering.compute(combine, (guarded, value), dtype)))


# -- products --------------------------------------------------------------------------------------------------------
class _ContractRule(Handler):
    step_kind = "matmul"

    def called(self, node: GraphNode) -> bool:
        return node.aval.dtype.kind != "f"

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        x, y = operands
        dims.join(x[-1], y[-2])
        return (*dims.joined([x[:-2], y[:-2]]), x[-2], y[-1])

    def store(self, storage: Storage, node: GraphNode) -> None:
        storage.store(node, "computed by BLAS")
        for view in factors_of(storage, node):
            storage.store_base(view.block, "operand of BLAS")


# -- values without operands -----------------------------------------------------------------------------------------
class _FillRule(Handler):
    def called(self, node: GraphNode) -> bool:
        return False

    def element(self, lowering: Lowering, node: GraphNode, index: Index) -> Operand:
        value = dict(node.params)["value"]
        return lowering.arguments.scalar((node, "value"), value, short_name(node.aval.dtype))


class _ProgressionRule(Handler):
    def called(self, node: GraphNode) -> bool:
        return False

    def cost(self, node: GraphNode) -> int:
        return 1

    def element(self, lowering: Lowering, node: GraphNode, index: Index) -> Operand:
        params, dtype = dict(node.params), short_name(node.aval.dtype)
        if isinstance(params["start"], int) and isinstance(params["step"], int):
            total = lowering.emit_index(lowering.progression(node, index))
        else:
            step, start = (lowering.arguments.scalar((node, name), params[name], "f64") for name in ("step", "start"))
            position = lowering.compute("cast", (lowering.emit_index(index[0]),), "f64")
            total = lowering.compute("add", (start, lowering.compute("mul", (step, position), "f64")), "f64")
        return total if dtype == total.dtype else lowering.compute("cast", (total,), dtype)


# -- results of multi-result ops -------------------------------------------------------------------------------------
class _ResultRule(Handler):
    def called(self, node: GraphNode) -> bool:
        return False

    def axes(self, dims: Dims, node: GraphNode, operands: list[Any]) -> Axes | None:
        result: Axes = operands[0][dict(node.params)["index"]]
        return result

    def store(self, storage: Storage, node: GraphNode) -> None:
        storage.store(node, f"result {node.result_index} of {node.operands[0].name}")
        storage.results[node.operands[0]].append(node)


# -- regions ---------------------------------------------------------------------------------------------------------
class _RegionsRule(Handler):
    def called(self, node: GraphNode) -> bool:
        return False


class _LoopRule(_RegionsRule):
    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Any:
        loop = LoopView.of(node)
        stacked = [dims.fresh(a.shape) for a in node.results[loop.first_stacked :]]
        dims.joined([x[:1] for x in (*loop.scanned(operands), *stacked)] or [()])
        trip_count: list[Axes] = [()] * (loop.first_stacked - loop.carries)
        return [*loop.initial(operands), *trip_count, *stacked]


HANDLERS: dict[type[forms.Form], Handler] = {
    forms.Call: Handler(),
    forms.Draw: Handler(),
    forms.Compose: Handler(),
    forms.Map: _MapRule(),
    forms.Cast: _CastRule(),
    forms.Move: _MoveRule(),
    forms.Along: _AlongRule(),
    forms.IdentityForm: _IdentityRule(),
    forms.Reshape: _ReshapeRule(),
    forms.Gather: _GatherRule(),
    forms.Scatter: _ScatterRule(),
    forms.FoldForm: _FoldRule(),
    forms.Scan: _ScanRule(),
    forms.Contract: _ContractRule(),
    forms.Fill: _FillRule(),
    forms.Progression: _ProgressionRule(),
    forms.Result: _ResultRule(),
    forms.Repeat: _LoopRule(),
    forms.While: _LoopRule(),
    forms.Branch: _RegionsRule(),
    forms.Run: _RegionsRule(),
    forms.Checked: CheckedHandler(),
    forms.Window: WindowHandler(),
    forms.Patch: PatchHandler(),
}


def handler(node: GraphNode) -> Handler:
    """The lowering rule of `node`, which must not be an input."""
    return HANDLERS[type(node.form)]


# -- queries of single nodes -----------------------------------------------------------------------------------------
def same_block(node: GraphNode) -> bool:
    """Whether `node` is a reshape, with the memory of its operand."""
    return isinstance(node.form, forms.Reshape)


def is_view(node: GraphNode) -> bool:
    """Whether `node` is a reshape or an axis view, whose consumer may read the operand instead."""
    return isinstance(node.form, forms.Reshape | forms.Along)


def is_prefix(node: GraphNode) -> bool:
    """Whether `node` is a prefix of its operand's memory."""
    return is_head(node) and node.aval.shape[1:] == node.operands[0].aval.shape[1:]


def _block_base(node: GraphNode, stored: Container[GraphNode]) -> GraphNode:
    """The value to store so that `node` is one block of memory."""
    while node not in stored and (same_block(node) or is_prefix(node)):
        node = node.inputs[0]
    return node


def is_trivial_reshape(node: GraphNode) -> bool:
    """Whether a reshape only adds or removes axes of size one."""
    old, new = node.inputs[0].aval.shape, node.aval.shape
    return [n for n in old if n != 1] == [n for n in new if n != 1]


def checks_indices(node: GraphNode) -> bool:
    """Whether `node` is a gather with an index that may be out of range."""
    if not isinstance(node.form, forms.Gather):
        return False
    x, *indices = node.operands
    return not all(in_range(i, x.aval.shape[a]) for i, a in zip(indices, dict(node.params)["axes"]))


def in_range(indices: GraphNode, size: int) -> bool:
    """Whether `indices` are an arithmetic progression within [0, `size`), so that no check is needed."""
    if not isinstance(indices.form, forms.Progression):
        return False
    params = dict(indices.params)
    first, step, length = params["start"], params["step"], indices.aval.size
    whole = isinstance(first, int) and isinstance(step, int)
    return whole and all(0 <= end < size for end in (first, first + step * (length - 1)) if length)
