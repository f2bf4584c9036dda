"""Ops of which PyTorch saves the answer alone: a recorded derivative depends on the answer, not on the operand.

The rules here have more digits with the operand. So a recorded pass computes with that, and records the factor that the
rule multiplies by as a function of the answer: what is retained of the answer, and hooks on it, see what they see in
PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracegrad.ops.elementwise import arctanh, expm1, log, log1p, multiply, sigmoid, subtract, tanh, where
from tracegrad.ops.linear import full
from tracegrad.ops.op import Op
from tracegrad.torch.tape.saved import Saved
from tracegrad.torch.tape.tape import Masked, Node, next_number, rewrap

__all__ = ["INVERSES", "pulled_by_answer"]

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
    """The cotangent of the array `operand` of `op`, recorded, given that of the answer, which `node` made."""
    one = full(shape=operand.shape, value=1.0, dtype=operand.dtype.name)
    made = _Factor()
    made.edges, made.hooks, made.number = (node,), None, next_number()
    made.op, made.answer = op, answer
    factor = rewrap(op.pull(0, one, answer.value(node, own=True), (operand,), {}), made)
    if ct.__class__ is not Masked:
        return multiply(ct, factor)
    return Masked(where(ct.mask, multiply(ct.ct, factor), 0.0), ct.mask)
