"""Utilities of batching rules, see `Op.batch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad import tree
from tracegrad.avals import is_literal
from tracegrad.errors import ShapeError, located
from tracegrad.ops.shape.linear import broadcast_to, reshape, slice, transpose
from tracegrad.typing import Array


def repeated(size: int, batched: Sequence[bool], operands: Sequence[Any]) -> list[Any]:
    """The operands, with unbatched ones repeated along a new axis 0; literals stay."""
    return [
        x if is_batched or is_literal(x) else broadcast_to(x, shape=(size, *x.shape))
        for x, is_batched in zip(operands, batched)
    ]


def to_axis(x: Array, source: int, target: int) -> Array:
    """`x` with its axis `source` moved to `target`, and the others in order."""
    if source == target:
        return x
    rest = [a for a in range(len(x.shape)) if a != source]
    return transpose(x, perm=(*rest[:target], source, *rest[target:]))


def item_at(x: Any, i: int) -> Array:
    """`x[i]`, in ops."""
    rest = (0,) * (len(x.shape) - 1)
    item = slice(x, start=(i, *rest), stop=(i + 1, *x.shape[1:]), step=(1,) * len(x.shape))
    return reshape(item, shape=x.shape[1:])


def spread(axes: Any, value: object, name: str, path: str) -> list[int | None]:
    """The axis of each leaf of `value`; `axes` must be a prefix of its structure, else ValueError."""
    if axes is None or type(axes) is int:
        return [axes] * len(tree.leaves(value))
    if not tree.is_node(value) or tree.skeleton(axes) != tree.skeleton(value):
        text = f"{name} must be a prefix of the structure of the value, but at {path} it is {axes!r}"
        raise ShapeError(located(f"{text} for {tree.structure(value)}"))
    pairs = zip(tree.children(axes), tree.children(value), strict=True)
    return [a for child, x in pairs for a in spread(child, x, name, path)]


def axes_of_leaves(axes: object, value: object) -> list[int | None] | None:
    """The axis of each leaf of `value`; None unless `axes` is a prefix of its structure."""
    try:
        return spread(axes, value, "", "")
    except ShapeError:
        return None
