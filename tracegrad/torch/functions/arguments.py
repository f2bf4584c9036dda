"""What PyTorch's functions take for arrays, brought into one kind, with a short way for what already is of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.numpy_api.operands import operands, to_float
from tracegrad.ops.op import Carrier, lead
from tracegrad.torch.functions.dims import one

__all__ = ["as_node", "counted", "floating", "is_number", "of_one_kind", "pair"]


def of_one_kind(xs: Any) -> bool:
    """Whether all are carriers of one class, which need not be brought into one kind."""
    cls = xs[0].__class__
    return issubclass(cls, Carrier) and all([x.__class__ is cls for x in xs])  # noqa: C419 (a list is faster)


def pair(x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands of one kind; Python numbers stay what they are."""
    if isinstance(x, Carrier | np.ndarray) and (type(y) is type(x) or type(y) in LITERALS):
        return x, y
    x, y = operands(x, y)
    return x, y


def floating(x: Any) -> Any:
    """An array of a floating dtype: integers and booleans as float64."""
    x = one(x)
    return x if x.dtype.kind in "fc" else to_float(x)


def is_number(x: Any) -> bool:
    """Whether `x` is a Python number."""
    return type(x) in LITERALS


def counted(name: str, array: Any, number: int = 0) -> str:
    """The name of a node that PyTorch numbers by whether `array` is a Python number (`number`) or not (the other)."""
    return f"{name}Backward{number if type(array) in LITERALS else 1 - number}"


def as_node(name: str, fn: Any, *args: Any) -> Any:
    """`fn(*args)`, a function of several ops, as one node of the eager tape, as `one_node` makes it."""
    owner = lead(args)
    return fn(*args) if owner is None else owner.composed(name, fn, args, {})
