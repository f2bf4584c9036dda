"""Numbers that are a Python float on some paths and an `np.float64` on others, such as `min(h, end - t)`.

Both kinds hold the same 64 bits and mostly compute the same, so most code leaves no guard. Operations in which the two
kinds differ (results with float32, division by zero, `type`) first read which kind it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from tracegrad.ir import GraphNode
from tracegrad.ir.builder import node_of
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.shape.linear import fresh, full
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.python_arithmetic import COMPARISONS, bounds, holds, usual_power
from tracegrad.trace.values.tracer import Tracer
from tracegrad.typing import Array, DType

# Dtypes with which an `np.float64` and a Python float compute the same.
_FLOAT64_OPERANDS = frozenset("?bhilBHILdDqQ")
_EXACT = 2**53


def _always(x: object, y: object) -> bool:
    return True


def _divides(x: object, y: object) -> bool:
    """Whether Python's division raises nothing."""
    if any(map(_is_of_numpy, (x, y))):
        return True
    return holds(ops.not_equal(plain(y), 0.0)) if isinstance(y, Tracer) else y != 0


def _has_power(x: Array, y: float) -> bool:
    if any(map(_is_of_numpy, (x, y))):
        return True
    if not isinstance(y, Tracer) and 0 <= y <= 1:
        return y in (0, 1) or holds(ops.logical_not(ops.less(plain(x), 0.0)))
    return holds(ops.isfinite(_power(plain(x), plain(y))))


def _power(x: Any, y: Any) -> Any:
    if isinstance(y, Tracer):
        return ops.power(x, y)
    return x**y if isinstance(y, np.ndarray | np.generic) else usual_power(x, y)


def _operator(
    op: Callable[..., object], method: str, agree: Callable[[object, object], bool], reflected: bool = False
) -> object:
    """An operator of both kinds at once, if they `agree`; else the kind is resolved."""

    def apply(self: Either, other: object) -> Any:
        operands = (other, self) if reflected else (self, other)
        quick = self.builder.inner is None and _agree(operands) and agree(*operands)
        return _computed(operands, op) if quick else getattr(self.resolved(), method)(other)

    return apply


def _operators(op: Callable[..., object], name: str, agree: Callable[[Any, Any], bool] = _always) -> tuple[Any, Any]:
    return _operator(op, f"__{name}__", agree), _operator(op, f"__r{name}__", agree, reflected=True)


def _comparison(name: str) -> Any:
    return _operator(COMPARISONS[name], f"__{name}__", _always)


def _of_one(op: Callable[..., object], method: str) -> object:
    def apply(self: Either) -> Any:
        quick = self.builder.inner is None and self.dtype.kind == "f"
        return _computed((self,), op) if quick else getattr(self.resolved(), method)()

    return apply


def _resolving(name: str, usual: object) -> object:
    """A method or property of numbers, applied after the kind is resolved."""
    if isinstance(usual, property):
        return property(lambda self: getattr(self.resolved(), name))
    return lambda self, *args, **kwargs: getattr(self.resolved(), name)(*args, **kwargs)


# Methods that do not depend on the kind of the number.
_COMMON = {"_internal_class", "beyond", "is_valid_index", "_weakened"}


class Either(Number):
    """A Python float where `python` is true and an `np.float64` elsewhere; or a boolean computed from one."""

    __slots__ = ("python",)
    # All methods of numbers resolve the kind, but for those below.
    vars().update(
        {
            name: _resolving(name, usual)
            for name, usual in vars(Number).items()
            if isinstance(usual, FunctionType | property) and name not in _COMMON
        }
    )
    __hash__ = Number.__hash__
    __add__, __radd__ = _operators(ops.add, "add")
    __sub__, __rsub__ = _operators(ops.subtract, "sub")
    __mul__, __rmul__ = _operators(ops.multiply, "mul")
    __truediv__, __rtruediv__ = _operators(ops.divide, "truediv", _divides)
    __pow__, __rpow__ = _operators(_power, "pow", _has_power)
    __lt__, __le__, __eq__ = _comparison("lt"), _comparison("le"), _comparison("eq")
    __gt__, __ge__, __ne__ = _comparison("gt"), _comparison("ge"), _comparison("ne")
    __neg__, __abs__ = _of_one(ops.negative, "__neg__"), _of_one(ops.absolute, "__abs__")

    def __init__(self, builder: TraceBuilder, node: GraphNode, python: Tracer):
        super().__init__(builder, node)
        self.python = python

    @property
    def weak(self) -> bool:  # type: ignore[override]
        """Whether it is a Python float; leaves a guard."""
        return bool(self.python)

    def resolved(self) -> Any:
        """The float with its kind resolved."""
        return (Number if self.weak else Tracer)(self.builder, self.node)

    def preserve_kind(self, result: object) -> Any:
        return self.resolved().preserve_kind(result)

    def stored(self, dtype: DType) -> Any:
        """The float itself: both kinds store the same in float arrays."""
        return plain(self) if dtype.kind in "fc" else self.resolved()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.resolved(), name)

    def __bool__(self) -> bool:
        return bool(plain(self))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **kwargs: object) -> Any:
        if method == "__call__" and not kwargs and _agree(inputs):
            return ufunc(*map(plain, inputs))
        return super().__array_ufunc__(ufunc, method, *inputs, **kwargs)


def is_float(x: object) -> bool:
    """Whether `x` is a Python float or an `np.float64`, constant or traced."""
    if not isinstance(x, Tracer):
        return type(x) is float
    return not x.shape and not x.is_array and x.dtype == np.float64 and x.origin is None


def as_either(x: Any, builder: TraceBuilder) -> Either:
    """A float that may have the other kind on other paths."""
    if isinstance(x, Either):
        return x
    weak = not isinstance(x, Tracer) or x.weak
    python = builder.value(node_of(full(shape=(), value=weak, dtype="bool")))
    x = full(shape=(), value=x, dtype="float64") if not isinstance(x, Tracer) else x
    return Either(builder, x.node, python)


def of_a_loop(x: object, builder: TraceBuilder) -> Either:
    """A float that may have the other kind in other iterations."""
    result = as_either(x, builder)
    nodes = [node_of(fresh(each, tag=builder.new_tag())) for each in (plain(result), result.python)]
    return Either(builder, nodes[0], builder.value(nodes[1]))


def of_two(condition: Any, x: object, y: object) -> Any:
    """`x` where the condition holds and `y` elsewhere: floats of any kind, at least one traced."""
    builder = next(v.builder for v in (x, y) if isinstance(v, Tracer))
    a, b = as_either(x, builder), as_either(y, builder)
    value = ops.where(condition, plain(a), plain(b))
    python: Any = ops.where(condition, a.python, b.python)
    return Either(builder, node_of(value), python)


def plain(x: object) -> Any:
    """An `Either` as an `np.float64`; other values unchanged."""
    return Tracer(x.builder, x.node) if isinstance(x, Either) else x


def _python(xs: Sequence[object]) -> Any:
    """Whether a result of these operands is a Python float: if all operands are."""
    result: Any = None
    for x in xs:
        if isinstance(x, Either) and x.python is not result:
            result = x.python if result is None else ops.logical_and(result, x.python)
    return result


def _computed(xs: Sequence[Any], op: Callable[..., Any]) -> Any:
    """The result of both kinds: NumPy's if an operand is NumPy's."""
    result = op(*map(plain, xs))
    if any(map(_is_of_numpy, xs)):
        return result
    return Either(result.builder, result.node, _python(xs))


def _agree(xs: Sequence[object]) -> bool:
    """Whether both kinds compute the same with these operands."""
    return all(map(_is_neutral, xs))


def _is_neutral(x: Any) -> bool:
    if isinstance(x, Number):
        return bool(x.dtype.kind == "f") or (x.dtype.kind == "i" and _is_exact(x))
    if type(x) in (int, bool, float):
        return type(x) is float or -_EXACT < x < _EXACT
    return isinstance(x, Tracer | np.ndarray | np.generic) and x.dtype.char in _FLOAT64_OPERANDS


def _is_exact(x: Number) -> bool:
    """Whether an integer is exact as a float; leaves a guard unless its bounds prove it."""
    low, high = bounds(x)
    known = low > -_EXACT and high < _EXACT
    return known or holds(ops.logical_and(ops.greater(x, -_EXACT), ops.less(x, _EXACT)))


def _is_of_numpy(x: object) -> bool:
    return isinstance(x, np.ndarray | np.generic) or (isinstance(x, Tracer) and not isinstance(x, Number))
