"""Forward mode on the tape: within a dual level a Tensor may have a tangent, and ops propagate tangents.

The tangent of a result is `Op.push` of the operands' tangents. It is computed on Tensors and therefore recorded:
backward derivatives of a tangent are ordinary derivatives on the tape. A saved value has its tangent too, so a backward
pass within the level computes gradients with tangents.

An in-place update of a Tensor updates its tangent, and the tangents of all Tensors that share its memory. The end of a
level removes all tangents. Outside a level this module is not called.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import ad
from tracegrad.errors import located
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import Op
from tracegrad.ops.shape.linear import broadcast_to, cast, in_dtype, zeros_like
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.recording.composite_trace import Recipe
from tracegrad.torch.tape.recording.node import Dual, next_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracegrad.typing import Array


class DualLevel:
    """A dual level: its tangents, and the last node number that was used before the last tangent was computed."""

    def __init__(self) -> None:
        self.duals: weakref.WeakSet[Dual] = weakref.WeakSet()
        self.last = 0

    def end(self) -> None:
        """Remove all tangents."""
        for dual in self.duals:
            dual.tangent = None


class paused:
    """Context manager that suspends the dual level, so that tangents can be computed without tangents of their own."""

    def __enter__(self) -> None:
        inside = None, STATE.inference or STATE.watching or STATE.saving != ()
        self.before = STATE.level, STATE.unusual
        STATE.level, STATE.unusual = inside

    def __exit__(self, *_: object) -> None:
        STATE.level, STATE.unusual = self.before


def tangent_of(x: object) -> Any:
    """Return the tangent of a value, or None."""
    dual = getattr(x, "_dual", None)
    return None if dual is None else dual.tangent


def set_tangent(x: Any, tangent: Array, root: bool = False) -> None:
    """Set or remove the tangent of `x`; RuntimeError for another shape."""
    if tangent is None:
        x._dual = None
        return
    if tangent.shape != x.shape:
        raise RuntimeError(
            located(
                "Trying to set a forward gradient that has a different size than that of the original Tensor, this is "
                f"not supported. Tensor is of size {list(x.shape)} while the given forward gradient is of size "
                f"{list(tangent.shape)}."
            )
        )
    x._dual = Dual(tangent, root)


def set_absent(x: Any) -> None:
    """Give the view `x` no tangent: neither that of its base now, nor one by later updates in place."""
    x._dual = Dual(None, root=True)


# -- ops -----------------------------------------------------------------------------------------------------------
def pushed(op: Op, operands: Sequence[object], params: Mapping[str, object], outs: Any, node: Any) -> None:
    """Compute the tangents of an op's results (one, or a tuple), and set them there and on saved values of `node`."""
    tangents = [tangent_of(x) for x in operands]
    if all(t is None for t in tangents) or STATE.inference:
        return
    STATE.level.last = next_number()
    with paused():
        if op.piecewise_constant:
            result: Any = zeros_like(outs)
        else:
            args = tuple([t if op.differentiable_in(k) else None for k, t in enumerate(tangents)])
            if isinstance(op, Elementwise):
                args = tuple([None if t is None else _spread(t, outs) for t in args])
            result = op.push(args, outs, tuple(operands), params)
    is_multi = outs.__class__ is tuple
    for out, t in zip(outs if is_multi else (outs,), result if is_multi else (result,)):
        if t is not None and out.dtype.kind in "fc":
            _set_result_tangent(out, t, tangents)
    if node is not None:
        node.move(outs if is_multi else (outs,))


def _spread(t: Any, out: Any) -> Array:
    """Broadcast and promote the tangent of an operand of an elementwise op, as the op does with the operand."""
    dtype = np.result_type(t.dtype, out.dtype)
    t = t if t.dtype == dtype else cast(t, dtype=dtype.name)
    return t if t.shape == out.shape else broadcast_to(t, shape=out.shape)


def _set_result_tangent(out: Any, t: Any, tangents: Sequence[object]) -> None:
    """Set a computed tangent.

    A tangent that belongs to an operand is copied, unless `out` is a view of this operand.
    """
    with paused():
        if not hasattr(t, "_edge"):
            t = out._lift(t)
        t = t if t.dtype == out.dtype else in_dtype(t, out.dtype)
        t = t if t.shape == out.shape else broadcast_to(t, shape=out.shape)
        if out._base is None and (t._base is not None or any(t is other for other in tangents)):
            t = t.clone()
    set_tangent(out, t)


def pushed_through(recipe: Recipe, inputs: Sequence[object], outs: Sequence[object]) -> None:
    """Set the tangents of a composite function's results, as `pushed` does: apply its ops again, to Tensors."""
    tangents: dict[Any, Any] = {id(x): t for x in inputs if (t := tangent_of(x)) is not None}
    if not tangents:
        return
    with paused():
        values: list[Any] = list(recipe.template[: len(recipe.specs)])
        for k, x in zip(recipe.inputs, inputs):
            values[k] = x
        recipe.repeat(values, range(len(recipe.steps)))
        result = ad.forward_sweep(recipe.tape(values), tangents)
    for (slot, smooth), out in zip(recipe.outputs, outs):
        t = result.get(id(values[slot]))
        if smooth and t is not None:
            _set_result_tangent(out, t, list(tangents.values()))


def mapped(x: object, outs: Sequence[Array], parts: Sequence[Callable[[Any], Any]]) -> None:
    """Set the tangents of `outs`, which are `parts` of `x`, to the same parts of the tangent of `x`."""
    t = tangent_of(x)
    if t is not None:
        with paused():
            results = [part(t) for part in parts]
        for out, part in zip(outs, results):
            set_tangent(out, part)


# -- updates in place ------------------------------------------------------------------------------------------------
def protect(new: Array, x: Array) -> None:
    """Copy the values of `x` that nodes of the tangent of `new` have saved, before `new` overwrites `x`."""
    t = tangent_of(new)
    nodes, seen = [] if t is None else [t.grad_fn], set[Any]()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen and node.number > STATE.level.last:
            seen.add(node)
            node.protect(x)
            nodes += [e[0] if e.__class__ is tuple else e for e in node.edges if e]


def converted(value: Array, new: object) -> None:
    """Set the tangent of `value` to the tangent of `new`, broadcast and converted as `new` was."""
    t = tangent_of(new)
    if t is not None:
        with paused():
            t = t if t.dtype == value.dtype else in_dtype(t, value.dtype)
            t = t if t.shape == value.shape else broadcast_to(t, shape=value.shape)
        set_tangent(value, t)
