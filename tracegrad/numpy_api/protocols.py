"""Objects that are no arrays of ours, in operators and functions: what NumPy's protocols say of them.

An object that has `__array__` is the array that this gives. One that has a `__array_ufunc__` or `__array_function__` of
its own decides itself what a function means, as it does beside an ndarray. A subclass of ndarray may have methods,
attributes and rules of its own (units, masks), and its results are of that class: there is no traced value, and none
with a derivative, that could be that, so it is refused beside one. A trace ends there, and the call is plain Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS, is_plain_array
from tracegrad.errors import TraceError, UnsupportedError, located
from tracegrad.ops.core.op import Carrier, Level

__all__ = [
    "as_index", "as_operand", "decides", "is_left_to", "is_ours", "is_sequence", "is_unknown", "not_plain",
    "of_objects", "of_protocol", "require_plain",
]  # fmt: skip

_USUAL = frozenset({np.ndarray, list, tuple, type(None), slice, str, type(...), *LITERALS})
_PRIORITY_OF_ARRAYS = 0.0


def not_plain(x: Any) -> str:
    """What is wrong with an array of a subclass of ndarray's, or of NumPy's scalars, and what to do about it."""
    kind = "ndarray" if isinstance(x, np.ndarray) else "NumPy's scalars"
    return (
        f"a {type(x).__name__}, of a subclass of {kind} whose methods, attributes and rules no traced value has; give "
        "the numbers alone, np.asarray(x), and put the class, or the unit, on again outside, as a wrapper of the "
        "function can do"
    )


def require_plain(x: Any, where: Callable[[], str]) -> None:
    """UnsupportedError for such an array."""
    if isinstance(x, np.ndarray | np.generic) and not is_plain_array(x):
        raise UnsupportedError(located(f"{where()} is {not_plain(x)}"))


def as_operand(x: Any, peer: Any) -> Any:
    """An array or NumPy scalar that meets the carrier `peer`, if it is plain; for a Tensor its elements count."""
    if is_plain_array(x) or (peer is not None and peer.level in _TENSORS):
        return x
    raise (UnsupportedError(located(not_plain(x))) if peer is None else peer.refusal(not_plain(x)))


_TENSORS = (Level.TENSOR, Level.TRACED_TENSOR)


def of_protocol(x: Any) -> Any:
    """The array that an object gives by `__array__`; TraceError for what has no such method."""
    if isinstance(x, type) or not hasattr(x, "__array__"):
        raise TraceError(located(f"a value of type {type(x).__name__} is not an array, a number or a list of them"))
    if isinstance(x, Carrier):
        return x
    return x.__array__()


def as_index(x: Any) -> Any:
    """The array or the integer that an object, or an array of a subclass, is as an index."""
    if isinstance(x, np.ndarray):
        return np.asarray(x)
    if hasattr(x, "__array__"):
        return of_protocol(x)
    if hasattr(x, "__index__"):
        return x.__index__()
    raise IndexError(located(_WRONG))


_WRONG = (
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) "
    "and integer or boolean arrays are valid indices"
)


def decides(name: str, xs: Iterable[Any]) -> bool:
    """Whether one of these objects, which is no array, says by `name` what a function that is called on it means."""
    for x in xs:
        if type(x) not in _USUAL and not isinstance(x, Carrier | np.ndarray | np.generic) and hasattr(x, name):
            return True
    return False


def is_ours(cls: type) -> bool:
    """Whether functions mean for values of a class what they mean for arrays, as far as this package knows."""
    return issubclass(cls, Carrier | np.ndarray) or cls.__module__.startswith("tracegrad.numpy_api")


def is_left_to(other: Any) -> bool | None:
    """Whether an operator of an array is left to `other`, which is no array: NumPy has it so where that has no part in
    its functions, or is of higher priority. None where `other` says what the function means."""
    own = getattr(other, "__array_ufunc__", _MISSING)
    if own is not _MISSING:
        return True if own is None else None
    priority = getattr(other, "__array_priority__", None)
    return not hasattr(other, "__array__") or (isinstance(priority, int | float) and priority > _PRIORITY_OF_ARRAYS)


def is_unknown(other: Any) -> bool:
    """Whether an object with operators has nothing that says to NumPy how it stands to arrays: it is a sequence, or an
    element."""
    has_operators = any(name in vars(cls) for cls in type(other).__mro__[:-1] for name in _REFLECTED)
    known = any(hasattr(other, name) for name in ("__array_ufunc__", "__array_priority__", "__array__"))
    return has_operators and not known


_NAMES = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_REFLECTED = (*[f"__r{name}__" for name in _NAMES], "__lt__", "__le__", "__gt__", "__ge__")


def of_objects(x: Any, cls: type) -> BaseException:
    """What to raise where an operator of the array `x` has objects of a class for its results."""
    what = f"an operator of an array and a {cls.__name__} gives an array of objects"
    hint = "let the class have __array_ufunc__ = None, if it is to say what the operator means"
    builder: Any = getattr(x, "builder", None)
    if hasattr(builder, "gives_up"):
        error: BaseException = builder.gives_up(f"{what}; {hint}")
        return error
    return UnsupportedError(located(f"{what}, and these have no derivative; {hint}"))


def is_sequence(other: Any) -> bool:
    """Whether NumPy makes an array of what such an object holds."""
    cls = type(other)
    return hasattr(cls, "__len__") and hasattr(cls, "__getitem__") and not isinstance(other, Mapping | str | bytes)


_MISSING = object()
