"""Tensors of numbers in order: `arange`, `linspace`, `logspace`, and the indices of triangles."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api import creation
from tracegrad.numpy_api.operands import to_dtype
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.shape import linear
from tracegrad.torch.functions.core.device import check_device
from tracegrad.torch.functions.core.promotion import default_complex
from tracegrad.torch.tape.tensors.docs import TENSOR_DOCS
from tracegrad.torch.tape.tensors.factories import dtype_of, from_numpy, plain, wrap
from tracegrad.typing import DeviceLike, DType, DTypeLike, NDArray

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["arange", "linspace", "logspace", "tril_indices", "triu_indices"]


def _bound(x: Any) -> float:
    """Convert a bound of a range to a Python number; reading a traced bound adds a value guard."""
    x = plain(x)
    if isinstance(x, Carrier):
        value: Any = x
        return int(value) if value.dtype.kind in "iub" else float(value)
    number = x.item() if isinstance(x, np.ndarray | np.generic) else x
    return int(number) if isinstance(number, bool) else number


def arange(
    start: Tensor | float = 0,
    end: Tensor | float | None = None,
    step: Tensor | float = 1,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a Tensor of `start`, `start + step`, ... up to but without `end`; `arange(end)` starts at 0.

    The dtype is int64 if all three are integers, and the default dtype otherwise. RuntimeError if `step` is zero or
    leads away from `end`, or if a bound is not finite.

    >>> arange(1, 4)
    tensor([1, 2, 3])
    >>> arange(0.0, 1.0, 0.25)
    tensor([0.0000, 0.2500, 0.5000, 0.7500])
    """
    check_device(device)
    first, last, by = _bound(0 if end is None else start), _bound(start if end is None else end), _bound(step)
    if by == 0:
        raise RuntimeError(located("step must be nonzero"))
    if not (math.isfinite(first) and math.isfinite(last)):
        raise RuntimeError(located(f"unsupported range: {first} -> {last}"))
    if (last - first) * by < 0:
        raise RuntimeError(located("upper bound and lower bound inconsistent with step sign"))
    if dtype is None and all(isinstance(x, int) for x in (first, last, by)):
        dtype = np.int64
    kind = dtype_of(dtype)
    if kind.kind in "iu":
        first, last, by = int(first), int(last), int(by)
    count = -(-(last - first) // by) if kind.kind in "iu" else math.ceil((last - first) / by)
    return wrap(linear.arange(start=first, step=by, length=count, dtype=kind.name), requires_grad)


def _count(name: str, steps: int) -> int:
    count = operator.index(steps)
    if count < 0:
        raise RuntimeError(located(f"{name}: number of steps must be non-negative"))
    return count


def _ends(name: str, *ends: Any) -> tuple[Any, ...]:
    """Return start and end as they are without the tape; RuntimeError unless they are numbers or have no dimension."""
    ranks = [len(v.shape) if isinstance(v, Carrier) else np.ndim(v) for v in ends]
    if any(ranks):
        raise RuntimeError(
            located(
                f"{name} only supports 0-dimensional start and end tensors, "
                f"but got start with {ranks[0]} dimension(s) and end with {ranks[1]} dimension(s)."
            )
        )
    return tuple(plain(v) for v in ends)


def _in_dtype(x: Any, dtype: DType) -> Any:
    array: Any = x
    return to_dtype(array, dtype) if isinstance(x, Carrier | np.ndarray) else x


def linspace(
    start: Tensor | float,
    end: Tensor | float,
    steps: int,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a Tensor of `steps` numbers from `start` to `end`, both included, at equal distances.

    >>> linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    check_device(device)
    count, (first, last) = _count("linspace", steps), _ends("linspace", start, end)
    if dtype is None and "c" in (np.asarray(v).dtype.kind for v in (first, last) if not isinstance(v, Carrier)):
        dtype = default_complex()
    kind = dtype_of(dtype)
    inexact = kind if kind.kind in "fc" else np.dtype(np.float64)
    first, last = (_in_dtype(v, inexact) for v in (first, last))
    points = creation.linspace(first, last, count, dtype=inexact)
    return wrap(to_dtype(points, kind), requires_grad)  # integers are cut off, not rounded down as by NumPy


def logspace(
    start: Tensor | float,
    end: Tensor | float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a Tensor of `base` to the power of each number of `linspace(start, end, steps)`.

    >>> logspace(0, 3, 4, base=2)
    tensor([1., 2., 4., 8.])
    """
    check_device(device)
    count, (first, last) = _count("logspace", steps), _ends("logspace", start, end)
    return wrap(creation.logspace(first, last, count, base=base, dtype=dtype_of(dtype)), requires_grad)


def _indices(row: int, col: int, inside: NDArray, dtype: DTypeLike, device: DeviceLike) -> Tensor:
    check_device(device)
    for what, n in (("row", row), ("col", col)):
        if n < 0:
            raise RuntimeError(located(f"{what} must be non-negative, got{n}"))
    return from_numpy(np.array(np.nonzero(inside), np.int64 if dtype is None else dtype))


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: DTypeLike = None, device: DeviceLike = None) -> Tensor:
    """Make a Tensor (2, N) of the row and column indices of the lower triangle of a matrix, in row-major order.

    The triangle has the diagonal `offset`, which counts from the main diagonal upwards.

    >>> tril_indices(2, 2)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    return _indices(row, col, np.tri(max(row, 0), max(col, 0), offset), dtype, device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: DTypeLike = None, device: DeviceLike = None) -> Tensor:
    """Make a Tensor (2, N) of the row and column indices of the upper triangle of a matrix, in row-major order.

    The triangle has the diagonal `offset`, which counts from the main diagonal upwards.

    >>> triu_indices(2, 2)
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    return _indices(row, col, 1 - np.tri(max(row, 0), max(col, 0), offset - 1), dtype, device)


TENSOR_DOCS.document(globals(), __all__)
