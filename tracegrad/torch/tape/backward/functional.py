"""Eager derivatives of functions: the transforms on Tensors, and the fallback of traces.

`eager_vjp` runs a flat function on Tensors that alias the primals. The derivative is therefore with respect to this use
of the primals only, and nested derivatives do not confuse their perturbations. Inside another eager derivative all
results stay on the tape. The outermost one returns ndarrays, and Tensors for Tensors. The Tensors have a history if
they depend on a value from outside that requires grad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.errors import READ_ONLY, DTypeError, located, uncaught
from tracegrad.ops.core.memory_order import with_strides_of
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.shape.linear import fresh, full
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward import dual, engine
from tracegrad.torch.tape.recording.node import rewrap
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.torch.tape.tensors.tape_array import TapeArray, WeakArray
from tracegrad.torch.tape.tensors.tensor import Tensor
from tracegrad.torch.tape.tensors.traced_tensor import TracedTensor

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.torch.tape.recording.node import Node
    from tracegrad.typing import Array


Pullback = Callable[[Sequence[Any]], list[Any]]


def eager_vjp(
    fn: Callable[..., Sequence[Any]], primals: Sequence[Any], wrt: Sequence[int] | None = None
) -> tuple[list[Any], Pullback]:
    """Compute the flat outputs of `fn` and a function from their cotangents to those of the primals `wrt`.

    Primals are ndarrays, Tensors and Python numbers. The primals in `wrt` (by default all) must be floating
    (`DTypeError`), and are Tensors inside `fn`. The cotangent None stands for zero. The function may be called more
    than once.

    >>> outputs, pullback = eager_vjp(lambda x, y: [x * y], [np.array([1.0, 2.0]), 3.0])
    >>> outputs, pullback([np.array([1.0, 1.0])])
    ([array([3., 6.])], [array([3., 3.]), np.float64(3.0)])
    """
    positions = range(len(primals)) if wrt is None else wrt
    inside, updated = list(primals), []
    on_tape = _stays_on_tape(primals)
    modes = STATE.enabled, STATE.inference, STATE.unusual
    STATE.enabled, STATE.inference, STATE.unusual = True, False, STATE.is_unusual(False)
    try:
        inputs = [_input(i, primals[i]) for i in positions]
        for i, args in zip(positions, inputs):
            inside[i] = args
            if args.shape and not args.weak:  # which `fn` may update
                inside[i] = _alias_of(args, primals[i])
                updated.append((inside[i], primals[i]))
        STATE.depth += 1
        try:
            with uncaught():
                outputs = [x if isinstance(x, Recorded) else _output(x) for x in fn(*inside)]
        finally:
            STATE.depth -= 1
    finally:
        STATE.enabled, STATE.inference, STATE.unusual = modes
        for x, primal in updated:
            if x._counter is not None and x._counter[0]:
                primal._assign(x) if isinstance(primal, Recorded) else np.copyto(primal, x.array)
    for x in inputs:
        x._inner = True  # type: ignore[attr-defined]

    def pullback(cotangents: Sequence[Tensor]) -> list[Array]:
        create_graph = on_tape or _stays_on_tape(cotangents)
        result = _pull(outputs, inputs, cotangents, create_graph=create_graph)
        return [_as_result(ct, create_graph) for ct in result]

    return [_as_result(x, on_tape) for x in outputs], pullback


def _stays_on_tape(values: Sequence[Array]) -> bool:
    return STATE.depth > 0 or any(isinstance(x, Recorded) for x in values)


def _input(i: int, primal: Operand | TapeArray) -> Recorded:
    """Make a recorded alias of `primal`, whose history leads to `primal` if that is on a tape."""
    if isinstance(primal, Recorded):
        source = primal
    elif type(primal) in LITERALS:
        source = WeakArray(np.asarray(primal))
    else:
        source = TapeArray(np.asarray(primal))
    if source.dtype.kind not in "fc":
        raise DTypeError(located(f"derivatives need floating inputs, argument {i} has dtype {source.dtype}"))
    # In a region of a trace, the stand-in of an outside value has no history: the node of the region has it.
    alias: Any = fresh(source, tag=0) if source.requires_grad else source
    if not alias.requires_grad:
        source = alias
        alias = source._like(source._snapshot())
        if STATE.level is not None:
            dual.mapped(primal, [alias], [_itself])
        alias._requires = True
    if source.weak:
        alias.__class__ = WeakArray
    return alias  # type: ignore[no-any-return]


def _alias_of(x: Recorded, primal: Any) -> Any:
    """Return the argument `x` as the function receives it: an alias that may be updated in place, like `primal`."""
    alias: Any = fresh(x, tag=0)
    alias.__class__ = x.__class__
    if isinstance(x.array, np.ndarray) and x.array.strides != alias.array.strides:
        alias.array = with_strides_of(x.array)
    if isinstance(primal, np.ndarray) and not primal.flags.writeable:
        alias._frozen = READ_ONLY
    result: Recorded = alias
    return result


def _output(x: Array) -> Recorded:
    return TapeArray(np.asarray(x))


def _pull(
    outputs: Sequence[Recorded], inputs: Sequence[Recorded], cotangents: Sequence[object], create_graph: bool
) -> list[Tensor]:
    pairs = [(x, _cotangent(x, ct)) for x, ct in zip(outputs, cotangents) if ct is not None and x.requires_grad]
    if not pairs:
        return [_in_class_of(x, x._constant(np.zeros(x.shape, x.dtype))) for x in inputs]
    outs, cts = zip(*pairs)
    result = engine.grad(outs, inputs, cts, retain_graph=True, create_graph=create_graph, allow_unused=True)
    return [_in_class_of(x, _zeros(x) if ct is None else ct) for x, ct in zip(inputs, result)]


def _zeros(x: Recorded) -> Tensor:
    """Return a cotangent of zeros, without a history."""
    zeros: Tensor = rewrap(full(shape=x.shape, value=0.0, dtype=x.dtype.name), None)
    return zeros


def _in_class_of(x: Recorded, tensor: Recorded) -> Any:
    """Convert `tensor`, a Tensor of the engine, to the class of `x`; in a trace, return the traced value."""
    if isinstance(tensor, TracedTensor):
        return tensor
    out: Any = x._like(tensor.array)
    out._requires, out._edge = tensor._requires, tensor._edge_of()
    if STATE.level is not None:
        dual.mapped(tensor, [out], [_itself])
    result: Recorded = out
    return result


def _cotangent(x: Recorded, ct: object) -> Any:
    if isinstance(ct, Carrier):
        if isinstance(ct, Recorded):
            return ct
        return TracedTensor(ct) if isinstance(x, Tensor) and not isinstance(x, TracedTensor) else x._lift(ct)
    array = np.asarray(ct, x.dtype)
    result: Array = x._lift(np.broadcast_to(array, x.shape) if array.shape == () and x.shape else array)
    return result


def _as_result(x: Recorded, on_tape: bool) -> Any:
    """Return a carrier if the result stays on the tape (without a history in `no_grad`), else an ndarray or scalar."""
    if not on_tape:
        return x.array[()] if not x.shape else x.array
    # In no_grad around the derivative, whose own tape is recorded in any mode, nothing has a history.
    result = x if STATE.enabled and _keeps_history(x) else x._like(x.array)
    tangent = dual.tangent_of(x) if STATE.level is not None else None
    if tangent is not None:
        dual.set_tangent(result, tangent if _keeps_history(tangent) else tangent._like(tangent.array))
    return result


def _keeps_history(x: Recorded) -> bool:
    """Whether a result stays on the tape: within another derivative, or if its tape leads out of this one."""
    return bool(STATE.depth) or not x.requires_grad or leads_out(x)


def _itself(tangent: Recorded) -> Recorded:
    return tangent


def reachable_nodes(x: Recorded) -> set[Node]:
    """Return the nodes that the tape of `x` leads to."""
    edges, seen = [x._edge_of()], set()
    while edges:
        edge = edges.pop()
        node = edge[0] if isinstance(edge, tuple) else edge
        if node and node not in seen:
            seen.add(node)
            edges.extend(node.edges)
    return seen


def leads_out(x: Recorded) -> bool:
    """Whether the tape of `x` ends at anything but the inputs of functions that have been differentiated."""
    # A node without edges is a leaf, or stands for the tape outside of a trace.
    return any(
        not node.edges and not getattr(getattr(node, "variable", None), "_inner", False) for node in reachable_nodes(x)
    )
