"""Ops that save their result, as in PyTorch: a recorded derivative depends on the result.

`retain_grad` of the result, a hook on it, and `grad` with respect to it behave as in PyTorch. For some ops, PyTorch's
formula reads only the result, but the rule here is more accurate with the operand. A recorded pass of these ops
computes with the operand, and records the factor of the rule as a function of the result (`pull_by_result`). For ops
whose formula reads both, the pass applies the rule of a *twin*: a copy of the op with PyTorch's formula (`twin_of`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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
from tracegrad.torch.tape.recording.node import MaskedCotangent, Node, next_number, rewrap
from tracegrad.torch.tape.recording.saved_tensor import SavedArray

if TYPE_CHECKING:
    from tracegrad.typing import Array


# The operand as a function of the result.
INVERSES: dict[Op, Callable[[Any], Any]] = {
    expm1: log1p,
    sigmoid: lambda y: subtract(log(y), log1p(-y)),
    tanh: arctanh,
}

# The derivative of the factor with respect to the result; None for 1.
_FACTOR_DERIVATIVES: dict[Op, Callable[[Any], Any] | None] = {
    expm1: None,
    sigmoid: lambda y: subtract(1.0, multiply(2.0, y)),
    tanh: lambda y: multiply(-2.0, y),
}


class _Factor(Node):
    """Factor by which the rule of `op` multiplies the result's cotangent, recorded as a function of the result."""

    __slots__ = ("op", "saved_result")
    batches = True
    op: Op
    saved_result: SavedArray

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        derivative = _FACTOR_DERIVATIVES[self.op]
        if derivative is None:
            return [ct]
        ans = self.saved_result.value(self.edges[0], is_own_result=True)
        if recording:
            ans = self.saved_result.sharing(rewrap(ans, self.edges[0]))
        if ct.__class__ is MaskedCotangent:
            return [MaskedCotangent(where(ct.mask, multiply(ct.ct, derivative(ans)), 0.0), ct.mask)]
        return [multiply(ct, derivative(ans))]


def pull_by_result(op: Op, node: Node, ct: Any, saved: SavedArray, operand: Array) -> Any:
    """Compute and record the cotangent of `operand` from the cotangent `ct` of the result of `op`, made by `node`."""
    one = full(shape=operand.shape, value=1.0, dtype=operand.dtype.name)
    result = _Factor()
    result.edges, result.hooks, result.number = (node,), None, next_number()
    result.op, result.saved_result = op, saved
    factor = rewrap(op.pull(0, one, saved.value(node, is_own_result=True), (operand,), {}), result)
    if ct.__class__ is not MaskedCotangent:
        return multiply(ct, factor)
    return MaskedCotangent(where(ct.mask, multiply(ct.ct, factor), 0.0), ct.mask)


# -- twins -------------------------------------------------------------------------------------------------------------
# Nodes of composite functions whose derivative reads the result.
SAVES_RESULT = frozenset(
    {
        "ProdBackward0",
        "ProdBackward1",
        "StdBackward0",
        "StdMeanBackward0",
        "LogsumexpBackward0",
        "DistBackward0",
        "LinalgVectorNormBackward0",
        "SpecialI0EBackward0",
        "SpecialNdtriBackward0",
    }
)

# Nodes of composite functions that save copies of their inputs, or of their results. PyTorch saves other values, so the
# inputs or results may be updated in place.
COPIES_INPUTS = frozenset({"KronBackward0", "LdexpBackward0", "PolarBackward0"})
COPIES_RESULTS = frozenset({f"MaxPool{n}DWithIndicesBackward0" for n in (1, 2, 3)})

# Nodes of composite functions whose derivative counts as computed from the first operand, although it is piecewise
# constant in this operand or independent of it.
PIECEWISE_LINEAR = frozenset(
    {
        "HardtanhBackward0",
        "HardshrinkBackward0",
        "SoftshrinkBackward0",
        "ThresholdBackward0",
        "LeakyReluBackward0",
        "ReluBackward0",
        "NllLossBackward0",
        "NllLoss2DBackward0",
        "MaxPool2DWithIndicesBackward0",
        "MaxPool3DWithIndicesBackward0",
        "AvgPool2DBackward0",
        "AvgPool3DBackward0",
        "AdaptiveAvgPool2DBackward0",
        "AdaptiveAvgPool3DBackward0",
        "AdaptiveMaxPool2DBackward0",
        "AdaptiveMaxPool3DBackward0",
        "ReflectionPad1DBackward0",
        "ReflectionPad2DBackward0",
        "ReflectionPad3DBackward0",
        "ReplicationPad1DBackward0",
        "ReplicationPad2DBackward0",
        "ReplicationPad3DBackward0",
    }
)


def _product(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    if not axes:
        return ct
    # A zero or non-finite product divided by an element is not the product of the other elements.
    irregular = unreduce(logical_or(equal(ans, 0.0), logical_not(isfinite(ans))), x.shape, axes)
    quotient = divide(unreduce(multiply(ct, ans), x.shape, axes), where(irregular, 1.0, x))
    return where(irregular, reduce_prod.pull(0, ct, ans, (x,), {"axes": axes}), quotient)


def _running_product(ct: Array, ans: Array, x: Array, *, axis: int) -> Array:
    lost = reduce_any(logical_or(equal(ans, 0.0), logical_not(isfinite(ans))), axes=(axis,))
    irregular = unreduce(lost, x.shape, (axis,))
    later = flip(cumsum(flip(multiply(ct, ans), axes=(axis,)), axis=axis), axes=(axis,))
    exact = cumprod.pull(0, ct, cumprod(x, axis=axis), (x,), {"axis": axis})
    return where(irregular, exact, divide(later, where(irregular, 1.0, x)))


def _logsumexp(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    finite = isfinite(ans)
    shares = exp(subtract(x, unreduce(where(finite, ans, 0.0), x.shape, axes)))
    shares = where(unreduce(finite, x.shape, axes), shares, softmax(x, axes=axes))
    return multiply(unreduce(ct, x.shape, axes), shares)


def _root(ct: Array, ans: Array, x: Array) -> Array:
    return divide(ct, multiply(2.0, ans))


def _power(ct: Array, ans: Array, x: Array, k: float) -> Array:
    return multiply(ct, multiply(power(ans, 1.0 - 1.0 / k), k))


def _copysign(ct: Array, ans: Array, x: Array, y: Array | None) -> Array:
    nil = equal(x, 0.0)
    return where(nil, 0.0, multiply(ct, divide(ans, where(nil, 1.0, x))))


# Rules of twins: for ops with a node of their own, and additionally for the last op of a composite function.
_SINGLE_OP_RULES: dict[Op, Callable[..., Any]] = {
    reduce_prod: _product,
    cumprod: _running_product,
    logsumexp: _logsumexp,
    copysign: _copysign,
}
_LAST_OP_RULES: dict[Op, Callable[..., Any]] = {**_SINGLE_OP_RULES, sqrt: _root, power: _power}


def twin_of(op: Op, operands: Sequence[object], at_end: bool = False) -> Op | None:
    """Return a copy of the op with PyTorch's rule for the first operand; None if the rule here is the same.

    `at_end`: the op is the last one of a composite function.
    """
    result = (_TWINS_AT_END if at_end else _TWINS).get(op)
    return None if op is power and not is_literal(operands[1]) else result


def _twin(op: Op, rule: Callable[..., object]) -> Op:
    twin = copy.copy(op)
    twin._vjp = {**op._vjp, 0: rule}
    return twin


_TWINS = {op: _twin(op, rule) for op, rule in _SINGLE_OP_RULES.items()}
_TWINS_AT_END = {op: _twin(op, rule) for op, rule in _LAST_OP_RULES.items()}
