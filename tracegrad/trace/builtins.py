"""What traced code sees in the place of built-in functions and those of `math` that do not ask what arguments are."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.ir import Value
from tracegrad.numpy_api.registry import UFUNCS
from tracegrad.ops import Carrier

__all__ = ["BUILTINS", "MATH", "Shadowed", "stands_for", "unshadowed"]

_get = object.__getattribute__


class Shadowed:
    """What stands for an object of the user's, `_real`, in traced code."""

    __slots__ = ()


def unshadowed(x: Any) -> Any:
    """The real object of a shadow; anything else as it is."""
    return _get(x, "_real") if isinstance(type(x), type) and issubclass(type(x), Shadowed) else x


def _isinstance(x: Any, classes: Any) -> bool:
    """`isinstance`, with traced values taken for what they stand for."""
    if isinstance(x, classes):
        return True
    if not isinstance(x, Value):
        return False
    return issubclass(stands_for(x), classes)


def stands_for(x: Any) -> type:
    """The type of what a traced value stands for."""
    return {"f": float, "i": int, "b": bool}[x.dtype.kind] if x.weak else np.ndarray


class _TypeMeta(type):
    """`type`, but that the type of a traced value is that of what it stands for."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], Value):
            return stands_for(args[0])
        if len(args) == 1 and cls is _Type:
            return type(unshadowed(args[0]))
        return type(*args, **kwargs) if cls is _Type else super().__call__(*args, **kwargs)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, type) if cls is _Type else super().__instancecheck__(x)


class _Type(type, metaclass=_TypeMeta):
    """What traced code sees as `type`."""


BUILTINS = {"isinstance": _isinstance, "type": _Type}


# -- math ------------------------------------------------------------------------------------------------
_ELSEWHERE = {"acos": "arccos", "asin": "arcsin", "atan": "arctan", "atan2": "arctan2", "acosh": "arccosh",
              "asinh": "arcsinh", "atanh": "arctanh", "pow": "power", "fabs": "absolute",
              "degrees": "degrees", "radians": "radians"}  # fmt: skip
_SAME = ("ceil", "copysign", "cos", "cosh", "exp", "exp2", "expm1", "floor", "fmod", "hypot", "isfinite", "isinf",
         "isnan", "log", "log10", "log1p", "log2", "sin", "sinh", "sqrt", "tan", "tanh", "trunc")  # fmt: skip
_OVER_OPS = ("cbrt", "erf")


def _of_math(name: str) -> Callable[..., Any]:
    theirs = getattr(math, name)
    ours = UFUNCS[name] if name in _OVER_OPS else getattr(np, _ELSEWHERE.get(name, name))

    def call(*args: Any) -> Any:
        traced: Any = next((x for x in args if isinstance(x, Carrier)), None)
        if traced is None:
            return theirs(*args)
        if name == "log" and len(args) == 2:
            return np.log(args[0]) / np.log(args[1])
        result = ours(*args)
        if name in ("ceil", "floor", "trunc"):
            return int(result)
        return traced._weakened(result) if all(getattr(x, "weak", True) for x in args) else result

    return functools.wraps(theirs)(call)


# By the identity of what they replace.
MATH: dict[int, Any] = {id(getattr(math, name)): _of_math(name) for name in (*_SAME, *_ELSEWHERE, *_OVER_OPS)}
