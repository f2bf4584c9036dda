"""Forward-mode derivatives of functions (`jvp`, `linearize`), inside a trace and eagerly.

Inside a trace, `traced_linear` runs a flat function on fresh copies of the arguments. It saves the part of the recorded
graph that depends on them: a *pushforward*. A call of it sweeps that part forwards and emits the tangents into the same
trace, so forward and reverse mode nest in any order.

Outside of a trace, the tape has only pullbacks. A pullback is linear in its cotangents, and its transpose, which is
again a pullback, is the pushforward (J. Townsend, "A new trick for calculating Jacobian vector products", 2017).

A function is linearized at a *point*: the primals. Integer and boolean primals have no tangents.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import ad, tree
from tracegrad.avals import is_literal, name_of
from tracegrad.errors import DTypeError, ShapeError, TraceError, located
from tracegrad.numpy_api.protocols import require_plain
from tracegrad.ops import TapeCarrier
from tracegrad.ops.shape.linear import full, zeros_like
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.sources.describe import Description
from tracegrad.trace.values.tracer import Tracer
from tracegrad.transforms.flat_function import (
    FlatCall,
    FlatFunction,
    Tape,
    calling,
    dependent_nodes,
    is_array,
    on_tape,
    recorded,
    type_text,
)

if TYPE_CHECKING:
    from tracegrad.typing import Array, Number


Pushforward = Callable[[Sequence[Any]], list[Any]]


# -- flat functions ----------------------------------------------------------------------------------------------------
class _TracedPushforward:
    """Pushforward: from tangents of inputs to tangents of outputs (None for zero)."""

    def __init__(self, builder: TraceBuilder, inputs: Sequence[Tracer], outputs: Sequence[Tracer]):
        self.builder = builder
        self.inputs, self.outputs = [x.node for x in inputs], [x.node for x in outputs]
        self.tape = Tape(builder, dependent_nodes(builder.nodes, self.inputs, self.outputs))

    def __call__(self, tangents: list[Array] | tuple[Array, ...]) -> list[Array | None]:
        builder = self.builder.innermost()
        moved = {x: builder.lift(_array(t)) for x, t in zip(self.inputs, tangents)}
        result = self.tape.swept(ad.forward_sweep, moved)
        return [result.get(x) for x in self.outputs]


def _array(x: Array | Number) -> Array:
    return full(shape=(), value=x, dtype="float64") if is_literal(x) else x


def traced_linear(fn: FlatFunction, primals: Any) -> Any:
    """Linearize `fn` in the current trace: its flat outputs, and the function from tangents of the primals to their
    tangents."""
    builder, inside, outputs = recorded(fn, primals)
    return outputs, _TracedPushforward(builder, inside, outputs)


def eager_linear(fn: FlatFunction, primals: Any) -> Any:
    """Linearize on the tape, as `traced_linear`."""
    from tracegrad.torch.tape.backward.functional import eager_vjp

    outputs, pullback = eager_vjp(fn, primals)
    floating = [k for k, y in enumerate(outputs) if y.dtype.kind in "fc"]

    def pulled(*cts: Any) -> list[Any]:
        seeds: list[Any] = [None] * len(outputs)
        for k, ct in zip(floating, cts):
            seeds[k] = ct
        with _transposing():
            return pullback(seeds)

    if not floating:
        return outputs, lambda tangents: [None] * len(outputs)
    _, pushforward = eager_vjp(pulled, [_zero(outputs[k]) for k in floating])

    def pushed(tangents: Sequence[Any]) -> list[Any]:
        table = dict(zip(floating, pushforward(tangents)))
        return [table.get(k) for k in range(len(outputs))]

    return outputs, pushed


def _zero(x: Array) -> Any:
    """The zero tangent, or cotangent, of an output."""
    if isinstance(x, np.ndarray | np.generic):
        return np.zeros(x.shape, x.dtype)[()]
    return x._like(zeros_like(x)) if isinstance(x, TapeCarrier) else zeros_like(x)


def linear_at(fn: FlatFunction, primals: Sequence[Any]) -> Any:
    """Linearize `fn`: its flat outputs, and the function from tangents of the primals to their tangents (None for
    zero)."""
    return eager_linear(fn, primals) if on_tape(primals) else traced_linear(fn, primals)


class _TransposeMode(threading.local):
    transposing = False


_mode = _TransposeMode()


def transposing() -> bool:
    """Whether a pullback of this thread runs only to be transposed."""
    return _mode.transposing


class _transposing:
    def __enter__(self) -> None:
        self.before, _mode.transposing = _mode.transposing, True

    def __exit__(self, *_: object) -> None:
        _mode.transposing = self.before


# -- user functions ----------------------------------------------------------------------------------------------------
class LinearizationPoint:
    """The point of a linearization: the flattened positional arguments, and which leaves have tangents."""

    def __init__(self, primals: Sequence[Any], label: Description):
        self.label, self.args = label, primals
        self.leaves, self.structure = tree.flatten(tuple(primals))
        self.positions = [k for k, x in enumerate(self.leaves) if self._moves(k, x)]

    @property
    def moving(self) -> list[Array]:
        """The leaves that have tangents."""
        return [self.leaves[k] for k in self.positions]

    def replaced(self, leaves: tuple[Array, ...]) -> Sequence[Any]:
        """The arguments with these values for the leaves that have tangents."""
        table = dict(zip(self.positions, leaves))
        arguments: Sequence[Any] = tree.unflatten(self.structure, [table.get(k, x) for k, x in enumerate(self.leaves)])
        return arguments

    def filled(self, tangents: list[Array | Number]) -> Any:
        """Tangents of all arguments: 0 for leaves without tangents."""
        table = dict(zip(self.positions, tangents))
        return tree.unflatten(self.structure, [table.get(k, 0) for k in range(len(self.leaves))])

    def tangents(self, values: Sequence[Any]) -> list[Any]:
        """The tangents of the leaves that have tangents, selected from the tangents of all arguments.

        Raises TypeError for another structure or dtype than the primals have, `ShapeError` for another shape.
        """
        leaves, structure = tree.flatten(tuple(values))
        if not tree.alike(structure, self.structure):
            raise TypeError(
                located(
                    f"{self.label}: primals and tangents must have the same tree structure; the primals have "
                    f"{self.structure}, the tangents have {structure}"
                )
            )
        return [self._tangent(k, leaves[k]) for k in self.positions]

    def _name(self, k: int) -> str:
        path = tree.paths(self.structure)[k]
        number, _, rest = path[1:].partition("]")
        return self.label.argument(int(number)) + rest

    def _moves(self, k: int, x: Any) -> bool:
        require_plain(x, lambda: f"{self.label}: {self._name(k)}")
        if is_array(x):
            return bool(x.dtype.kind in "fc")
        if type(x) not in (int, bool, float):
            text = f"{self.label} cannot differentiate with respect to {self._name(k)}, which is a {type(x).__name__}"
            raise TraceError(located(text))
        return type(x) is float

    def _tangent(self, k: int, t: Array | Number) -> Array | Number:
        x = self.leaves[k]
        if is_literal(t):
            if is_literal(x):
                return float(t)  # type: ignore[arg-type]
            t = full(shape=(), value=t, dtype=name_of(x.dtype))
        if not is_array(t):
            raise TypeError(
                located(f"{self.label}: the tangent of {self._name(k)} must be an array, got {type_text(t)}")
            )
        shape, dtype = ((), np.dtype(np.float64)) if is_literal(x) else (x.shape, x.dtype)
        if t.shape != shape:
            text = f"the tangent of {self._name(k)} has shape {t.shape}, the primal has shape {shape}"
            raise ShapeError(located(f"{self.label}: {text}"))
        if t.dtype != dtype:
            text = f"the tangent of {self._name(k)} has dtype {t.dtype}, the primal has dtype {dtype}"
            raise DTypeError(located(f"{self.label}: {text}"))
        return t


def linear(
    fun: Callable[..., Any], point: LinearizationPoint, has_aux: bool
) -> tuple[Any, Callable[[Sequence[Any]], Any], Any]:
    """Linearize `fun` at a point: its output, the function from tangents to the output's tangent, and aux."""
    flat = FlatCall(calling(fun), point, point.label, has_aux)
    values, pushforward = linear_at(flat, point.moving)
    outputs, aux = flat.split(values)

    def push(tangents: Sequence[Any]) -> Any:
        result = pushforward(tangents)
        return tree.unflatten(flat.structure, [_zero(y) if t is None else t for t, y in zip(result, outputs)])

    return tree.unflatten(flat.structure, outputs), push, aux


def jvp(
    fun: Callable[..., object], point: LinearizationPoint, tangents: Sequence[Any], has_aux: bool
) -> tuple[Any, Any, Any]:
    """The output of `fun` at a point, its tangent for these input tangents, and aux."""
    out, push, aux = linear(fun, point, has_aux)
    return out, push(tangents), aux
