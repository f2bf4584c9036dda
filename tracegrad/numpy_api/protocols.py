"""Foreign array objects in operators and functions: NumPy's protocols decide.

An object that has `__array__` is the array that this method returns. An object with its own `__array_ufunc__` or
`__array_function__` decides the meaning of a function, as it does with an ndarray. A subclass of ndarray may have its
own methods, attributes and rules (units, masks), and its results are of that class. No traced value, and no value with
a derivative, can be of that class. An operation on both is refused: the trace ends, and the call runs as plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS, is_plain_array
from tracegrad.errors import TraceError, UnsupportedError, located
from tracegrad.ops.core.op import Carrier, DispatchLevel
from tracegrad.typing import Array, ArrayLike, NDArray, Number

_USUAL = frozenset({np.ndarray, list, tuple, type(None), slice, str, type(...), *LITERALS})
_PRIORITY_OF_ARRAYS = 0.0


def not_plain(x: ArrayLike) -> str:
    """Describe the problem of an array of a subclass of ndarray, or of NumPy's scalars, and the remedy."""
    kind = "ndarray" if isinstance(x, np.ndarray) else "NumPy's scalars"
    return (
        f"a {type(x).__name__}, of a subclass of {kind} whose methods, attributes and rules no traced value has; give "
        "the numbers alone, np.asarray(x), and put the class, or the unit, on again outside, as a wrapper of the "
        "function can do"
    )


def require_plain(x: Array | Number, context: Callable[[], str]) -> None:
    """Raise UnsupportedError for an array of a subclass."""
    if isinstance(x, np.ndarray | np.generic) and not is_plain_array(x):
        raise UnsupportedError(located(f"{context()} is {not_plain(x)}"))


def as_operand(x: NDArray | np.generic, peer: Any) -> Any:
    """Convert an array or NumPy scalar to an operand of the carrier `peer`; only Tensors accept subclasses."""
    if is_plain_array(x) or (peer is not None and peer.level in _TENSORS):
        return x
    raise (UnsupportedError(located(not_plain(x))) if peer is None else peer.refusal(not_plain(x)))


_TENSORS = (DispatchLevel.TENSOR, DispatchLevel.TRACED_TENSOR)


def of_protocol(x: object) -> Array:
    """Return the array of an object's `__array__`; TraceError for objects without this method."""
    if isinstance(x, type) or not hasattr(x, "__array__"):
        raise TraceError(located(f"a value of type {type(x).__name__} is not an array, a number or a list of them"))
    carried: Any = x
    array: Array = carried if isinstance(x, Carrier) else carried.__array__()
    return array


def as_index(x: object) -> Array | int:
    """Convert an object, or an array of a subclass, to an array or integer index."""
    if isinstance(x, np.ndarray):
        return np.asarray(x)
    if hasattr(x, "__array__"):
        return of_protocol(x)
    if hasattr(x, "__index__"):
        index: int = x.__index__()
        return index
    raise IndexError(located(_WRONG))


_WRONG = (
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) "
    "and integer or boolean arrays are valid indices"
)


def decides(name: str, xs: Iterable[object]) -> bool:
    """Whether one of these objects, which is no array, defines by `name` the meaning of functions called on it."""
    for x in xs:
        if type(x) not in _USUAL and not isinstance(x, Carrier | np.ndarray | np.generic) and hasattr(x, name):
            return True
    return False


def is_array_class(cls: type) -> bool:
    """Whether functions treat values of a class as arrays, as far as this package knows."""
    return issubclass(cls, Carrier | np.ndarray) or cls.__module__.startswith("tracegrad.numpy_api")


def defers_to(other: object) -> bool | None:
    """Whether an operator of an array is left to `other`, which is no array.

    As in NumPy, the result is True if `other` has no array protocol, or a higher priority. It is None if `other`
    defines the ufunc.
    """
    array_ufunc = getattr(other, "__array_ufunc__", _MISSING)
    if array_ufunc is not _MISSING:
        return True if array_ufunc is None else None
    priority = getattr(other, "__array_priority__", None)
    return not hasattr(other, "__array__") or (isinstance(priority, int | float) and priority > _PRIORITY_OF_ARRAYS)


def is_unknown(other: object) -> bool:
    """Whether an object has operators but no array protocol, so that NumPy takes it as a sequence or an element."""
    has_operators = any(name in vars(cls) for cls in type(other).__mro__[:-1] for name in _REFLECTED)
    known = any(hasattr(other, name) for name in ("__array_ufunc__", "__array_priority__", "__array__"))
    return has_operators and not known


_NAMES = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_REFLECTED = (*[f"__r{name}__" for name in _NAMES], "__lt__", "__le__", "__gt__", "__ge__")


def of_objects(x: object, cls: type) -> BaseException:
    """Return the error for an operator of the array `x` whose results would be objects of a class."""
    text = f"an operator of an array and a {cls.__name__} gives an array of objects"
    hint = "let the class have __array_ufunc__ = None, if it is to say what the operator means"
    builder: Any = getattr(x, "builder", None)
    if hasattr(builder, "abort"):
        error: BaseException = builder.abort(f"{text}; {hint}")
        return error
    return UnsupportedError(located(f"{text}, and these have no derivative; {hint}"))


def is_sequence(other: object) -> bool:
    """Whether NumPy converts `other` to an array of its items."""
    cls = type(other)
    return hasattr(cls, "__len__") and hasattr(cls, "__getitem__") and not isinstance(other, Mapping | str | bytes)


_MISSING = object()
