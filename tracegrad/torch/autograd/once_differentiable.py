"""Decorator `once_differentiable`: a backward pass without a derivative, which raises when it is differentiated."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tracegrad.errors import located
from tracegrad.numpy_api import ArrayMethods
from tracegrad.ops import Carrier
from tracegrad.ops.calls.custom_call import custom_call
from tracegrad.torch.autograd.function_ctx import like
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.recording.node import Node, next_number
from tracegrad.torch.tape.recording.recorded_array import Recorded

__all__ = ["once_differentiable"]

TWICE = "trying to differentiate twice a function that was marked with @once_differentiable"


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a `backward` of a `Function` that must not be differentiated, because it is not recorded.

    It runs without recording; differentiating its result raises RuntimeError.
    """

    @functools.wraps(fn)
    def backward(ctx: Any, *grads: object) -> Any:
        mode, STATE.enabled = STATE.enabled, False
        try:
            result = fn(ctx, *grads)
        finally:
            STATE.enabled = mode
        outputs = result if isinstance(result, tuple) else (result,)
        if any(isinstance(x, Carrier) and not isinstance(x, Recorded) for x in outputs):
            outputs = _refused_in_graph(outputs, [*grads, *ctx.saved_tensors])
        elif mode:
            outputs = _refused_on_tape(outputs, _sources(ctx, grads))
        return outputs if isinstance(result, tuple) else outputs[0]

    return backward


def _sources(ctx: Any, grads: Sequence[object]) -> Sequence[object]:
    """Return the values with respect to which the outputs must not be differentiated.

    In PyTorch only the cotangents count. With this rule, a transform of a function of arrays would return a wrong zero
    for saved values.
    """
    return [*grads, *ctx.saved_tensors] if any(isinstance(x, ArrayMethods) for x in grads) else grads


class Error(Node):
    """Node that raises when a derivative through it is taken."""

    __slots__ = ("count",)
    is_multi_result = True

    def __init__(self, edges: tuple[object, ...], count: int):
        self.edges, self.hooks, self.number, self.count = edges, None, next_number(), count

    def pull(self, cts: Any, recording: bool) -> Sequence[Any]:
        raise RuntimeError(located(TWICE))


def _refused_on_tape(outputs: Sequence[Any], sources: Sequence[Any]) -> tuple[Any, ...]:
    edges = tuple([x._edge_of() for x in sources if isinstance(x, Recorded)])
    if not any(edges):
        return tuple(outputs)
    node = Error(edges, len(outputs))
    return tuple(
        [
            like(type(x)._public_class, x.array, (node, k) if k else node) if isinstance(x, Recorded) else x
            for k, x in enumerate(outputs)
        ]
    )


class _RaisingRule:
    """Derivative rule that raises, for a call in a graph."""

    def __repr__(self) -> str:
        return "'Error'"

    def pull(self, cotangents: Sequence[Any], outputs: Sequence[Any], inputs: tuple[Any, ...]) -> Sequence[Any]:
        raise RuntimeError(located(TWICE))

    push = pull

    def batched(self, size: int) -> _RaisingRule:
        return self


def _refused_in_graph(outputs: Sequence[Any], sources: Sequence[Any]) -> tuple[Any, ...]:
    arrays = [x for x in outputs if isinstance(x, Carrier)]
    inputs = [x for x in sources if isinstance(x, Carrier)]
    results = iter(custom_call(*arrays, *inputs, count=len(arrays), rule=_RaisingRule()))
    return tuple([next(results) if isinstance(x, Carrier) else x for x in outputs])
