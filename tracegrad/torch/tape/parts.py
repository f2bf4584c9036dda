"""Functions that take an array apart along one axis, as one node with an output for each part.

They are functions of several ops like others (`composite`), but so simple and so often called that the ops are
left out: each part is NumPy's view of an index, and its cotangent goes there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tracegrad.numpy_api import indexing
from tracegrad.torch.tape import views
from tracegrad.torch.tape.modes import STATE
from tracegrad.torch.tape.tape import Masked, Node, added, next_number, unmasked

__all__ = ["PARTS"]


class PartsNode(Node):
    """The node of parts of an array of `shape` and `dtype`, each at one of the `indices`."""

    __slots__ = ("count", "dim", "dtype", "indices", "shape")
    batches = True
    several = True
    count: int
    dim: int
    dtype: Any
    indices: Sequence[Any]
    shape: tuple[int, ...]

    def pull(self, cts: Any, recording: bool) -> Sequence[Any]:
        given = [(index, ct) for index, ct in zip(self.indices, cts) if ct is not None]
        if recording or not all(isinstance(unmasked(ct), np.ndarray | np.generic) for _, ct in given):
            return [self._spread(given)]
        total = np.zeros(self.shape, self.dtype)
        mask = np.zeros(self.shape, np.bool_) if any(ct.__class__ is Masked for _, ct in given) else None
        for index, ct in given:
            total[index] = unmasked(ct)
            if mask is not None:
                mask[index] = ct.mask if ct.__class__ is Masked else True
        return [total if mask is None else Masked(total, mask)]

    def _spread(self, given: Sequence[tuple[Any, Any]]) -> Any:
        probe = np.broadcast_to(np.zeros((), self.dtype), self.shape)
        total: Any = None
        for index, ct in given:
            plan = indexing.plan(probe, index)
            found = plan.spread(unmasked(ct))
            found = Masked(found, plan.spread(ct.mask)) if ct.__class__ is Masked else found
            total = found if total is None else added(total, found)
        return total

    @property
    def _saved_dim(self) -> int:
        return self.dim


def _parts(cls: type[PartsNode], x: Any, dim: int, indices: Sequence[Any]) -> tuple[Any, ...]:
    array, node = x.array, None
    if x._requires and STATE.enabled and not STATE.inference:
        node = cls()
        node.indices, node.count, node.dim, node.shape, node.dtype = (
            indices,
            len(indices),
            dim,
            array.shape,
            array.dtype,
        )
        node.edges, node.hooks, node.number = (x._edge_of(),), None, next_number()
    outputs = []
    for k, index in enumerate(indices):
        out = x._like(array[index])
        views.register(out, x, partial(_picked, index), "several" if STATE.enabled else "")
        if node is not None:
            out._requires, out._edge = True, (node, k) if k else node
        if STATE.unusual:
            x._unusually(out, None if k else node)
        outputs.append(out)
    return tuple(outputs)


def _picked(index: Any, x: Any) -> Any:
    return x[index]


def _unbound(cls: type[PartsNode], x: Any, *, dim: int) -> tuple[Any, ...]:
    before = (slice(None),) * dim
    return _parts(cls, x, dim, [(*before, k, ...) for k in range(x.shape[dim])])


def _split(cls: type[PartsNode], x: Any, *, dim: int, bounds: Sequence[int]) -> tuple[Any, ...]:
    before = (slice(None),) * dim
    return _parts(cls, x, dim, [(*before, slice(a, b), ...) for a, b in itertools.pairwise(bounds)])


def _way(name: str, function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    return partial(function, type(name, (PartsNode,), {"__slots__": ()}))


# By the name of the node, the function of a Tensor and what `torch_api` calls it with.
PARTS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "UnbindBackward0": _way("UnbindBackward0", _unbound),
    "SplitBackward0": _way("SplitBackward0", _split),
    "SplitWithSizesBackward0": _way("SplitWithSizesBackward0", _split),
}
