"""Saved values as hooks on saved tensors keep them: what the hook has packed, and how to unpack it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.torch.tape.tape import RELEASED, SECOND_TIME, rewrap

__all__ = ["Packed", "PackedValue", "RawSaved", "unpacked"]

Hook = Callable[[Any], Any]


class PackedValue:
    """What `pack` has made of the saved `array`, which `edge` leads to; called, it gives the array back."""

    __slots__ = ("kept", "unpack")

    def __init__(self, array: Any, edge: Any, pack: Hook, unpack: Hook):
        self.kept, self.unpack = pack(rewrap(array, edge)), unpack

    def __call__(self) -> Any:
        tensor = self.unpack(self.kept)
        if not hasattr(tensor, "_edge"):
            raise TypeError(
                located(
                    "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                    f"{type(tensor).__name__}"
                )
            )
        return tensor.array

    def protect(self, array: Any) -> None:
        """The memory of `array` is going to be overwritten: a Tensor kept in it is copied."""
        own = getattr(self.kept, "array", None)
        if isinstance(own, np.ndarray) and isinstance(array, np.ndarray) and np.may_share_memory(own, array):
            self.kept = rewrap(own.copy(), None)


class Packed:
    """Operands and answer of an op, some of which are `PackedValue`s."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[Any]):
        self.values = tuple(values)

    def protect(self, array: Any) -> None:
        """The memory of `array` is going to be overwritten."""
        for x in self.values:
            if x.__class__ is PackedValue:
                x.protect(array)


def unpacked(saved: Any) -> tuple[tuple[Any, ...], Any]:
    """Operands and answer out of what stands in their place."""
    if saved is RELEASED:
        raise RuntimeError(located(SECOND_TIME))
    values = tuple([x() if x.__class__ is PackedValue else x for x in saved.values])
    return values[:-1], values[-1]


class RawSaved:
    """A saved value of the node of an op, an operand or the answer (-1): `register_hooks` packs it."""

    __slots__ = ("node", "place")

    def __init__(self, node: Any, place: int):
        self.node, self.place = node, place

    def register_hooks(self, pack_hook: Hook, unpack_hook: Hook) -> None:
        """Keep `pack_hook(tensor)` instead of the value, and use the Tensor that `unpack_hook` makes of it.

        RuntimeError if there are such hooks already.
        """
        node, place = self.node, self.place
        values = [*node.operands, node.answer] if node.operands.__class__ is tuple else list(node.operands.values)
        if values[place].__class__ is PackedValue:
            raise RuntimeError(located("Calling register_hooks on a saved tensor whose hooks have already been set."))
        values[place] = PackedValue(values[place], (*node.edges, node)[place], pack_hook, unpack_hook)
        node.operands = Packed(values)
        gone = place % len(values)
        node.checks = [c for c in node.checks or () if c[2] % len(values) != gone]
