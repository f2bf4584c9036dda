"""Derivatives of functions without compilation: what the transforms do while jit is disabled.

`eager_vjp` runs a flat function on Tensors that alias the primals, so that the derivative is taken with respect to this
use of them and no other: nested derivatives do not confuse their perturbations. Inside of another eager derivative
(or on Tensors that are recorded) everything it returns stays on the tape; outermost it returns ndarrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.eager import engine
from tracegrad.eager.modes import STATE, enable_grad
from tracegrad.eager.tensor import Tensor, WeakTensor
from tracegrad.errors import DTypeError, located
from tracegrad.ops.linear import fresh

__all__ = ["eager_vjp"]

Pullback = Callable[[Sequence[Any]], list[Any]]


def eager_vjp(
    fn: Callable[..., Sequence[Any]], primals: Sequence[Any], wrt: Sequence[int] | None = None
) -> tuple[list[Any], Pullback]:
    """The flat outputs of `fn` and a function from their cotangents to those of the primals `wrt`.

    Primals are ndarrays, Tensors and Python numbers; those in `wrt` (all by default) must be floating, or a
    `DTypeError` is raised, and are Tensors inside of `fn`. A cotangent may be None, which stands for zero. The function
    for cotangents may be called more than once.

    >>> outputs, pullback = eager_vjp(lambda x, y: [x * y], [np.array([1.0, 2.0]), 3.0])
    >>> outputs, pullback([np.array([1.0, 1.0])])
    ([array([3., 6.])], [array([3., 3.]), np.float64(3.0)])
    """
    places = range(len(primals)) if wrt is None else wrt
    inside = list(primals)
    with enable_grad():
        for i in places:
            inside[i] = _input(i, primals[i])
    stays = _stays_on_tape(primals)
    STATE.depth += 1
    try:
        with enable_grad():
            outputs = [x if isinstance(x, Tensor) else _output(x) for x in fn(*inside)]
    finally:
        STATE.depth -= 1
    inputs = [inside[i] for i in places]

    def pullback(cotangents: Sequence[Any]) -> list[Any]:
        keep = stays or _stays_on_tape(cotangents)
        found = _pull(outputs, inputs, cotangents, create_graph=keep)
        return [_answer(ct, keep) for ct in found]

    return [_answer(x, stays) for x in outputs], pullback


def _stays_on_tape(values: Sequence[Any]) -> bool:
    return STATE.depth > 0 or any(isinstance(x, Tensor) for x in values)


def _input(i: int, primal: Any) -> Tensor:
    """A Tensor of its own with the value of `primal`, that leads back to it if it is on a tape."""
    if isinstance(primal, Tensor):
        source = primal
    elif type(primal) in LITERALS:
        source = WeakTensor(np.asarray(primal))
    else:
        source = Tensor(np.asarray(primal))
    if source.dtype.kind != "f":
        raise DTypeError(located(f"derivatives need floating inputs, argument {i} has dtype {source.dtype}"))
    alias = fresh(source, tag=0) if source.requires_grad else Tensor(source.array.view(), requires_grad=True)
    if source.weak:
        alias.__class__ = WeakTensor
    return alias


def _output(x: Any) -> Tensor:
    return Tensor(np.asarray(x))


def _pull(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], cotangents: Sequence[Any], create_graph: bool
) -> list[Any]:
    pairs = [(x, _cotangent(x, ct)) for x, ct in zip(outputs, cotangents) if ct is not None and x.requires_grad]
    if not pairs:
        return [Tensor(np.zeros_like(x.array)) for x in inputs]
    outs, cts = zip(*pairs)
    return list(engine.grad(outs, inputs, cts, retain_graph=True, create_graph=create_graph, materialize_grads=True))


def _cotangent(x: Tensor, ct: Any) -> Tensor:
    if isinstance(ct, Tensor):
        return ct
    array = np.asarray(ct, x.dtype)
    return Tensor(np.broadcast_to(array, x.shape) if array.shape == () else array)


def _answer(x: Tensor, stays: bool) -> Any:
    """A Tensor where the tape goes on; else an ndarray, or a NumPy scalar for no axes."""
    return x if stays else x.array[()] if not x.shape else x.array
