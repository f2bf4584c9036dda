"""What the batch rules of ops share, see `Op.batch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracegrad.avals import Aval, is_literal, name_of
from tracegrad.ops.linear import broadcast_to, concatenate, full, reshape, slice, transpose
from tracegrad.ops.op import Op, bind

__all__ = ["looped", "picked", "repeated", "to_axis"]


def repeated(size: int, batched: Sequence[bool], operands: Sequence[Any]) -> list[Any]:
    """The operands, with those that are not `batched` repeated along a new axis 0; literals stay."""
    return [
        x if many or is_literal(x) else broadcast_to(x, shape=(size, *x.shape)) for x, many in zip(operands, batched)
    ]


def to_axis(x: Any, source: int, target: int) -> Any:
    """`x` with its axis `source` moved to `target`, and the others in order."""
    if source == target:
        return x
    rest = [a for a in range(len(x.shape)) if a != source]
    return transpose(x, perm=(*rest[:target], source, *rest[target:]))


def picked(x: Any, i: int) -> Any:
    """`x[i]`, in ops."""
    rest = (0,) * (len(x.shape) - 1)
    row = slice(x, start=(i, *rest), stop=(i + 1, *x.shape[1:]), step=(1,) * len(x.shape))
    return reshape(row, shape=x.shape[1:])


def looped(op: Op) -> Callable[..., Any]:
    """The batch rule of an op that can do nothing but run once for each index of the batch."""

    def rule(size: int, batched: tuple[bool, ...], /, *operands: Any, **params: Any) -> Any:
        found: Any = op.aval(*[Aval(x.shape[many:], x.dtype) for x, many in zip(operands, batched)], **params)
        avals = found if isinstance(found, tuple) else (found,)
        stacks: list[Any] = [[full(shape=(0, *aval.shape), value=0, dtype=name_of(aval.dtype))] for aval in avals]
        for i in range(size):
            given = tuple([picked(x, i) if many else x for x, many in zip(operands, batched)])
            answer = bind(op, given, params)
            for stack, x in zip(stacks, answer if isinstance(answer, tuple) else (answer,)):
                stack.append(reshape(x, shape=(1, *x.shape)))
        joined = tuple([concatenate(*stack, axis=0) for stack in stacks])
        return joined if isinstance(found, tuple) else joined[0]

    return rule
