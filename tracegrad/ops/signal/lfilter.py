"""Filter signals recursively (IIR filters); imported on first use, as `matrix_functions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.op import Sample, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import multiply, negative
from tracegrad.ops.linalg.matrix_functions import moved
from tracegrad.ops.shape.batching import item_at, repeated
from tracegrad.ops.shape.linear import concatenate, flip, full, reduce_sum, reshape
from tracegrad.ops.shape.stack_split import stack
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


@primitive()
def lfilter(b: NDArray, a: NDArray, x: NDArray) -> NDArray:
    """The y along the last axis with sum(a[k] * y[t - k]) = sum(b[k] * x[t - k]), with zeros before index 0."""
    from scipy.signal import lfilter

    result: NDArray = lfilter(b, a, x).astype(x.dtype, copy=False)
    return result


@lfilter.def_aval
def _(b: Aval, a: Aval, x: Aval) -> Aval:
    if b.ndim != 1 or a.ndim != 1 or not x.ndim or not b.shape[0] or not a.shape[0] or {b.dtype, a.dtype} != {x.dtype}:
        raise ShapeError(f"lfilter wants two vectors of coefficients and an array, got {b}, {a} and {x}")
    return x


def _backwards(x: Array) -> Array:
    return flip(x, axes=(len(x.shape) - 1,))


def _products(u: Array, x: Array, count: int) -> Array:
    """The sums over t of u[t] * x[t - k], for each k."""
    every = tuple(range(len(x.shape)))
    sums = [reshape(reduce_sum(multiply(u, moved(x, -k)), axes=every), shape=(1,)) for k in range(count)]
    return sums[0] if count == 1 else concatenate(*sums, axis=0)


@lfilter.def_vjp_all
def _(wanted: Sequence[int], ct: Array, ans: Array, b: Array, a: Array, x: Array) -> list[Any]:
    # The transpose of the equation is the same filter, backwards in time.
    late = _backwards(ct)
    one = full(shape=(1,), value=1.0, dtype=x.dtype.name)

    def share() -> Array:
        return _backwards(lfilter(one, a, late))

    each = (
        lambda: _products(share(), x, b.shape[0]),
        lambda: negative(_products(share(), ans, a.shape[0])),
        lambda: _backwards(lfilter(b, a, late)),
    )
    return [each[i]() for i in wanted]


@lfilter.def_batch
def _(size: int, batched: Any, b: Array, a: Array, x: Array) -> Any:
    if not batched[0] and not batched[1]:
        return lfilter(b, a, x)
    operands = repeated(size, batched, (b, a, x))
    filtered = [lfilter(*[item_at(v, i) for v in operands]) for i in range(size)]  # SciPy takes one filter at a time
    return stack(*filtered, axis=0) if size else operands[2]


@lfilter.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3,)), np.array([2.0, 0.3, -0.4]), uniform((9,))), {}
