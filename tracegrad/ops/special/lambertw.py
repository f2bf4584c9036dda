"""Compute the Lambert W function of complex numbers; imported on first use, as `matrix_functions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.ops.core.elementwise_op import elementwise
from tracegrad.ops.core.op import HOLOMORPHIC, Sample
from tracegrad.ops.elementwise.complex import sample
from tracegrad.ops.elementwise.table import add, divide, exp, multiply, negative
from tracegrad.typing import Array, DType

if TYPE_CHECKING:
    from collections.abc import Iterator


def _computed(z: Array, k: Array) -> Any:
    import scipy.special

    return scipy.special.lambertw(z, k)


def _loop(z: Array, k: DType) -> tuple[DType, ...]:
    loop_dtype = np.dtype(np.complex128)  # SciPy's only loop
    return loop_dtype, np.dtype(np.int64), loop_dtype


# The derivative is exp(-W) / (1 + W), which is 1 at 0; W / (z (1 + W)) is 0 / 0 there.
lambertw = elementwise(
    "lambertw(z, k)",
    _computed,
    None,
    lambda t, ans, z, k: divide(multiply(t, exp(negative(ans))), add(ans, 1.0)),
    None,
    loop=_loop,
    domain=None,
    on_complex=HOLOMORPHIC,
    doc="the solution w of w exp(w) = z, on branch k",
)


@lambertw.def_samples
def _() -> Iterator[Sample]:
    yield (sample((3, 4)), np.zeros((3, 4), np.int64)), {}
    yield (sample((3,)), np.array([0, 1, -2])), {}
