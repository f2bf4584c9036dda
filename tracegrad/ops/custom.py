"""Calls with a derivative rule of their own, inside a graph.

A call leaves `token = custom_call(*inputs)`, a constant, and for each output `custom_output(x, token)`, which is `x`:
the value of the output, as the call computed it. No derivative flows to `x`. The cotangents of all outputs meet at the
token (`Gathered`), and from there the rule leads to the inputs; so it runs once, whatever the number of outputs. The
compiler replaces outputs by `x`; the token, and what only the rule reads, is then needed by nothing.

`opaque` is a call of Python code that a graph does not look into.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import TraceError, located
from tracegrad.ops.index_maps import Read
from tracegrad.ops.linear import full
from tracegrad.ops.op import Carrier, Level, Op, primitive

__all__ = ["Gathered", "Rule", "custom_call", "custom_output", "opaque"]


class Rule(Protocol):
    """What a call knows of its derivative. `repr` is a Python literal that names it."""

    def pull(self, cotangents: Mapping[int, Any], inputs: tuple[Any, ...]) -> Sequence[Any]:
        """The cotangents of the inputs (None for zero), given those of the outputs that have one, by their number."""


class Gathered(Carrier):
    """The cotangent of a token: those of the outputs of its call, by their number."""

    __slots__ = ("cotangents", "found")
    level = Level.TERM
    takes_any = True

    def __init__(self, cotangents: dict[int, Any]):
        self.cotangents = cotangents
        self.found: Sequence[Any] | None = None

    @property
    def aval(self) -> Aval:
        return _TOKEN

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op.name != "add" or not all(isinstance(x, Gathered) for x in operands):
            raise TraceError(located(f"{op.name} of the cotangent of a token"))
        both = dict(operands[0].cotangents)
        for number, ct in operands[1].cotangents.items():
            both[number] = op(both[number], ct) if number in both else ct
        return Gathered(both)


_TOKEN = Aval((), np.dtype(np.float64))


@primitive()
def custom_call(*inputs: Any, rule: Rule) -> Any:
    """The token of a call on these inputs whose derivative is `rule`; its value is 0."""
    return np.zeros(())


@custom_call.def_aval
def _(*inputs: Aval, rule: Rule) -> Aval:
    return _TOKEN


@custom_call.def_vjp("inputs")
def _(i: int, ct: Any, ans: Any, *inputs: Any, rule: Rule) -> Any:
    if not isinstance(ct, Gathered):
        return None
    if ct.found is None:
        ct.found = rule.pull(ct.cotangents, inputs)
    return ct.found[i]


@custom_call.def_decompose
def _(*inputs: Any, rule: Rule) -> Any:
    return full(shape=(), value=0.0, dtype="float64")


@custom_call.def_samples
def _() -> Any:
    # Of integers: its cotangent is no array, so that there is nothing to compare with.
    yield (np.arange(3), np.zeros((), np.int64)), {"rule": "f"}


@primitive()
def opaque(*inputs: Any, size: int, call: Any) -> Any:
    """What the Python function `call` makes of the inputs: a float64 vector of this size."""
    return call(*inputs)


@opaque.def_aval
def _(*inputs: Aval, size: int, call: Any) -> Aval:
    return Aval((size,), np.dtype(np.float64))


class _Sum:
    def __repr__(self) -> str:
        return "'sum'"

    def __call__(self, *inputs: Any) -> Any:
        return np.array([float(np.sum(x)) for x in inputs])


@opaque.def_samples
def _() -> Any:
    # Of integers: it has no derivative.
    yield (np.arange(3), np.arange(4)), {"size": 2, "call": _Sum()}


@primitive("view")
def custom_output(x: Any, token: Any, *, number: int) -> Any:
    """`x`, as the output `number` of the call that `token` stands for."""
    return x


@custom_output.def_aval
def _(x: Aval, token: Aval, *, number: int) -> Aval:
    return x


@custom_output.def_vjp("token")
def _(ct: Any, ans: Any, x: Any, token: Any, *, number: int) -> Any:
    return Gathered({number: ct})


@custom_output.def_reads
def _(index: Any, size: Any, shapes: Any, result: Any, *, number: int) -> Any:
    return [Read(0, index)]


@custom_output.def_decompose
def _(x: Any, token: Any, *, number: int) -> Any:
    return x


@custom_output.def_samples
def _() -> Any:
    # Of integers: a floating output has a derivative only where its token comes from a call.
    yield (np.arange(3), np.zeros(())), {"number": 0}
