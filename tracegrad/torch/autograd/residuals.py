"""Residuals of an opaque call: the context that `forward` fills, as values of a graph.

Arrays and numbers are results of the node that calls `forward`. As values of a program they can be stacked by loops,
and read by a backward pass that runs later, or twice. If the context has other objects, or differs from the context of
the traced call, the process holds the context itself, and the graph passes its number.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import SUPPORTED, Aval
from tracegrad.locks import new_lock
from tracegrad.ops.core.dispatch import Carrier
from tracegrad.torch.autograd.function_ctx import FunctionCtx
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.torch.tape.tensors.tensor import of_array

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = ["ContextResiduals"]

# Attributes that are not the user's state: known from the traced call, or not needed in a backward pass.
_NON_STATE = {
    "needs_input_grad",
    "materialize_grads",
    "dirty_tensors",
    "non_differentiable",
    "_saved",
    "saved_for_forward",
}
_FIXED = (type(None), str, bytes)
_NUMBERS = (bool, int, float, complex)


class _LeafKind:
    """Kind of a leaf: whether it is stored in the graph, and the properties that are equal in each call."""

    def __init__(self, x: Any):
        array = x.array if isinstance(x, Recorded) else x
        self.stored = True
        self.signature: Any
        if isinstance(x, Recorded | np.ndarray | np.generic):
            plain = type(array) is np.ndarray or isinstance(array, np.generic)
            stored = plain and not isinstance(array, Carrier) and array.dtype in SUPPORTED
            self.signature = (type(x), array.shape, array.dtype) if stored else None
        elif type(x) in _NUMBERS:
            self.signature = type(x) if type(x) is not int or abs(x) < 2**63 else None
        else:
            self.stored, self.signature = False, (type(x), x) if type(x) in _FIXED else None

    @property
    def aval(self) -> Aval:
        if isinstance(self.signature, tuple):
            return Aval(self.signature[1], self.signature[2])
        return Aval((), np.dtype(np.int64 if self.signature is int else self.signature))

    def restored(self, x: Any) -> Any:
        """Return the leaf from its stored array."""
        if not isinstance(self.signature, tuple):
            return x.item()
        if issubclass(self.signature[0], Recorded):
            return of_array(x.copy())
        return x.copy() if self.signature[0] is np.ndarray else x[()]


class ContextResiduals:
    """Contents of the context during tracing: its structure, and the kind of each leaf."""

    def __init__(self, context: FunctionCtx):
        self.context = context
        leaves, self.structure = _flattened(context)
        self.kinds = [_LeafKind(x) for x in leaves]
        self.fixed = [None if kind.stored else x for x, kind in zip(leaves, self.kinds)]
        # Whether a backward pass reads held contexts.
        self.read = False

    @property
    def avals(self) -> list[Aval]:
        """Return the avals of the number of the held context, and of all stored leaves."""
        return [Aval((), np.dtype(np.int64)), *(kind.aval for kind in self.kinds if kind.stored and kind.signature)]

    def of(self, context: FunctionCtx) -> list[object]:
        """Return the contents of the context after a call, as arrays of these avals."""
        leaves, structure = _flattened(context)
        kinds = [_LeafKind(x) for x in leaves]
        known = [kind.signature for kind in self.kinds]
        if structure != self.structure or None in known or [kind.signature for kind in kinds] != known:
            number = _contexts.add(context) if self.read else 0
            return [np.int64(number), *(np.zeros(a.shape, a.dtype) for a in self.avals[1:])]
        arrays = [x.array if isinstance(x, Recorded) else x for x, kind in zip(leaves, kinds) if kind.stored]
        return [np.int64(0), *map(np.asarray, arrays)]

    def restored(self, cls: Any, needs: tuple[bool, ...], arrays: Sequence[Array]) -> FunctionCtx:
        """Return the context of a call from its stored arrays."""
        number, supply = int(arrays[0]), iter(arrays[1:])
        if number or None in [kind.signature for kind in self.kinds]:
            return _contexts.get(number, cls.__name__)
        leaves = [kind.restored(next(supply)) if kind.stored else x for kind, x in zip(self.kinds, self.fixed)]
        context: FunctionCtx = cls._context_cls()
        for name, x in tree.unflatten(self.structure, leaves).items():
            setattr(context, name, x)
        context.needs_input_grad, context.materialize_grads = needs, self.context.materialize_grads
        context._saved = context.to_save
        return context


def _flattened(context: FunctionCtx) -> Any:
    return tree.flatten({name: x for name, x in vars(context).items() if name not in _NON_STATE})


class _ContextStore:
    """Contexts that wait for their backward pass, and the last ones that had one, because it may run again."""

    WAITING, AGAIN = 2**14, 64

    def __init__(self) -> None:
        self._numbers, self._lock = itertools.count(1), new_lock()
        self._waiting: dict[int, FunctionCtx] = {}
        self._again: dict[int, FunctionCtx] = {}

    def add(self, context: FunctionCtx) -> int:
        with self._lock:
            number = next(self._numbers)
            _add_bounded(self._waiting, number, context, self.WAITING)
            return number

    def get(self, number: int, name: str) -> FunctionCtx:
        with self._lock:
            context = self._waiting.pop(number, None) or self._again.pop(number, None)
            if context is not None:
                _add_bounded(self._again, number, context, self.AGAIN)
                return context
        raise RuntimeError(
            f"what {name}.forward left in its context is not held any more: an object in it is neither an array nor a "
            "number, or an array has another shape than when the call was traced; keep arrays of the same shapes and "
            "numbers in the context"
        )


def _add_bounded(held: dict[int, FunctionCtx], number: int, context: FunctionCtx, limit: int) -> None:
    held[number] = context
    if len(held) > limit:
        del held[next(iter(held))]


_contexts = _ContextStore()
