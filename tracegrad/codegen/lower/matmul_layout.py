"""Choose operand layouts of batched matmuls that BLAS can read and write without copies.

BLAS reads a matrix with any row or column stride, and the matrices of a batch may have any stride. Attention heads
split by `x.reshape(b, t, h, e).transpose(0, 2, 1, 3)` are therefore not copied, and a broadcast factor is not repeated.
A transposed product is written in the order in which it is read.

A *view* locates an operand in a block of memory: each axis is an axis of the block, or None where the operand repeats.
The batch axes are at most two runs, each of one stride.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tracegrad.codegen.loopir.polynomial import ONE, ZERO, Poly
from tracegrad.codegen.loopir.steps import MatrixStrides
from tracegrad.codegen.lower.packing_heuristic import is_head
from tracegrad.ir import Graph, GraphNode
from tracegrad.ops.core.forms import Contract
from tracegrad.ops.shape.linear import broadcast_to, reshape, transpose
from tracegrad.settings import disabled

if TYPE_CHECKING:
    from tracegrad.codegen.lower.materialize import Storage
    from tracegrad.codegen.lower.symbolic_shapes import Dims

Axes = tuple[int | None, ...]


class OperandView(NamedTuple):
    """An operand as a view of a block: for each axis the axis of the block."""

    block: GraphNode
    axes: Axes

    @property
    def flipped(self) -> bool:
        """Whether the columns of the matrices are contiguous, instead of their rows."""
        column = self.axes[-1]
        return column != len(self.block.aval.shape) - 1 and column != _last(self.block)


class MatmulLayout(NamedTuple):
    """The layouts of the factors and the result, and the number of products of a run."""

    x: MatrixStrides
    y: MatrixStrides
    out: MatrixStrides
    within: Poly


# -- storage -------------------------------------------------------------------------------------------------
def factors_of(storage: Storage, node: GraphNode) -> tuple[OperandView, OperandView]:
    """The views by which BLAS reads the factors: the ones that save most copies."""
    x, y = node.operands
    views, others = _views(storage, x), _views(storage, y)
    if len(node.aval.shape) <= 3:  # at most one batch axis
        return views[-1], others[-1]
    pairs = itertools.product(views[::-1], others[::-1])
    return next((x, y) for x, y in pairs if len(_breaks(x) | _breaks(y)) <= 1)


def transposable_products(graph: Graph) -> list[GraphNode]:
    """All transposed products."""
    return [x for x in graph.nodes if x.op is transpose and isinstance(x.inputs[0].form, Contract)]


def transposed_products(storage: Storage) -> dict[GraphNode, GraphNode]:
    """Map stored transposed products to the products that have no other use and can be written transposed.

    A transposed product with another consumer is stored for that consumer, which reads it row by row; matrix products
    read either order.
    """
    candidates = storage.facts.transposable
    if not candidates or disabled("transposed-products"):
        return {}
    users, outputs = storage.users, set(storage.graph.outputs)
    table = {}
    for x in candidates:
        product = x.inputs[0]
        if product in outputs or product in storage.called or len(users[product]) > 1:
            continue
        if x not in storage.reason and all(isinstance(y.form, Contract) for y in users[x]):
            continue
        if _fits(view := _as_transposed(product, x)):
            breaks = [_breaks(each) for each in (view, *factors_of(storage, product))]
            if len(set().union(*breaks)) <= 1:
                table[x] = product
                storage.store(x, "how its product is written")
    return table


def _as_transposed(product: GraphNode, transposed: GraphNode) -> OperandView:
    """The view of a product in the memory of its transposed result."""
    perm = dict(transposed.params)["perm"]
    return OperandView(transposed, tuple([perm.index(a) for a in range(len(perm))]))


def _views(storage: Storage, x: GraphNode) -> list[OperandView]:
    """The views of an operand: the operand itself, and each of its sources up to a stored value. A slice of a matrix is
    a view only if its source is stored."""
    axes: Axes = tuple(range(len(x.aval.shape)))
    result, cut = [OperandView(x, axes)], False
    while not storage.stored(x) and (sources := _sources(x)) is not None:
        if is_head(x):
            whole = x.inputs[0].aval.shape
            if any(a is not None and x.aval.shape[a] != whole[a] for a in axes[:-2]):
                break
            cut = True
        axes, x = tuple([None if a is None else sources[a] for a in axes]), x.inputs[0]
        if _fits(view := OperandView(x, axes)) and (storage.stored(x) or not cut):
            result.append(view)
    return result


def _sources(x: GraphNode) -> Axes | None:
    """The operand axis of each axis of `x`, or None if `x` repeats along the axis; None if `x` is not a view."""
    if is_head(x):
        return tuple(range(x.aval.ndim))
    if x.op is transpose:
        perm: Axes = dict(x.params)["perm"]
        return perm
    if x.op is broadcast_to:
        source_shape, whole = x.inputs[0].aval.shape, x.aval.shape
        added_axes = len(whole) - len(source_shape)
        return tuple(
            [
                a - added_axes if a >= added_axes and source_shape[a - added_axes] == n else None
                for a, n in enumerate(whole)
            ]
        )
    if x.op is reshape and is_head(x.inputs[0]) and x.inputs[0].aval.shape == (*x.aval.shape, 1):
        return tuple(range(x.aval.ndim))
    return None


def _fits(view: OperandView) -> bool:
    """Whether BLAS can read or write matrices of this view."""
    row, column = view.axes[-2:]
    if row is None or column is None or 1 in (view.block.aval.shape[row], view.block.aval.shape[column]):
        return False
    return _last(view.block) in (row, column)


def _last(block: GraphNode) -> int:
    """The contiguous axis of a block."""
    shape = block.aval.shape
    for a in range(len(shape) - 1, -1, -1):
        if shape[a] != 1:
            return a
    return len(shape) - 1


def _breaks(view: OperandView) -> frozenset[int]:
    """The batch axes that do not continue the axis before with the same stride."""
    return _breaks_of(view.block.aval.shape, view.axes)


@lru_cache(maxsize=1024)
def _breaks_of(shape: tuple[int, ...], axes: Axes) -> frozenset[int]:
    position = {a: k for k, a in enumerate([a for a, n in enumerate(shape) if n != 1])}
    runs = _runs(shape, axes)
    positions = [None if axes[i] is None else position[axes[i]] for i in runs]  # type: ignore[index]
    return frozenset(
        [
            i
            for i, p, q in zip(runs[1:], positions, positions[1:])
            if not (p is q is None or (p is not None and q is not None and q == p + 1))
        ]
    )


def _runs(shape: tuple[int, ...], axes: Axes) -> list[int]:
    """The batch axes with more than one element in the block, or with repetition."""
    return [i for i, a in enumerate(axes[:-2]) if a is None or shape[a] != 1]


# -- layouts -------------------------------------------------------------------------------------------------
def layout_of(
    node: GraphNode, factors: tuple[OperandView, OperandView], transposed: GraphNode | None, dims: Dims
) -> tuple[MatmulLayout, bool]:
    """The layouts of a product, and whether BLAS computes the transposed product from the transposed factors."""
    out = OperandView(node, tuple(range(node.aval.ndim))) if transposed is None else _as_transposed(node, transposed)
    views = [*factors, out]
    batch_sizes = dims.shape(node)[:-2]
    cuts = frozenset().union(*map(_breaks, views)) if len(batch_sizes) > 1 else None
    cut = next(iter(cuts)) if cuts else len(batch_sizes)
    x, y, result = [_matrix_strides(view, cut, dims) for view in views]
    flipped = transposed is not None and out.flipped
    return MatmulLayout(*((y, x) if flipped else (x, y)), result, math.prod(batch_sizes[cut:], start=ONE)), flipped


def _matrix_strides(view: OperandView, cut: int, dims: Dims) -> MatrixStrides:
    shape = dims.shape(view.block)

    def stride(axis: int | None) -> Poly:
        return ZERO if axis is None else math.prod(shape[axis + 1 :], start=ONE)

    *batch_axes, row, column = view.axes
    leading = stride(column if view.flipped else row)
    if not batch_axes:
        return MatrixStrides(leading, ZERO, ZERO)
    runs = _runs(view.block.aval.shape, view.axes)
    outer, inner = [i for i in runs if i < cut], [i for i in runs if i >= cut]
    return MatrixStrides(leading, *[stride(batch_axes[run[-1]] if run else None) for run in (outer, inner)])
