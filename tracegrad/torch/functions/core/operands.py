"""Operand coercion: convert array arguments to one kind, with a fast path for arguments of one kind already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.errors import located
from tracegrad.numpy_api.operands import operands, to_float
from tracegrad.ops.core.op import Carrier, dispatch_operand
from tracegrad.ops.shape.linear import cast
from tracegrad.torch.functions.core.dims import one, type_name
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


class TensorOperands(NamedTuple):
    """Which of the two operands of a function must be Tensors in PyTorch: both, the first one, or one of them.

    Numbers may meet ndarrays.
    """

    name: str
    which: str = "both"
    parameters: tuple[str, str] = ("input", "other")

    def require(self, x: object, y: object) -> None:
        """Raise TypeError for a number in place of a Tensor."""
        kinds = [type(v) for v in (x, y)]
        tensors = [getattr(v, "common_dtype", None) is not None and not getattr(v, "weak", False) for v in (x, y)]
        numbers = [
            kind in LITERALS or (tensors[1 - k] and getattr(v, "weak", False))
            for k, (kind, v) in enumerate(zip(kinds, (x, y)))
        ]
        if not all(a or b for a, b in zip(tensors, numbers)):
            return
        if self.which == "both" and any(numbers):
            k = numbers.index(True)
            text = f"argument '{self.parameters[k]}' (position {k + 1}) must be Tensor, not {_kind_name(kinds[k])}"
            raise TypeError(located(f"{self.name}(): {text}"))
        if all(numbers) or (self.which == "first" and numbers[0]):
            texts = ["Tensor" if is_tensor else _kind_name(kind) for is_tensor, kind in zip(tensors, kinds)]
            first, second = self.parameters
            expected = f"expected one of: (Tensor {first}, Tensor {second}), (Tensor {first}, Number {second})"
            text = f"received an invalid combination of arguments - got ({', '.join(texts)}), but {expected}"
            raise TypeError(located(f"{self.name}() {text}"))


def _kind_name(kind: type) -> str:
    return kind.__name__ if kind in LITERALS else "float"


def pair(x: ArrayLike, y: ArrayLike, rule: TensorOperands | None = None) -> tuple[Any, Any]:
    """Convert two operands to one kind; Python numbers stay unchanged. The `rule` refuses numbers."""
    if type(y) is type(x) and isinstance(x, _ARRAYS):
        return x, y
    if rule is not None:
        rule.require(x, y)
    if isinstance(x, _ARRAYS) and type(y) in LITERALS:
        return x, y
    x, y = operands(x, y)
    return x, y


def floating(x: ArrayLike) -> Array:
    """Convert to an array of a floating dtype: integers and booleans become float64."""
    x = one(x)
    return x if x.dtype.kind in "fc" else to_float(x)


def in_floats(xs: Sequence[Array]) -> list[Array]:
    """Convert integers and booleans in `xs` to the floating dtype that promotion gives, and numbers to floats."""
    floats = [v for v in xs if not is_number(v) and v.dtype.kind in "fc"]
    if not floats or getattr(dispatch_operand(xs), "common_dtype", None) is None:
        return [to_float(v) for v in xs]
    return [to_float(v) if is_number(v) else _in_float(v, floats) for v in xs]


def _in_float(x: Array, floats: list[Array]) -> Array:
    return x if x.dtype.kind in "fc" else cast(x, dtype=floats[0].dtype.name)


NORM_OF_INTEGERS = "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}"


def require_inexact(x: Array, text: str) -> None:
    """Raise RuntimeError for a Tensor of integers or booleans; {} in `text` is the name of its dtype."""
    if getattr(x, "common_dtype", None) is not None and x.dtype.kind not in "fc" and not getattr(x, "weak", False):
        raise RuntimeError(located(text.format(type_name(x.dtype))))


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
