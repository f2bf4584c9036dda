"""Functions of `scipy.special` that are not universal functions: SciPy computes them in Python and never dispatches.

Traced code gets these in their place by name (`REPLACEMENTS`); they can also be called directly on any array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad.numpy_api.operands import arrays, promoted, to_float
from tracegrad.numpy_api.reductions import max as _max
from tracegrad.numpy_api.registry import REPLACED, refuse
from tracegrad.ops import reduction
from tracegrad.ops.elementwise import add, equal, exp, log, multiply, subtract, where
from tracegrad.ops.linear import keep_axes, reduce_sum, stop_gradient, unreduce
from tracegrad.ops.op import normalize_axes

__all__ = ["REPLACEMENTS", "log_softmax", "logsumexp", "softmax"]


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    """`scipy.special.logsumexp`, without signs."""
    if return_sign:
        raise refuse("scipy.special.logsumexp with return_sign=True")
    if b is not None:
        x, weights = promoted([to_float(v) for v in arrays(a, b)])
        return _weighted(x, weights, axis, keepdims)
    x = to_float(arrays(a)[0])
    axes = normalize_axes("logsumexp", axis, len(x.shape))
    out = reduction.logsumexp(x, axes=axes)
    return keep_axes(out, x.shape, axes) if keepdims else out


def _weighted(x: Any, weights: Any, axis: Any, keepdims: bool) -> Any:
    shifted = add(x, multiply(weights, 0.0))
    axes = normalize_axes("logsumexp", axis, len(shifted.shape))
    top = stop_gradient(_max(where(equal(weights, 0), -1e300, shifted), axes))
    total = reduce_sum(multiply(weights, exp(subtract(shifted, unreduce(top, shifted.shape, axes)))), axes=axes)
    out = add(log(total), top)
    return keep_axes(out, shifted.shape, axes) if keepdims else out


def softmax(x: Any, axis: Any = None) -> Any:
    """`scipy.special.softmax`."""
    v = to_float(arrays(x)[0])
    return reduction.softmax(v, axes=normalize_axes("softmax", axis, len(v.shape)))


def log_softmax(x: Any, axis: Any = None) -> Any:
    """`scipy.special.log_softmax`."""
    v = to_float(arrays(x)[0])
    axes = normalize_axes("log_softmax", axis, len(v.shape))
    return subtract(v, unreduce(reduction.logsumexp(v, axes=axes), v.shape, axes))


REPLACEMENTS: dict[str, Callable[..., Any]] = {"logsumexp": logsumexp, "softmax": softmax, "log_softmax": log_softmax}
REPLACED.update(f"scipy.special.{name}" for name in REPLACEMENTS)
