"""Integer functions (bitwise, divisors), and functions of the floating-point representation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.numpy_api import ufuncs
from tracegrad.ops.elementwise.table import multiply
from tracegrad.ops.shape.linear import cast
from tracegrad.torch.functions.core.dims import one
from tracegrad.torch.functions.core.operands import TensorOperands, as_array, as_node, floating, is_whole, pair
from tracegrad.torch.functions.core.registry import function
from tracegrad.torch.functions.core.return_types import return_type
from tracegrad.typing import Array, ArrayLike

function("bitwise_not", in_place=True)(ufuncs.invert)


def _of_two(ufunc: Callable[..., Any], name: str, doc: str, tensors: str) -> None:
    rule = TensorOperands(name, tensors)

    def call(input: ArrayLike, other: ArrayLike) -> Array:
        return as_array(ufunc(*pair(input, other, rule)))

    call.__name__, call.__doc__ = name, doc
    function(name, in_place=True)(call)


_of_two(ufuncs.bitwise_and, "bitwise_and", str(ufuncs.bitwise_and.__doc__), "one")
_of_two(ufuncs.bitwise_or, "bitwise_or", str(ufuncs.bitwise_or.__doc__), "one")
_of_two(ufuncs.bitwise_xor, "bitwise_xor", str(ufuncs.bitwise_xor.__doc__), "one")
_of_two(np.left_shift, "bitwise_left_shift", "The bits of `input` moved to the left by `other`.", "one")
_of_two(
    np.right_shift, "bitwise_right_shift", "The bits of `input` moved to the right by `other`, keeping the sign.", "one"
)
_of_two(np.gcd, "gcd", "The greatest common divisor, at least 0.", "both")
_of_two(np.lcm, "lcm", "The least common multiple, at least 0.", "both")
_NEXTAFTER, _LDEXP = TensorOperands("nextafter"), TensorOperands("ldexp")


@function("nextafter", in_place=True)
def nextafter(input: ArrayLike, other: ArrayLike) -> Array:
    """Return the number next to `input` in the direction of `other`. It has no derivative."""
    x, y = pair(input, other, _NEXTAFTER)
    values: Any = (floating(x), y)
    return as_array(np.nextafter(*(v.detach() if hasattr(v, "detach") else v for v in values)))


@function("ldexp", in_place=True)
def ldexp(input: ArrayLike, other: ArrayLike) -> Array:
    """input * 2**other

    >>> ldexp(np.array([1.5]), np.array([3])).tolist()
    [12.0]
    """
    x, y = pair(input, other, _LDEXP)
    x = floating(x)
    return as_node("LdexpBackward0", _ldexp, x, y)


def _ldexp(x: Array, y: Array) -> Array:
    if is_whole(y):
        return multiply(x, cast(2.0**y, dtype=x.dtype.name))
    return multiply(x, np.asarray(np.power(2.0, y)).astype(x.dtype) if isinstance(y, np.ndarray) else 2.0**y)


_Frexp = return_type("frexp", "mantissa", "exponent")


@function("frexp")
def frexp(input: Array) -> Any:
    """Split numbers into mantissas from 1/2 to 1 and powers of two.

    The exponent counts as a constant in the derivative of the mantissa.

    >>> frexp(np.array([6.0]))
    tracegrad.return_types.frexp(
    mantissa=[0.75],
    exponent=[3])
    """
    return _Frexp(*(as_array(v) for v in np.frexp(floating(input))))


@function("is_nonzero")
def is_nonzero(input: ArrayLike) -> bool:
    """Return whether the only element is not 0.

    RuntimeError if there are no or several elements.
    """
    return bool(one(input))
