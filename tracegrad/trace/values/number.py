"""Traced Python numbers: a `Number` stands for an int, a float or a bool, and computes as Python does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.cpython.frames import frame_at
from tracegrad.errors import lost
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise import complex as parts
from tracegrad.ops.elementwise import table as ops
from tracegrad.trace.builder.hooks import HOOKS
from tracegrad.trace.sources.code_origin import is_user_code
from tracegrad.trace.values.differentiated_keys import check_key_lookup
from tracegrad.trace.values.operation_plans import of_two, with_literal
from tracegrad.trace.values.python_arithmetic import (
    absolute,
    arithmetic,
    bounds,
    by_python,
    compare,
    holds,
    invert,
    is_number,
    kind_of,
    negative,
    number,
    plus,
    value_of,
    whole,
)
from tracegrad.trace.values.text_conversions import method_of
from tracegrad.trace.values.tracer import Tracer
from tracegrad.typing import DType

_NAMES = {"b": "bool", "i": "int", "f": "float", "c": "complex"}


def _as_operand(x: Number, other: object) -> Any:
    """The other operand as the type to compute with: an `np.float64` is a float too, and Python's complex numbers treat
    it as one."""
    if kind_of(x) != "c" or not isinstance(other, Tracer) or isinstance(other, Number):
        return other
    scalar = not other.shape and not other.is_array
    return other.item() if scalar and other.dtype == np.float64 else other


# Bases of user classes whose reflected operator Python calls, by the kind of the left operand.
_USER_BASES: dict[str, Any] = {"i": int | float, "b": float, "f": float}


def _defers_to_user(x: Number, other: object, reflected: str) -> bool:
    """Whether Python lets `other`, a number of a user class, compute with `x`."""
    if type(other) in (int, float) or not isinstance(other, _USER_BASES.get(kind_of(x), ())):
        return False
    return any(is_user_code(c) and reflected in vars(c) for c in type(other).__mro__)


def _operators(name: str) -> tuple[Any, Any]:
    """An operator of Python's arithmetic, and its reflected form."""
    stem = name.rstrip("_")
    method, reflected_method = f"__{stem}__", f"__r{stem}__"
    usual, usual_reflected = getattr(Tracer, method), getattr(Tracer, reflected_method)

    def forward(self: Any, other: object, *modulus: object) -> Any:
        if modulus:
            return by_python(pow, self, other, *modulus)
        other = _as_operand(self, other)
        if is_number(other):
            return arithmetic(name, self, other)
        if isinstance(other, list | tuple):
            return other * int(self) if name == "mul" and kind_of(self) != "f" else NotImplemented
        return NotImplemented if _defers_to_user(self, other, reflected_method) else usual(self, other)

    def reflected(self: Any, other: object, *modulus: object) -> Any:
        if modulus:
            return by_python(pow, other, self, *modulus)
        if is_number(other):
            return arithmetic(name, other, self)
        if isinstance(other, list | tuple):
            return forward(self, other) if name == "mul" else NotImplemented
        return usual_reflected(self, other)

    return forward, reflected


def _fast_operators(op: Elementwise, name: str) -> tuple[Any, Any]:
    """As `_operators`, with a fast path for two Python floats."""
    forward, reflected = _operators(name)
    return _fast_operator(op, forward, False), _fast_operator(op, reflected, True)


def _fast_operator(op: Elementwise, usual: Callable[[Any, Any], Any], reflected: bool) -> Any:
    def of_usual(_: Elementwise, operands: tuple[object, ...]) -> object:
        return usual(*(operands[::-1] if reflected else operands))

    both, one = of_two(op, of_usual, weak=True), with_literal(op, not reflected, of_usual, weak=True)

    def apply(self: object, other: Any) -> Any:
        if type(self) is Number and self.node.aval.dtype.kind == "f":
            kind = type(other)
            if kind is float:
                return one((other, self) if reflected else (self, other))
            if kind is Number and other.node.aval.dtype.kind == "f":
                return both((other, self) if reflected else (self, other))
        return usual(self, other)

    return apply


def _comparison(name: str, reflected: str) -> Any:
    usual = getattr(Tracer, f"__{name}__")

    def apply(self: Any, other: object) -> Any:
        other = _as_operand(self, other)
        if is_number(other):
            return compare(name, self, other)
        if isinstance(other, list | tuple) or _defers_to_user(self, other, f"__{reflected}__"):
            return NotImplemented
        return usual(self, other)

    return apply


def _unary(compute: Callable[[Any], Any]) -> Any:
    def apply(self: Number) -> Any:
        return compute(self)

    return apply


_equal = _comparison("eq", "eq")


class Number(Tracer):
    """A Python number of the call being traced. In operations with arrays it adopts their dtype, as a literal does."""

    __slots__ = ()
    weak = True
    __hash__ = Tracer.__hash__

    __add__, __radd__ = _fast_operators(ops.add, "add")
    __sub__, __rsub__ = _fast_operators(ops.subtract, "sub")
    __mul__, __rmul__ = _fast_operators(ops.multiply, "mul")
    __truediv__, __rtruediv__ = _operators("truediv")
    __floordiv__, __rfloordiv__ = _operators("floordiv")
    __mod__, __rmod__ = _operators("mod")
    __divmod__, __rdivmod__ = _operators("divmod")
    __pow__, __rpow__ = _operators("pow")
    __and__, __rand__ = _operators("and_")
    __or__, __ror__ = _operators("or_")
    __xor__, __rxor__ = _operators("xor")
    __lshift__, __rlshift__ = _operators("lshift")
    __rshift__, __rrshift__ = _operators("rshift")
    __lt__, __le__ = _comparison("lt", "gt"), _comparison("le", "ge")
    __gt__, __ge__ = _comparison("gt", "lt"), _comparison("ge", "le")
    __ne__ = _comparison("ne", "ne")
    __neg__, __pos__, __abs__, __invert__ = _unary(negative), _unary(plus), _unary(absolute), _unary(invert)

    def __eq__(self, other: object) -> Any:
        check_key_lookup(self, other)
        return _equal(self, other)

    def _internal_class(self) -> type:
        """The class of the Python number, also in tracegrad's own code."""
        return {"f": float, "i": int, "b": bool, "c": complex}.get(self.aval.dtype.kind, Number)

    def _weakened(self, result: object) -> Any:
        return number(result)

    def beyond(self, dtype: DType) -> Any:
        if dtype.kind not in "iu" or self.dtype.kind != "i":
            return None
        low, high = bounds(self)
        info = np.iinfo(dtype)
        if low >= info.min and high <= info.max:
            return None
        inside = ops.logical_and(
            ops.greater_equal(self, int(info.min)), ops.less_equal(self, min(int(info.max), 2**63 - 1))
        )
        return None if holds(inside) else value_of(self)

    def is_valid_index(self, length: int) -> bool:
        low, high = bounds(self) if self.dtype.kind == "i" else (-1, 0)
        return low >= 0 and high < length

    def __round__(self, ndigits: object = None) -> Any:
        if ndigits is None and kind_of(self) == "f":
            return whole(ops.rint, self, round)
        if ndigits is None or (kind_of(self) != "f" and type(ndigits) is int and ndigits >= 0):
            return plus(self)
        rounded = _to_digits(self, ndigits) if kind_of(self) == "f" and type(ndigits) is int else None
        return by_python(round, self, ndigits) if rounded is None else rounded

    def __trunc__(self) -> object:
        return whole(ops.trunc, self, math.trunc)

    def __floor__(self) -> object:
        return whole(ops.floor, self, math.floor)

    def __ceil__(self) -> object:
        return whole(ops.ceil, self, math.ceil)

    def __getattr__(self, name: str) -> Any:
        """A method of Python numbers, computed by Python with the value of the call."""
        return _method(self, name)

    @property  # type: ignore[misc]
    def real(self) -> Any:
        """The real part, which is the number itself."""
        return number(parts.real(self)) if kind_of(self) == "c" else plus(self)

    @property  # type: ignore[misc]
    def imag(self) -> Any:
        """The imaginary part, which is zero."""
        if kind_of(self) == "c":
            return number(parts.imag(self))
        return 0.0 if kind_of(self) == "f" else 0

    def conjugate(self) -> object:
        """The complex conjugate, which is the number itself."""
        return number(parts.conj(self)) if kind_of(self) == "c" else plus(self)

    def _python_number(self, query: str) -> Any:
        raise AttributeError(f"'{_NAMES[kind_of(self)]}' object has no attribute '{query[:-2]}'")

    def preserve_kind(self, result: Any) -> Any:
        return result.zero_d()

    def is_integer(self) -> object:
        """Whether the number is whole."""
        if kind_of(self) != "f":
            return _method(self, "is_integer")()
        return number(ops.logical_and(ops.equal(ops.trunc(self), self), ops.isfinite(self)))

    def __index__(self) -> int:
        if kind_of(self) in "fc":
            raise TypeError(f"'{_NAMES[kind_of(self)]}' object cannot be interpreted as an integer")
        HOOKS.before_index(self, frame_at(1))
        return int(self.concrete("an index").item())

    def __getitem__(self, index: object) -> Any:
        raise TypeError(f"'{_NAMES[kind_of(self)]}' object is not subscriptable")

    def __setitem__(self, index: object, value: object) -> None:
        raise TypeError(f"'{_NAMES[kind_of(self)]}' object does not support item assignment")

    def __iter__(self) -> Any:
        raise TypeError(f"'{_NAMES[kind_of(self)]}' object is not iterable")


def _to_digits(x: Number, digits: int) -> Any:
    """The nearest decimal number with `digits` digits to `x`, as a float; None if this is not certain.

    Powers of ten are floats up to 10**22. The scaled number is then off by at most half a unit in its last digit. If it
    is farther than that from the middle of two integers, the nearer is known, and scaled back it is rounded once.
    """
    if abs(digits) > 22:
        return None
    scale = 10.0 ** abs(digits)
    scale_op, back = (ops.multiply, ops.divide) if digits >= 0 else (ops.divide, ops.multiply)
    scaled = scale_op(x, scale)
    nearest = ops.rint(scaled)
    distance, margin = ops.absolute(ops.subtract(scaled, nearest)), ops.multiply(ops.absolute(scaled), 2.0**-51)
    return number(back(nearest, scale)) if holds(ops.less(distance, ops.subtract(0.5, margin))) else None


def _method(x: Number, name: str) -> Any:
    known = {"b": bool, "i": int, "f": float, "c": complex}[kind_of(x)]
    if not hasattr(known, name):
        raise AttributeError(f"'{known.__name__}' object has no attribute '{name}'")
    if name == "as_integer_ratio" and x._is_differentiated():
        raise lost("as_integer_ratio()")
    return method_of(x, value_of(x), name)
