"""Trace Python's int and float arithmetic as ops, with interval analysis and implicit guards.

Python's arithmetic and machine arithmetic agree except in rare cases: integer overflow of 64 bits, division by zero,
overflow of a power. There the machine operation is recorded with an *implicit guard* on the common case, by
`builder.holds`. If the guard fails, Python computes with the values of the call, which become guards, so other values
take another path. Integers therefore have no bounds, and errors are Python's own.

No guard is left if the intervals of the operands prove it. Intervals of results follow from the arithmetic. An argument
is guarded once to have 32 bits, which suffices for most operations on it.

The values in a region are unknown, so arithmetic there has no guards and is int64 and float64 arithmetic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad.analysis.intervals import corners, meet, powers, quotients
from tracegrad.avals import is_huge
from tracegrad.errors import lost
from tracegrad.ops.elementwise import bits
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.shape.linear import cast
from tracegrad.trace.values.tracer import Tracer

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


_INT32, _ALL = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
# Magnitudes up to which an integer is exact as a float, and up to which a float bounds the magnitude of an integer.
_EXACT, _SAFE = 2**53, 2**62
_PLAIN = (bool, int, float, complex)
_EXACT_VALUE = "the exact value"


def is_number(x: object) -> bool:
    """Whether `x` is a Python number or a traced one."""
    return type(x) in _PLAIN or _is_traced(x)


def _is_traced(x: object) -> bool:
    return isinstance(x, Tracer) and x.weak


def value_of(x: Any) -> Any:
    """The value of a traced number; leaves a guard."""
    return x.concrete(_EXACT_VALUE).item()


def number(x: object) -> Any:
    """The traced value as a Python number."""
    return x.builder.python_number(x.node) if isinstance(x, Tracer) else x


def kind_of(x: Any) -> str:
    """The kind of a number: "b", "i", "f" or "c"."""
    return x.dtype.kind if _is_traced(x) else "bifc"[_PLAIN.index(type(x))]


def holds(condition: object) -> bool:
    """Whether a usually true condition is true in the call being traced; leaves an implicit guard."""
    return condition.builder.innermost().holds(condition) if isinstance(condition, Tracer) else bool(condition)


def by_python(function: Callable[..., Any], *operands: Any, usual: Any = None) -> Any:
    """Compute with the values of the operands in Python; the traced number `usual` if it has the same value."""
    result = function(*[value_of(x) if _is_traced(x) else x for x in operands])
    if usual is not None and type(result) in (int, float, bool):
        known = usual.builder.compute(usual.node).item()
        if type(known) is type(result) and repr(known) == repr(result):
            return usual
    for x in operands:
        if _is_traced(x) and x.builder.innermost().has_derivative(x.node) and type(result) in (float, complex):
            raise lost(getattr(function, "__name__", "an operation of Python numbers"))
    return result


# -- ranges --------------------------------------------------------------------------------------------------
def bounds(x: Any) -> tuple[int, int]:
    """The bounds of an integer (interval analysis)."""
    if not _is_traced(x):
        return int(x), int(x)
    return (0, 1) if x.dtype.kind == "b" else x.builder.bounds.get(x.node, _ALL)


def bounded(x: Any, low: int, high: int) -> Any:
    """`x` with these bounds."""
    if _is_traced(x):
        x.builder.bounds[x.node] = meet(bounds(x), (low, high))
    return x


def _small(x: Any) -> None:
    """Guard the usual size of an argument, if it has no known bounds yet."""
    if _is_traced(x) and x.node.op is None and bounds(x) == _ALL:
        inside = ops.logical_and(ops.greater_equal(x, _INT32[0]), ops.less_equal(x, _INT32[1]))
        if holds(inside):
            bounded(x, *_INT32)


def _within(limit: int, *xs: object) -> bool:
    """Whether these integers are at most `limit` in size."""
    for x in xs:
        if max(map(abs, bounds(x))) > limit:
            _small(x)
        low, high = bounds(x)
        if max(-low, high) <= limit:
            continue
        if not _is_traced(x) or not holds(ops.less(ops.absolute(real(x)), float(limit))):
            return False
        bounded(x, -limit, limit)
    return True


def real(x: Any) -> Any:
    """The number as a float, as Python converts it."""
    if not _is_traced(x):
        return float(x)
    return x if x.dtype.kind == "f" else number(cast(x, dtype="float64"))


def _integer(x: Any) -> Any:
    if not _is_traced(x):
        return int(x)
    return x if x.dtype.kind != "b" else bounded(number(cast(x, dtype="int64")), 0, 1)


def plus(x: Any) -> Any:
    return _integer(x) if kind_of(x) == "b" else number(x._alias())


def _fitting(op: Callable[..., Any], of_reals: Callable[..., Any], range_of: Any, python: Any, *xs: Any) -> Any:
    """The integer `op(*xs)`, guarded to fit 64 bits; `range_of` computes its bounds from the operand bounds."""
    low, high = range_of(*map(bounds, xs))
    if low < _ALL[0] or high > _ALL[1]:
        for x in xs:
            _small(x)
        low, high = range_of(*map(bounds, xs))
    if low < _ALL[0] or high > _ALL[1]:
        size = ops.absolute(of_reals(*map(real, xs)))
        if not holds(ops.less_equal(size, float(_SAFE))):
            return by_python(python, *xs)
        low, high = max(low, -_SAFE - 2**12), min(high, _SAFE + 2**12)
    return bounded(number(op(*xs)), low, high)


def whole(op: Callable[..., Any], x: object, python: Callable[..., object]) -> Any:
    """A float rounded to an integer by `op`."""
    if kind_of(x) != "f":
        return plus(x)
    rounded = op(x)
    if not holds(ops.less(ops.absolute(rounded), float(_SAFE))):
        return by_python(python, x)
    return bounded(number(cast(rounded, dtype="int64")), -_SAFE, _SAFE)


# -- arithmetic of integers ------------------------------------------------------------------------------------
def _sums(name: str) -> Callable[..., Any]:
    op, python = {"add": ops.add, "sub": ops.subtract, "mul": ops.multiply}[name], getattr(operator, name)

    def compute(x: object, y: object) -> Any:
        return _fitting(op, op, corners(python), python, x, y)

    return compute


def _nonzero(y: Any) -> bool:
    """Whether a divisor is nonzero; leaves an implicit guard."""
    low, high = bounds(y) if kind_of(y) not in "fc" else (0, 0)
    if low > 0 or high < 0:
        return True
    return holds(ops.not_equal(y, 0)) if _is_traced(y) else y != 0


def _by_zero(python: Callable[..., Any], x: object, y: object) -> Any:
    """Raise Python's error for a zero divisor; `x` is not read if the divisor is a constant."""
    return by_python(python, x if _is_traced(y) else 1.0 if kind_of(x) == "f" else 1, y)


def _int_divide(x: Operand, y: Operand) -> object:
    if not _nonzero(y):
        return _by_zero(operator.truediv, x, y)
    if not _within(_EXACT, x, y):
        return by_python(operator.truediv, x, y)
    return number(ops.divide(x, y))


def _int_floor_divide(x: object, y: object) -> Any:
    if not _nonzero(y):
        return _by_zero(operator.floordiv, x, y)
    return _fitting(ops.floor_divide, ops.divide, quotients, operator.floordiv, x, y)


def _int_remainder(x: Any, y: Any) -> Any:
    if not _nonzero(y):
        return _by_zero(operator.mod, x, y)
    low, high = bounds(y)
    return bounded(number(ops.remainder(x, y)), min(low + 1, 0), max(high - 1, 0))


def _int_power(x: Any, y: Any) -> Any:
    low, high = bounds(y)
    if low < 0 and (high < 0 or not holds(ops.greater_equal(y, 0))):
        usual = number(ops.power(real(x), real(y)))
        return usual if holds(ops.isfinite(usual)) else by_python(operator.pow, x, y, usual=usual)
    if not _is_traced(y):
        return _repeated(x, y)
    return _fitting(ops.power, ops.power, powers, operator.pow, x, y)


def _repeated(x: object, n: int) -> Any:
    """`x` to the power `n` by repeated multiplication."""
    if n == 0:
        return 1
    if n > 64:
        return by_python(operator.pow, x, n)
    result = None
    while n:
        if n & 1:
            result = x if result is None else _INTEGERS["mul"](result, x)
        n >>= 1
        x = _INTEGERS["mul"](x, x) if n else x
    return plus(result) if _is_traced(result) else result


def _shifts(name: str, op: Callable[..., object]) -> Callable[..., object]:
    python = getattr(operator, name)

    def compute(x: Any, y: Any) -> Any:
        low, high = bounds(y)
        inside = ops.logical_and(ops.greater_equal(y, 0), ops.less(y, 63)) if _is_traced(y) else 0 <= y < 63
        if not (low >= 0 and high < 63) and not holds(inside):
            return by_python(python, x, y)
        shifts = max(low, 0), min(high, 62)
        if name == "rshift":
            return bounded(number(op(x, y)), *corners(python)(bounds(x), shifts))
        return _fitting(
            op, lambda a, b: ops.multiply(a, ops.exp2(b)), lambda a, _: corners(python)(a, shifts), python, x, y
        )

    return compute


def _logic(name: str, op: Callable[..., object]) -> Callable[..., object]:
    def compute(x: object, y: object) -> Any:
        (a, b), (c, d) = bounds(x), bounds(y)
        top = 2 ** max(*(v.bit_length() for v in (a, b, c, d)))
        return bounded(number(op(x, y)), -top if min(a, c) < 0 else 0, top - 1)

    return compute


def _both(kinds: dict[str, Callable[..., object]]) -> Callable[..., Any]:
    def compute(x: object, y: object) -> Any:
        return kinds["floordiv"](x, y), kinds["mod"](x, y)

    return compute


_INTEGERS: dict[str, Callable[..., Any]] = {
    "add": _sums("add"),
    "sub": _sums("sub"),
    "mul": _sums("mul"),
    "truediv": _int_divide,
    "pow": _int_power,
    "floordiv": _int_floor_divide,
    "mod": _int_remainder,
    "lshift": _shifts("lshift", bits.left_shift),
    "rshift": _shifts("rshift", bits.right_shift),
    "and_": _logic("and_", bits.bitwise_and),
    "or_": _logic("or_", bits.bitwise_or),
    "xor": _logic("xor", bits.bitwise_xor),
}
_INTEGERS["divmod"] = _both(_INTEGERS)


# -- arithmetic of floats --------------------------------------------------------------------------------------
def _divisions(name: str, op: Callable[..., object]) -> Callable[..., object]:
    python = getattr(operator, name)

    def compute(x: object, y: object) -> Any:
        return number(op(x, y)) if _nonzero(y) else _by_zero(python, x, y)

    return compute


def _float_power(x: Any, y: Any) -> Any:
    usual = usual_power(x, y)
    if not _is_traced(y) and 0 <= y <= 1:
        sure = y in (0, 1) or holds(ops.logical_not(ops.less(x, 0.0)))
    else:
        sure = holds(ops.isfinite(usual))
    return usual if sure else by_python(operator.pow, x, y, usual=usual)


def usual_power(x: Any, y: Any) -> Any:
    """The power of two floats, if it is a float."""
    if _is_traced(y):
        return number(ops.power(x, y))
    if y == 2:
        return number(ops.square(x))
    if y == -1:
        return number(ops.reciprocal(x))
    if y == 0.5:
        return number(ops.sqrt(ops.add(x, 0.0)))  # sqrt(-0.0) is -0.0, but (-0.0)**0.5 is 0.0
    return number(ops.power(x, y))


_FLOATS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: number(ops.add(x, y)),
    "sub": lambda x, y: number(ops.subtract(x, y)),
    "mul": lambda x, y: number(ops.multiply(x, y)),
    "truediv": _divisions("truediv", ops.divide),
    "floordiv": _divisions("floordiv", ops.floor_divide),
    "mod": _divisions("mod", ops.remainder),
    "pow": _float_power,
}
_FLOATS["divmod"] = _both(_FLOATS)


def _python_operator(name: str) -> Callable[..., object]:
    return divmod if name == "divmod" else getattr(operator, name)


# -- arithmetic of complex numbers -----------------------------------------------------------------------------
def _complex_power(x: Any, y: Any) -> Any:
    if not _is_traced(y) and y in (1, 2):
        return number(ops.multiply(x, x) if y == 2 else ops.multiply(x, 1.0 + 0j))
    usual = number(ops.power(_as_complex(x), _as_complex(y)))
    sure = holds(ops.logical_and(ops.not_equal(x, 0), ops.isfinite(usual))) if _is_traced(x) else x != 0
    return usual if sure else by_python(operator.pow, x, y)


def _as_complex(x: Any) -> Any:
    return number(cast(x, dtype="complex128")) if _is_traced(x) else complex(x)


_SOME = {"b": 0, "i": 0, "f": 0.0, "c": 0j}
_COMPLEX: dict[str, Callable[..., Any]] = {
    "add": _FLOATS["add"],
    "sub": _FLOATS["sub"],
    "mul": _FLOATS["mul"],
    "pow": _complex_power,
    "truediv": lambda x, y: number(ops.divide(x, y)) if _nonzero(y) else by_python(operator.truediv, x, y),
}


# -- operators -------------------------------------------------------------------------------------------------
def arithmetic(name: str, x: Any, y: Any) -> Any:
    """The operation `name` of two Python numbers, at least one of them traced."""
    python = _python_operator(name)
    kinds = kind_of(x) + kind_of(y)
    if (is_huge(x) or is_huge(y)) and ("f" not in kinds or "c" in kinds):
        return by_python(python, x, y)
    if "c" in kinds or "f" in kinds:
        known = _COMPLEX if "c" in kinds else _FLOATS
        if name not in known:
            return python(*(_SOME[kind_of(v)] for v in (x, y)))  # raises TypeError
        return known[name](*[v if kind_of(v) == "c" else real(v) for v in (x, y)])
    if name in ("and_", "or_", "xor") and kinds == "bb":
        return number({"and_": ops.logical_and, "or_": ops.logical_or, "xor": ops.logical_xor}[name](x, y))
    return _INTEGERS[name](_integer(x), _integer(y))


COMPARISONS = {
    "lt": ops.less,
    "le": ops.less_equal,
    "gt": ops.greater,
    "ge": ops.greater_equal,
    "eq": ops.equal,
    "ne": ops.not_equal,
}


def compare(name: str, x: Any, y: Any) -> Any:
    """Compare as Python does, which compares integers and floats exactly, without rounding."""
    kinds = kind_of(x) + kind_of(y)
    mixed = "f" in kinds and kinds != "ff"
    if is_huge(x) or is_huge(y) or ("c" in kinds and name not in ("eq", "ne")):
        return by_python(getattr(operator, name), x, y)
    mixed = mixed and "c" not in kinds
    if mixed and not _within(_EXACT, *[v for v in (x, y) if kind_of(v) != "f"]):
        return by_python(getattr(operator, name), x, y)
    return number(COMPARISONS[name](x, y))


# The operators of Python's numbers, by the names of the special methods.
BINARY = {f"__{name.rstrip('_')}__": _python_operator(name) for name in (*_INTEGERS, *COMPARISONS)}
UNARY: dict[str, Callable[..., Any]] = {"__neg__": operator.neg, "__pos__": operator.pos, "__abs__": abs}


def negative(x: Operand) -> Any:
    if kind_of(x) in "fc":
        return number(ops.negative(x))
    return _fitting(ops.negative, ops.negative, lambda r: (-r[1], -r[0]), operator.neg, _integer(x))


def absolute(x: Array) -> Any:
    if kind_of(x) in "fc":
        return number(ops.absolute(x))
    return _fitting(ops.absolute, ops.absolute, lambda r: (0, max(map(abs, r))), abs, _integer(x))


def invert(x: object) -> Any:
    if kind_of(x) in "fc":
        return ~0.0  # type: ignore[operator]  # raises TypeError
    return _INTEGERS["sub"](-1, _integer(x))
