"""Custom calls: calls with a derivative rule of their own, inside a graph.

A call is one node: `custom_call(*outputs, *inputs)`, whose results are the outputs, as the call computed them. No
derivative flows through these operands. The rule takes the cotangents of all results once and returns the cotangents of
the inputs; tangents flow in the other direction. The compiler replaces the results by the outputs, so values that only
the rule reads become dead.

`opaque` is a call of Python code that a graph does not look into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tracegrad.avals import Aval, dtype_named, name_of
from tracegrad.ops.core.forms import Compose
from tracegrad.ops.core.op import AS_WRITTEN, ResultAvals, Sample, multi_result
from tracegrad.ops.shape.batching import repeated
from tracegrad.ops.shape.linear import full
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracegrad.ops.core.dispatch import Operand


class CustomCallRule(Protocol):
    """Derivative rule of a call. `repr` is a Python literal that names it.

    A rule with a true attribute `chooses` gets the inputs whose cotangents are wanted: `pull(..., wanted=...)`.
    """

    def pull(self, cotangents: Sequence[Any], outputs: Sequence[Any], inputs: tuple[Any, ...]) -> Sequence[Any]:
        """The cotangents of the inputs, given the cotangents of the outputs; None for zero."""

    def push(self, tangents: Sequence[Any], outputs: Sequence[Any], inputs: tuple[Any, ...]) -> Sequence[Any]:
        """The tangents of the outputs, given the tangents of the inputs; None for zero."""

    def batched(self, size: int) -> CustomCallRule:
        """The rule for a batch of this size of all values."""


def _outputs(*operands: Array, count: int, rule: CustomCallRule) -> tuple[Operand, ...]:
    return operands[:count]


@multi_result(Compose(_outputs, fails=False), on_complex=AS_WRITTEN, typed=True)
def custom_call(*operands: NDArray, count: int, rule: CustomCallRule) -> tuple[NDArray, ...]:
    """The first `count` operands, as the outputs of a call on the other operands with the derivative `rule`."""
    return operands[:count]


@custom_call.def_aval
def _(*operands: Aval, count: int, rule: CustomCallRule) -> ResultAvals:
    return ResultAvals(operands[:count])


@custom_call.def_vjp_all
def _(
    wanted: Sequence[int],
    cts: tuple[Array | None, ...],
    ans: tuple[Array, ...],
    *operands: Array | Aval,
    count: int,
    rule: CustomCallRule,
) -> list[Any]:
    if all(i < count for i in wanted):
        return [None] * len(wanted)
    options = {"wanted": tuple([i - count for i in wanted if i >= count])} if getattr(rule, "chooses", False) else {}
    result = rule.pull(cts, ans, operands[count:], **options)
    return [None if i < count else result[i - count] for i in wanted]


@custom_call.def_jvp
def _(
    tangents: Sequence[Array | None], ans: tuple[Array, ...], *operands: Array | Aval, count: int, rule: CustomCallRule
) -> tuple[Any, ...]:
    if all(t is None for t in tangents[count:]):
        return (None,) * count
    return tuple(rule.push(tangents[count:], ans, operands[count:]))


@custom_call.def_batch
def _(size: int, batched: tuple[bool, ...], *operands: Array, count: int, rule: CustomCallRule) -> tuple[Any, ...]:
    return tuple(custom_call(*repeated(size, batched, operands), count=count, rule=rule.batched(size)))


class _NoRule:
    def __repr__(self) -> str:
        return "'f'"

    def batched(self, size: int) -> _NoRule:
        return self


@custom_call.def_samples
def _() -> Iterator[Sample]:
    # Integer samples, because a derivative needs a rule.
    yield (np.arange(3), np.arange(4) > 1, np.zeros((), np.int64)), {"count": 2, "rule": _NoRule()}


@multi_result(on_complex=AS_WRITTEN, typed=True)
def opaque(*inputs: NDArray, results: tuple[tuple[tuple[int, ...], str], ...], call: Any) -> tuple[NDArray, ...]:
    """The results of the Python function `call` for the inputs: arrays of these shapes and dtypes."""
    return tuple(call(*inputs))


@opaque.def_aval
def _(*inputs: Aval, results: tuple[tuple[tuple[int, ...], str], ...], call: object) -> ResultAvals:
    return ResultAvals([Aval(shape, dtype_named(dtype)) for shape, dtype in results])


class ForEach:
    """A call for each index of a batch of some of its inputs."""

    def __init__(self, call: Any, size: int, batched: tuple[bool, ...]):
        self.call, self.size, self.batched = call, size, batched

    def __repr__(self) -> str:
        return repr(f"{self.call!r} for each")

    def __call__(self, *inputs: Any) -> tuple[NDArray, ...]:
        results = [
            self.call(*[x[i] if is_batched else x for x, is_batched in zip(inputs, self.batched)])
            for i in range(self.size)
        ]
        return tuple([np.stack(each) for each in zip(*results)])


@opaque.def_batch
def _(
    size: int, batched: tuple[bool, ...], *inputs: Any, results: tuple[tuple[tuple[int, ...], str], ...], call: Any
) -> tuple[Any, ...]:
    # Python code without a batching rule runs for one example after the other. No other op does.
    if not size:
        return tuple([full(shape=(0, *shape), value=0, dtype=name_of(dtype_named(dtype))) for shape, dtype in results])
    batched_results = tuple([((size, *shape), dtype) for shape, dtype in results])
    rule = getattr(call, "for_batch", None)
    together = rule(size, batched) if rule is not None else None
    return tuple(opaque(*inputs, results=batched_results, call=together or ForEach(call, size, batched)))


class _SumAndMean:
    def __repr__(self) -> str:
        return "'sum_and_mean'"

    def __call__(self, *inputs: Any) -> tuple[np.int64, NDArray]:
        return np.sum(inputs), np.mean(inputs, axis=0)


@opaque.def_samples
def _() -> Iterator[Sample]:
    # Integer samples, because the op has no derivative.
    results = (((), "i64"), ((4,), "f64"))
    yield (np.arange(4), np.arange(4)), {"results": results, "call": _SumAndMean()}
