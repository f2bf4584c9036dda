"""Operand coercion: convert array arguments to one kind, with a fast path for arguments of one kind already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.numpy_api.operands import operands, to_float
from tracegrad.ops.core.op import Carrier, dispatch_operand
from tracegrad.ops.shape.linear import cast
from tracegrad.torch.functions.core.dims import one
from tracegrad.typing import Array, ArrayLike, Number, Results, Shape

if TYPE_CHECKING:
    from typing_extensions import TypeIs


def of_one_kind(xs: Sequence[object]) -> bool:
    """Whether all operands are carriers of one class, so that no conversion is necessary."""
    cls = xs[0].__class__
    for x in xs:
        if x.__class__ is not cls:
            return False
    return issubclass(cls, Carrier)


def alike(xs: Sequence[Array | Carrier]) -> Shape | None:
    """Return the common shape of `xs` if all have the same shape and dtype; else None."""
    shape, dtype = xs[0].shape, xs[0].dtype
    for x in xs[1:]:
        if x.shape != shape or x.dtype is not dtype:
            return None
    return shape


_ARRAYS = (Carrier, np.ndarray)


def pair(x: ArrayLike, y: ArrayLike) -> tuple[Any, Any]:
    """Convert two operands to one kind; Python numbers stay unchanged."""
    if isinstance(x, _ARRAYS) and (type(y) is type(x) or type(y) in LITERALS):
        return x, y
    x, y = operands(x, y)
    return x, y


def floating(x: ArrayLike) -> Array:
    """Convert to an array of a floating dtype: integers and booleans become float64."""
    x = one(x)
    return x if x.dtype.kind in "fc" else to_float(x)


def in_floats(xs: Sequence[Array]) -> list[Any]:
    """Convert integers and booleans in `xs` to the floating dtype that promotion gives, and numbers to floats."""
    floats = [v for v in xs if not is_number(v) and v.dtype.kind in "fc"]
    if not floats or getattr(dispatch_operand(xs), "common_dtype", None) is None:
        return [to_float(v) for v in xs]
    return [to_float(v) if is_number(v) else _in_float(v, floats) for v in xs]


def _in_float(x: Array, floats: list[Array]) -> Array:
    return x if x.dtype.kind in "fc" else cast(x, dtype=floats[0].dtype.name)


def as_array(x: ArrayLike) -> Array:
    """Return a carrier unchanged, and anything else as an ndarray."""
    return x if isinstance(x, Carrier) else np.asarray(x)


def is_whole(x: Array) -> bool:
    """Whether `x` is a Tensor of integers; some functions then return integers."""
    return getattr(x, "common_dtype", None) is not None and x.dtype.kind in "iu"


def is_number(x: object) -> TypeIs[Number]:
    """Whether `x` is a Python number."""
    return type(x) in LITERALS


def counted(name: str, array: object, number: int = 0) -> str:
    """Return the name of a numbered node: `number` if `array` is a Python number, else the other of 0 and 1."""
    return f"{name}Backward{number if type(array) in LITERALS else 1 - number}"


def as_node(name: str, fn: Callable[..., Results], *args: object) -> Results:
    """Run `fn(*args)`, a function of several ops, as one node of the eager tape, like `one_node`."""
    owner = dispatch_operand(args)
    return fn(*args) if owner is None else owner.composed(name, fn, args, {})
