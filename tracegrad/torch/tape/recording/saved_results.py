"""Ops that save their result, as in PyTorch: a recorded derivative depends on the result.

`retain_grad` of the result, a hook on it, and `grad` with respect to it behave as in PyTorch. If the operand does not
appear at all, the rules of the ops are more accurate with the operand. A recorded pass then computes with the operand,
and records the factor of the rule as a function of the result (`pulled_by_answer`). If both appear, the pass applies
the rule of a *twin* of the op, with the result where PyTorch's formula has it (`twin_of`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from tracegrad.avals import is_literal
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise.table import (
    arctanh,
    copysign,
    divide,
    equal,
    exp,
    expm1,
    isfinite,
    log,
    log1p,
    logical_not,
    logical_or,
    multiply,
    power,
    sigmoid,
    sqrt,
    subtract,
    tanh,
    where,
)
from tracegrad.ops.reduce.reductions import logsumexp, reduce_any, reduce_prod, softmax
from tracegrad.ops.reduce.scans import cumprod, cumsum
from tracegrad.ops.shape.linear import flip, full, unreduce
from tracegrad.torch.tape.recording.node import Masked, Node, next_number, rewrap
from tracegrad.torch.tape.recording.saved_tensor import Saved

__all__ = ["BENT", "INVERSES", "KEEP_ANSWERS", "pulled_by_answer", "twin_of"]

# The operand, given the answer.
INVERSES: dict[Op, Callable[[Any], Any]] = {
    expm1: log1p,
    sigmoid: lambda y: subtract(log(y), log1p(-y)),
    tanh: arctanh,
}

# The derivative of the factor by the answer; None for 1.
_BY_ANSWER: dict[Op, Callable[[Any], Any] | None] = {
    expm1: None,
    sigmoid: lambda y: subtract(1.0, multiply(2.0, y)),
    tanh: lambda y: multiply(-2.0, y),
}


class _Factor(Node):
    """The factor by which a cotangent of the answer of `op` becomes that of the operand, computed from the answer."""

    __slots__ = ("answer", "op")
    batches = True
    op: Op
    answer: Saved

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        by_answer = _BY_ANSWER[self.op]
        if by_answer is None:
            return [ct]
        answer = self.answer.value(self.edges[0], own=True)
        if recording:
            answer = self.answer.sharing(rewrap(answer, self.edges[0]))
        if ct.__class__ is Masked:
            return [Masked(where(ct.mask, multiply(ct.ct, by_answer(answer)), 0.0), ct.mask)]
        return [multiply(ct, by_answer(answer))]


def pulled_by_answer(op: Op, node: Node, ct: Any, answer: Saved, operand: Any) -> Any:
    """Compute, recorded, the cotangent of the array `operand` of `op` from the result's, which `node` made."""
    one = full(shape=operand.shape, value=1.0, dtype=operand.dtype.name)
    result = _Factor()
    result.edges, result.hooks, result.number = (node,), None, next_number()
    result.op, result.answer = op, answer
    factor = rewrap(op.pull(0, one, answer.value(node, own=True), (operand,), {}), result)
    if ct.__class__ is not Masked:
        return multiply(ct, factor)
    return Masked(where(ct.mask, multiply(ct.ct, factor), 0.0), ct.mask)


# -- twins -------------------------------------------------------------------------------------------------------------
# The nodes of functions of several ops that have the answer in their derivative.
KEEP_ANSWERS = frozenset({
    "ProdBackward0", "ProdBackward1", "StdBackward0", "StdMeanBackward0", "LogsumexpBackward0", "DistBackward0",
    "LinalgVectorNormBackward0", "SpecialI0EBackward0", "SpecialNdtriBackward0",
})  # fmt: skip

# Those whose derivative depends on the first operand by steps alone, or not at all, and counts as computed from it.
BENT = frozenset({
    "HardtanhBackward0", "HardshrinkBackward0", "SoftshrinkBackward0", "ThresholdBackward0", "LeakyReluBackward0",
    "ReluBackward0", "NllLossBackward0", "NllLoss2DBackward0", "MaxPool2DWithIndicesBackward0",
    "MaxPool3DWithIndicesBackward0", "AvgPool2DBackward0", "AvgPool3DBackward0", "AdaptiveAvgPool2DBackward0",
    "AdaptiveAvgPool3DBackward0", "AdaptiveMaxPool2DBackward0", "AdaptiveMaxPool3DBackward0",
    "ReflectionPad1DBackward0", "ReflectionPad2DBackward0", "ReflectionPad3DBackward0", "ReplicationPad1DBackward0",
    "ReplicationPad2DBackward0", "ReplicationPad3DBackward0",
})  # fmt: skip


def _product(ct: Any, ans: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    if not axes:
        return ct
    # Where the product is 0, or is not finite, no quotient is the product of the others.
    apart = unreduce(logical_or(equal(ans, 0.0), logical_not(isfinite(ans))), x.shape, axes)
    quotient = divide(unreduce(multiply(ct, ans), x.shape, axes), where(apart, 1.0, x))
    return where(apart, reduce_prod.pull(0, ct, ans, (x,), {"axes": axes}), quotient)


def _running_product(ct: Any, ans: Any, x: Any, *, axis: int) -> Any:
    lost = reduce_any(logical_or(equal(ans, 0.0), logical_not(isfinite(ans))), axes=(axis,))
    apart = unreduce(lost, x.shape, (axis,))
    later = flip(cumsum(flip(multiply(ct, ans), axes=(axis,)), axis=axis), axes=(axis,))
    exact = cumprod.pull(0, ct, cumprod(x, axis=axis), (x,), {"axis": axis})
    return where(apart, exact, divide(later, where(apart, 1.0, x)))


def _logsumexp(ct: Any, ans: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    finite = isfinite(ans)
    shares = exp(subtract(x, unreduce(where(finite, ans, 0.0), x.shape, axes)))
    shares = where(unreduce(finite, x.shape, axes), shares, softmax(x, axes=axes))
    return multiply(unreduce(ct, x.shape, axes), shares)


def _root(ct: Any, ans: Any, x: Any) -> Any:
    return divide(ct, multiply(2.0, ans))


def _power(ct: Any, ans: Any, x: Any, k: Any) -> Any:
    return multiply(ct, multiply(power(ans, 1.0 - 1.0 / k), k))


def _copysign(ct: Any, ans: Any, x: Any, y: Any) -> Any:
    nil = equal(x, 0.0)
    return where(nil, 0.0, multiply(ct, divide(ans, where(nil, 1.0, x))))


# Those that are nodes of their own, and those that only end a function of several ops.
_ALONE: dict[Op, Callable[..., Any]] = {
    reduce_prod: _product, cumprod: _running_product, logsumexp: _logsumexp, copysign: _copysign,
}  # fmt: skip
_AT_END: dict[Op, Callable[..., Any]] = {**_ALONE, sqrt: _root, power: _power}


def twin_of(op: Op, operands: Sequence[Any], at_end: bool = False) -> Op | None:
    """Return the op with PyTorch's rule of its first operand; None if the rule here is the same.

    `at_end`: the op is the last of a function of several ops that is one of PyTorch's.
    """
    result = (_TWINS_AT_END if at_end else _TWINS).get(op)
    return None if op is power and not is_literal(operands[1]) else result


def _twin(op: Op, rule: Callable[..., Any]) -> Op:
    twin = copy.copy(op)
    twin._vjp = {**op._vjp, 0: rule}
    return twin


_TWINS = {op: _twin(op, rule) for op, rule in _ALONE.items()}
_TWINS_AT_END = {op: _twin(op, rule) for op, rule in _AT_END.items()}
