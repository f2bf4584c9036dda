"""Utilities of batching rules, see `Op.batch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import is_literal
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
