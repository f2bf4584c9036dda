"""Differences of booleans and powers of integers, which PyTorch refuses or computes other than NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.operands import to_dtype
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.elementwise.bits import bitwise_and
from tracegrad.ops.elementwise.table import equal, less, maximum, power, where
from tracegrad.torch.functions.core.operands import is_whole
from tracegrad.typing import Array, ArrayLike


def refuse_bool(x: ArrayLike, y: Any) -> None:
    """Raise RuntimeError for a difference of Tensors of which one is boolean."""
    if getattr(x if isinstance(x, Carrier) else y, "common_dtype", None) is None:
        return
    kinds = [type(v) is bool or getattr(v, "dtype", None) == np.bool_ for v in (x, y)]
    if all(kinds):
        text = "with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead."
        raise RuntimeError(located(f"Subtraction, the `-` operator, {text}"))
    if any(kinds):
        text = "with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or"
        raise RuntimeError(located(f"Subtraction, the `-` operator, {text} `logical_not()` operator instead."))


def integer_power(x: Any, y: Any) -> Array:
    """Return x ** y; for a Tensor of negative integers `y` and integers `x` the quotient rounded towards zero.

    RuntimeError for a negative number `y` and a Tensor of integers `x`.
    """
    if is_whole(x) and type(y) is int and y < 0:
        raise RuntimeError(located("Integers to negative integer powers are not allowed."))
    if not is_whole(y) or not (is_whole(x) or type(x) is int):
        return power(x, y)
    result = power(x, maximum(y, 0))
    sign = where(equal(bitwise_and(y, 1), 0), 1, -1)
    if type(x) is int:
        inverse: Any = 1 if x == 1 else sign if x == -1 else 0
    else:
        inverse = where(equal(x, 1), 1, where(equal(x, -1), sign, 0))
    return to_dtype(where(less(y, 0), inverse, result), result.dtype)
