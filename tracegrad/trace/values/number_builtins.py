"""Trace `float`, `int`, `max` and similar built-in functions of numbers, and NumPy's scalar types as functions.

The results are traced numbers with derivatives. Python itself handles other arguments, and results that depend on more
than values, such as which of two objects `max` returns. The methods of the number classes are traced as functions too.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_huge
from tracegrad.numpy_api.creation import array
from tracegrad.numpy_api.faces import represented_type
from tracegrad.numpy_api.operands import peer_of
from tracegrad.ops import TensorCarrier
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.elementwise.complex import complex_
from tracegrad.trace.values.float_or_scalar import Either, is_float, of_two, plain
from tracegrad.trace.values.math_functions import valued
from tracegrad.trace.values.python_arithmetic import (
    BINARY,
    UNARY,
    bounded,
    bounds,
    is_number,
    kind_of,
    number,
    real,
    whole,
)
from tracegrad.trace.values.text_conversions import reads
from tracegrad.trace.values.tracer import Tracer

if TYPE_CHECKING:
    from tracegrad.typing import Array


def _scalar(x: object, query: str = "item()") -> Any:
    """A zero-dimensional value as the traced Python number it converts to; None for other values."""
    if isinstance(x, TensorCarrier):
        tensor: Any = x
        x = tensor._numbers(query).item() if tensor.numel() == 1 and tensor.dtype.kind != "c" else None
    elif isinstance(x, Tracer) and not x.shape:
        x = x if x.weak else x.item()
    return x if isinstance(x, Tracer) and x.weak else None


def _float(*args: object) -> object:
    x = _scalar(args[0], "float()") if len(args) == 1 else None
    return _read(*args) if x is None or kind_of(x) == "c" else real(x)


_read, _read_complex = reads(float), reads(complex)


def _int(*args: Array, **kwargs: object) -> Any:
    x = _scalar(args[0]) if len(args) == 1 and not kwargs else None
    return int(*args, **kwargs) if x is None or kind_of(x) == "c" else whole(ops.trunc, x, int)


def _complex(*args: Any, **kwargs: Any) -> Any:
    inputs = [x if is_number(x) else _scalar(x, "complex()") for x in args]
    known = len(args) in (1, 2) and not kwargs and all(x is not None for x in inputs)
    if not known or not any(isinstance(x, Tracer) for x in inputs):
        return _read_complex(*args, **kwargs)
    if any(kind_of(x) == "c" for x in inputs):
        return inputs[0] + 0j if len(inputs) == 1 else inputs[0] + inputs[1] * 1j
    return number(complex_(*[real(x) for x in (*inputs, 0.0)[:2]]))


def _map(function: Callable[..., object], *args: Any) -> object:
    return map(CALLED[function] if any(function is f for f in (*_TYPES, *_SCALARS)) else function, *args)


def _extreme(builtin: Callable[..., object], comes_first: Callable[..., Any], ends: Callable[..., int]) -> Any:
    """`min` or `max` of numbers of one kind, or of NumPy scalars of one dtype, without reading which it is."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs or not args:
            return builtin(*args, **kwargs)
        xs = args if len(args) > 1 else tuple(args[0])
        if len(xs) < 2:
            return builtin(xs)
        open_kind = any(isinstance(x, Either) for x in xs)
        if not open_kind and _alike(xs):
            return functools.reduce(selected, xs)
        return functools.reduce(either, xs) if _are_floats(xs) else builtin(xs)

    def either(x: object, y: object) -> Any:
        if not any(isinstance(v, Tracer) for v in (x, y)):
            return builtin(x, y)
        return of_two(comes_first(plain(y), plain(x)), y, x)

    def selected(x: Any, y: Any) -> Any:
        result = ops.where(comes_first(y, x), y, x)
        if not is_number(x):
            return result
        (a, b), (c, d) = (bounds(v) if kind_of(v) != "f" else (0, 0) for v in (x, y))
        return bounded(number(result), ends(a, c), ends(b, d))

    return call


def _alike(xs: Sequence[Any]) -> bool:
    """Whether these are numbers of one kind, or scalars of one dtype, at least one traced."""
    if all(map(is_number, xs)):
        known = any(map(is_huge, xs)) or not any(isinstance(x, Tracer) for x in xs)
        return not known and len(set(map(kind_of, xs))) == 1
    return all(isinstance(x, Tracer) and not x.shape and not x.is_array and not x.weak for x in xs) and (
        len({x.dtype for x in xs}) == 1
    )


def _are_floats(xs: Sequence[object]) -> bool:
    """Whether these are floats that differ at most in kind, at least one traced."""
    traced = [x for x in xs if isinstance(x, Tracer)]
    return bool(traced) and all(map(is_float, xs)) and all(x.builder.inner is None for x in traced)


def _of_numpy(kind: Any) -> Any:
    """A NumPy scalar class, as a function."""
    read = reads(kind)

    def call(*args: object) -> Any:
        if len(args) != 1 or not isinstance(peer_of(*args), Tracer):
            return read(*args)
        x = plain(args[0]) if isinstance(args[0], Either) else args[0]
        # NumPy returns an array of this dtype itself, without a copy.
        return x if isinstance(x, Tracer) and x.shape and x.dtype == kind else array(x, kind)[()]

    return call


_TYPES = (float, int, complex)
_SCALARS = (
    np.float16,
    np.float32,
    np.float64,
    np.complex64,
    np.complex128,
    np.bool_,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
)
# Replacements of built-in functions and scalar types that are called.
CALLED: dict[Any, Callable[..., Any]] = {
    complex: _complex,
    float: _float,
    int: _int,
    map: _map,
    max: _extreme(max, ops.greater, max),
    min: _extreme(min, ops.less, min),
    **{kind: _of_numpy(kind) for kind in _SCALARS},
}


# -- methods of the classes, as functions -------------------------------------------------------------------------
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
# Classes of the other operands that the methods of these classes take.
_COMPUTE_WITH: dict[Any, Any] = {float: (float, int), int: int, complex: (complex, float, int)}


@functools.cache
def _unbound(real: Any, name: str) -> Any:
    """A method of a number class as a function, which also takes traced numbers."""
    method = getattr(real, name)
    traced_version = _of_pythons if real in _TYPES else _of_numpys

    @functools.wraps(method)
    def call(*args: object, **kwargs: object) -> Any:
        if not any(isinstance(x, Tracer) for x in args):
            return method(*args, **kwargs)
        args = tuple([plain(x) if isinstance(x, Either) else x for x in args])
        cls = _class_of(args[0])
        if not issubclass(cls, real):  # Python raises, and names the class
            return method(np.empty(0) if cls is np.ndarray else cls(), *args[1:], **kwargs)
        return traced_version(real, name, method, args, kwargs)

    return call


def _of_pythons(real: object, name: str, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    operate = UNARY.get(name) or BINARY.get(name) or BINARY.get(name.replace("__r", "__", 1))
    if operate is None or kwargs or len(args) != (1 if name in UNARY else 2):
        converted = CALLED[real](args[0])
        return (
            getattr(converted, name)(*args[1:], **kwargs)
            if hasattr(converted, name)
            else valued(method)(*args, **kwargs)
        )
    if not all(issubclass(_class_of(x), _COMPUTE_WITH[real]) for x in args[1:]):
        return NotImplemented
    numbers = [CALLED[real](x) for x in args]
    return operate(*numbers) if name in UNARY or name in BINARY else operate(*numbers[::-1])


def _of_numpys(real: object, name: str, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    scalar: Any = args[0]
    if not isinstance(scalar, Tracer):
        return method(*args, **kwargs)  # NumPy dispatches to the other operands
    return getattr(scalar, name)(*args[1:], **kwargs) if hasattr(scalar, name) else valued(method)(*args, **kwargs)


def _class_of(x: object) -> type:
    return represented_type(x) if isinstance(x, Tracer) else type(x)


class _Class:
    """A number class that traced code calls, or reads a method of."""

    __slots__ = ("call", "real")

    def __init__(self, real: type, call: Callable[..., Any]):
        self.real, self.call = real, call

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return _get(self, "call")(*args, **kwargs)

    def __getattribute__(self, name: str) -> object:
        real = _get(self, "real")
        result = getattr(real, name)
        return _unbound(real, name) if isinstance(result, _METHODS) else result


_get = object.__getattribute__
CLASSES: dict[Any, Any] = {real: _Class(real, CALLED[real]) for real in (*_TYPES, *_SCALARS)}


def unbound(x: object) -> Any:
    """The replacement of a method of these classes that is read from elsewhere; None for other objects."""
    if not isinstance(x, _METHODS) or x.__objclass__ not in CLASSES:
        return None
    return _unbound(x.__objclass__, x.__name__)
