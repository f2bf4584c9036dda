"""How the factors and the result of a stack of matrix products lie in memory, where BLAS takes them as they are.

BLAS reads a matrix whose rows, or columns, lie any distance apart, and a stack of products is calls at any distances.
So heads that are split from rows, `x.reshape(b, t, h, e).transpose(0, 2, 1, 3)`, are not copied together, a factor that
is the same for all of a stack is not repeated, and a product that is only transposed is written as it is read.

A *view* says where an operand is: in a block of memory, whose axes those of the operand are; None for an axis along
which it repeats. The axes of a stack are at most two runs, each of one stride.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tracegrad.codegen.loopir.polynomial import ONE, ZERO, Poly
from tracegrad.codegen.loopir.steps import Lie
from tracegrad.codegen.lower.packing_heuristic import is_head
from tracegrad.ir import Graph, Node
from tracegrad.ops.core.forms import Contract
from tracegrad.ops.shape.linear import broadcast_to, reshape, transpose

if TYPE_CHECKING:
    from tracegrad.codegen.lower.materialize import Storage
    from tracegrad.codegen.lower.symbolic_shapes import Dims

__all__ = ["View", "factors_of", "layout_of", "turnable_products", "turned_products"]

Axes = tuple[int | None, ...]


class View(NamedTuple):
    """An operand as what its axes are of a block."""

    block: Node
    axes: Axes

    @property
    def flipped(self) -> bool:
        """Whether the columns of the matrices lie close together, instead of their rows."""
        column = self.axes[-1]
        return column != len(self.block.aval.shape) - 1 and column != _last(self.block)


class Layout(NamedTuple):
    """Where the factors and the result are, and how many products follow each other at their inner distances."""

    x: Lie
    y: Lie
    out: Lie
    within: Poly


# -- what is stored ------------------------------------------------------------------------------------------
def factors_of(storage: Storage, node: Node) -> tuple[View, View]:
    """The views by which BLAS reads the operands of a product: those that save most copies."""
    x, y = node.operands
    views, others = _views(storage, x), _views(storage, y)
    if len(node.aval.shape) <= 3:  # the axes before those of a matrix are one at most
        return views[-1], others[-1]
    pairs = itertools.product(views[::-1], others[::-1])
    return next((x, y) for x, y in pairs if len(_breaks(x) | _breaks(y)) <= 1)


def turnable_products(graph: Graph) -> list[Node]:
    """All transposed products."""
    return [x for x in graph.nodes if x.op is transpose and isinstance(x.inputs[0].form, Contract)]


def turned_products(storage: Storage) -> dict[Node, Node]:
    """Transposed products that are stored, with the products that are used for nothing else and can be written so.

    What something else than a product reads, row by row as a rule, is stored for it; products read either order.
    """
    candidates = storage.facts.turnable
    if not candidates:
        return {}
    users, outputs = storage.users, set(storage.graph.outputs)
    found = {}
    for x in candidates:
        product = x.inputs[0]
        if product in outputs or product in storage.called or len(users[product]) > 1:
            continue
        if x not in storage.reason and all(isinstance(y.form, Contract) for y in users[x]):
            continue
        if _fits(view := _as_turned(product, x)):
            breaks = [_breaks(each) for each in (view, *factors_of(storage, product))]
            if len(set().union(*breaks)) <= 1:
                found[x] = product
                storage.store(x, "how its product is written")
    return found


def _as_turned(product: Node, turned: Node) -> View:
    """A product as it lies in what it is transposed to."""
    perm = dict(turned.params)["perm"]
    return View(turned, tuple([perm.index(a) for a in range(len(perm))]))


def _views(storage: Storage, x: Node) -> list[View]:
    """The views of an operand: as it is, and as more and more of what it is made of, as far as that is not stored; a
    part of a matrix only of one that is."""
    axes: Axes = tuple(range(len(x.aval.shape)))
    found, cut = [View(x, axes)], False
    while not storage.stored(x) and (sources := _sources(x)) is not None:
        if is_head(x):
            whole = x.inputs[0].aval.shape
            if any(a is not None and x.aval.shape[a] != whole[a] for a in axes[:-2]):
                break
            cut = True
        axes, x = tuple([None if a is None else sources[a] for a in axes]), x.inputs[0]
        if _fits(view := View(x, axes)) and (storage.stored(x) or not cut):
            found.append(view)
    return found


def _sources(x: Node) -> Axes | None:
    """For each axis the one of the operand that it is, None if that is repeated along it; None if `x` is something
    else."""
    if is_head(x):
        return tuple(range(x.aval.ndim))
    if x.op is transpose:
        perm: Axes = dict(x.params)["perm"]
        return perm
    if x.op is broadcast_to:
        own, whole = x.inputs[0].aval.shape, x.aval.shape
        left = len(whole) - len(own)
        return tuple([a - left if a >= left and own[a - left] == n else None for a, n in enumerate(whole)])
    if x.op is reshape and is_head(x.inputs[0]) and x.inputs[0].aval.shape == (*x.aval.shape, 1):
        return tuple(range(x.aval.ndim))
    return None


def _fits(view: View) -> bool:
    """Whether BLAS can read, or write, matrices that lie so."""
    row, column = view.axes[-2:]
    if row is None or column is None or 1 in (view.block.aval.shape[row], view.block.aval.shape[column]):
        return False
    return _last(view.block) in (row, column)


def _last(block: Node) -> int:
    """The axis along which elements lie side by side."""
    shape = block.aval.shape
    for a in range(len(shape) - 1, -1, -1):
        if shape[a] != 1:
            return a
    return len(shape) - 1


def _breaks(view: View) -> frozenset[int]:
    """The axes of a stack that do not continue the one before at the same stride."""
    return _breaks_of(view.block.aval.shape, view.axes)


@lru_cache(maxsize=1024)
def _breaks_of(shape: tuple[int, ...], axes: Axes) -> frozenset[int]:
    place = {a: k for k, a in enumerate([a for a, n in enumerate(shape) if n != 1])}
    runs = _runs(shape, axes)
    places = [None if axes[i] is None else place[axes[i]] for i in runs]  # type: ignore[index]
    return frozenset([
        i for i, p, q in zip(runs[1:], places, places[1:])
        if not (p is q is None or (p is not None and q is not None and q == p + 1))
    ])  # fmt: skip


def _runs(shape: tuple[int, ...], axes: Axes) -> list[int]:
    """The axes of a stack that have more than one element in the block, or repeat it."""
    return [i for i, a in enumerate(axes[:-2]) if a is None or shape[a] != 1]


# -- where it lies -------------------------------------------------------------------------------------------
def layout_of(node: Node, factors: tuple[View, View], turned: Node | None, dims: Dims) -> tuple[Layout, bool]:
    """How the parts of a product lie; and whether the transposed product is what is computed, of the transposed."""
    out = View(node, tuple(range(node.aval.ndim))) if turned is None else _as_turned(node, turned)
    views = [*factors, out]
    lead = dims.shape(node)[:-2]
    cuts = frozenset().union(*map(_breaks, views)) if len(lead) > 1 else None
    cut = next(iter(cuts)) if cuts else len(lead)
    x, y, result = [_lie(view, cut, dims) for view in views]
    flipped = turned is not None and out.flipped
    return Layout(*((y, x) if flipped else (x, y)), result, math.prod(lead[cut:], start=ONE)), flipped


def _lie(view: View, cut: int, dims: Dims) -> Lie:
    shape = dims.shape(view.block)

    def stride(axis: int | None) -> Poly:
        return ZERO if axis is None else math.prod(shape[axis + 1 :], start=ONE)

    *lead, row, column = view.axes
    leading = stride(column if view.flipped else row)
    if not lead:
        return Lie(leading, ZERO, ZERO)
    runs = _runs(view.block.aval.shape, view.axes)
    outer, inner = [i for i in runs if i < cut], [i for i in runs if i >= cut]
    return Lie(leading, *[stride(lead[part[-1]] if part else None) for part in (outer, inner)])
