"""Call ops on complex numbers stored as pairs of reals (interleaved), the only complex form in compiled code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.core.op import Op, ResultAvals, Sample, primitive
from tracegrad.ops.core.result import op_named
from tracegrad.ops.core.samples import integers
from tracegrad.ops.elementwise.complex import complex_of, memory_aval, real_of
from tracegrad.typing import Array, ArrayLike, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


Params = tuple[tuple[str, Any], ...]


@primitive()
def call_joined(*xs: NDArray, op: str, op_params: Params, joined: tuple[bool, ...]) -> Any:
    """The results of `op`, with the parameters `op_params`, for operands whose `joined` ones are complex numbers in
    pairs; complex results are in pairs too."""
    operands = [_complex(x) if pairs else x for x, pairs in zip(xs, joined)]
    result = _named(op).impl(*operands, **dict(op_params))
    return tuple(map(_real, result)) if isinstance(result, tuple) else _real(result)


@call_joined.def_aval
def _(*xs: Aval, op: str, op_params: Params, joined: tuple[bool, ...]) -> Aval | ResultAvals:
    *_, result = _native_equivalent(*xs, op=op, op_params=op_params, joined=joined)
    return ResultAvals(map(memory_aval, result)) if isinstance(result, tuple) else memory_aval(result)


@call_joined.def_native_equivalent
def _native_equivalent(
    *xs: Aval, op: str, op_params: Params, joined: tuple[bool, ...]
) -> tuple[Op, dict[str, Any], list[Aval], Any]:
    operands = [Aval(x.shape[:-1], complex_of(x.dtype)) if pairs else x for x, pairs in zip(xs, joined)]
    return _named(op), dict(op_params), operands, _named(op).aval(*operands, **dict(op_params))


def _named(op: str) -> Op:
    result = op_named(op)
    assert result is not None
    return result


def _complex(x: Array) -> Array:
    return np.ascontiguousarray(x).view(complex_of(x.dtype))[..., 0]


def _real(x: ArrayLike) -> Array:
    x = np.asarray(x)
    return np.ascontiguousarray(x)[..., None].view(real_of(x.dtype)) if x.dtype.kind == "c" else x


@call_joined.def_samples
def _() -> Iterator[Sample]:
    # An integer sample, because the op has no derivative.
    yield (integers((3, 4), -9, 9),), {"op": "cast", "op_params": (("dtype", "complex64"),), "joined": (False,)}
