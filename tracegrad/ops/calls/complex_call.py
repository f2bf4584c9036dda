"""Calls of ops on complex numbers that lie in memory as pairs of real ones, which is all that compiled code has."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.core.op import Op, Several, primitive
from tracegrad.ops.core.result import op_named
from tracegrad.ops.core.samples import integers
from tracegrad.ops.elementwise.complex import complex_of, lies, real_of

__all__ = ["call_joined"]

Given = tuple[tuple[str, Any], ...]


@primitive()
def call_joined(*xs: Any, op: str, given: Given, joined: tuple[bool, ...]) -> Any:
    """The results of `op`, with the parameters `given`, for operands of which those `joined` are complex numbers in
    pairs. So are those of the results that are complex."""
    operands = [_complex(x) if pairs else x for x, pairs in zip(xs, joined)]
    found = _named(op).impl(*operands, **dict(given))
    return tuple(map(_real, found)) if isinstance(found, tuple) else _real(found)


@call_joined.def_aval
def _(*xs: Any, op: str, given: Given, joined: tuple[bool, ...]) -> Aval | Several:
    *_, found = _meant(*xs, op=op, given=given, joined=joined)
    return Several(map(lies, found)) if isinstance(found, tuple) else lies(found)


@call_joined.def_meant
def _meant(*xs: Aval, op: str, given: Given, joined: tuple[bool, ...]) -> tuple[Op, dict[str, Any], list[Aval], Any]:
    operands = [Aval(x.shape[:-1], complex_of(x.dtype)) if pairs else x for x, pairs in zip(xs, joined)]
    return _named(op), dict(given), operands, _named(op).aval(*operands, **dict(given))


def _named(op: str) -> Op:
    found = op_named(op)
    assert found is not None
    return found


def _complex(x: Any) -> Any:
    return np.ascontiguousarray(x).view(complex_of(x.dtype))[..., 0]


def _real(x: Any) -> Any:
    x = np.asarray(x)
    return np.ascontiguousarray(x)[..., None].view(real_of(x.dtype)) if x.dtype.kind == "c" else x


@call_joined.def_samples
def _() -> Any:
    # Of integers: it has no derivative.
    yield (integers((3, 4), -9, 9),), {"op": "cast", "given": (("dtype", "complex64"),), "joined": (False,)}
