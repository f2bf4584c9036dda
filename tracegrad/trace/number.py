"""Python numbers in a trace: a `Number` stands for an int, a float or a bool, and computes as Python does.

Python's arithmetic and the machine's agree nearly always. Where they might not (an integer that leaves 64 bits, a
divisor that is zero, a power that overflows), the machine's operation is recorded, with an *implicit guard* on the
usual case; `builder.holds` asks for it. Where it does not hold, Python itself computes, with the values of the call,
which are guards then: other values are another path. So integers have no bounds, and errors are Python's own.

No guard is left where the operands' ranges make it needless. The range of an integer is known of results of
arithmetic; of an argument it is guarded once that it has 32 bits, which is enough for most of what is done with it.

In a region, whose values are not known, there are no guards: arithmetic there is that of int64 and float64.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.errors import warn_of_constant
from tracegrad.ops import bits
from tracegrad.ops import elementwise as ops
from tracegrad.ops.linear import cast
from tracegrad.trace.tracer import Tracer

__all__ = ["Number", "by_python", "holds", "is_number", "number", "real", "usual_power", "whole"]

_FEW, _ALL = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
# Up to here integers are floats, and what a float says of an integer's size is true.
_EXACT, _SAFE = 2**53, 2**62
_PLAIN = (bool, int, float, complex)
_ASKED = "the exact value"


class Number(Tracer):
    """A Python number of the call being traced. Beside arrays it takes their dtype, as a literal does."""

    __slots__ = ()
    weak = True

    def _weakened(self, result: Any) -> Any:
        return number(result)

    def value(self) -> Any:
        """The number itself; leaves a guard."""
        return self.concrete(_ASKED).item()

    def beyond(self, dtype: np.dtype[Any]) -> Any:
        if dtype.kind not in "iu" or self.dtype.kind != "i":
            return None
        low, high = bounds(self)
        info = np.iinfo(dtype)
        if low >= info.min and high <= info.max:
            return None
        inside = ops.logical_and(ops.greater_equal(self, int(info.min)), ops.less_equal(self, min(info.max, _ALL[1])))
        return None if holds(inside) else self.value()

    def __round__(self, ndigits: Any = None) -> Any:
        if ndigits is None and kind_of(self) == "f":
            return whole(ops.rint, self, round)
        if ndigits is None or (kind_of(self) != "f" and type(ndigits) is int and ndigits >= 0):
            return _plus(self)
        return by_python(round, self, ndigits)

    def __trunc__(self) -> Any:
        return whole(ops.trunc, self, math.trunc)

    def __floor__(self) -> Any:
        return whole(ops.floor, self, math.floor)

    def __ceil__(self) -> Any:
        return whole(ops.ceil, self, math.ceil)

    def __getattr__(self, name: str) -> Any:
        """A method of Python's numbers: computed by Python, with the value of the call."""
        return _method(self, name)

    @property
    def real(self) -> Any:
        """The number itself."""
        return _plus(self)

    @property
    def imag(self) -> Any:
        """Zero."""
        return 0.0 if kind_of(self) == "f" else 0

    def conjugate(self) -> Any:
        """The number itself."""
        return _plus(self)

    def is_integer(self) -> Any:
        """Whether the number is whole."""
        if kind_of(self) != "f":
            return _method(self, "is_integer")()
        return number(ops.logical_and(ops.equal(ops.trunc(self), self), ops.isfinite(self)))

    def __index__(self) -> int:
        if kind_of(self) == "f":
            raise TypeError("'float' object cannot be interpreted as an integer")
        return int(self.concrete("an index").item())

    def __getitem__(self, index: Any) -> Any:
        raise TypeError(f"'{_NAMES[kind_of(self)]}' object is not subscriptable")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(f"'{_NAMES[kind_of(self)]}' object does not support item assignment")

    def __iter__(self) -> Any:
        raise TypeError(f"'{_NAMES[kind_of(self)]}' object is not iterable")


def _method(x: Number, name: str) -> Any:
    known = {"b": bool, "i": int, "f": float}[kind_of(x)]
    if not hasattr(known, name):
        raise AttributeError(f"'{known.__name__}' object has no attribute '{name}'")
    return getattr(x.value(), name)


_NAMES = {"b": "bool", "i": "int", "f": "float"}


def is_number(x: Any) -> bool:
    """Whether `x` is a Python number, or stands for one."""
    return type(x) in _PLAIN or isinstance(x, Number)


def number(x: Any) -> Any:
    """The value of a trace as a Python number."""
    return Number(x.builder, x.node) if isinstance(x, Tracer) else x


def kind_of(x: Any) -> str:
    """ "b", "i", "f" or "c"."""
    return x.dtype.kind if isinstance(x, Number) else "bifc"[_PLAIN.index(type(x))]


def holds(condition: Any) -> bool:
    """Whether a condition that usually holds does so in the call being traced; leaves an implicit guard."""
    return condition.builder.here().holds(condition) if isinstance(condition, Tracer) else bool(condition)


def by_python(function: Callable[..., Any], *operands: Any, usual: Any = None) -> Any:
    """What Python computes with the values of the operands; the number `usual` where that has the same value."""
    found = function(*[x.value() if isinstance(x, Number) else x for x in operands])
    if usual is not None and type(found) in (int, float, bool):
        known = usual.builder.compute(usual.node).item()
        if type(known) is type(found) and repr(known) == repr(found):
            return usual
    for x in operands:
        if isinstance(x, Number) and x.builder.here().is_differentiated(x.node) and type(found) in (float, complex):
            warn_of_constant(getattr(function, "__name__", "an operation of Python numbers"))
    return found


# -- ranges --------------------------------------------------------------------------------------------------
def bounds(x: Any) -> tuple[int, int]:
    """The least and the greatest value that an integer may have."""
    if not isinstance(x, Number):
        return int(x), int(x)
    return (0, 1) if x.dtype.kind == "b" else x.builder.bounds.get(x.node, _ALL)


def _bounded(x: Any, low: int, high: int) -> Any:
    """`x`, of which the bounds are known."""
    if isinstance(x, Number):
        known = bounds(x)
        x.builder.bounds[x.node] = max(low, known[0]), min(high, known[1])
    return x


def _small(x: Any) -> None:
    """Guard an argument's usual size, if nothing is known of it yet."""
    if isinstance(x, Number) and x.node.op is None and bounds(x) == _ALL:
        inside = ops.logical_and(ops.greater_equal(x, _FEW[0]), ops.less_equal(x, _FEW[1]))
        if holds(inside):
            _bounded(x, *_FEW)


def _within(limit: int, *xs: Any) -> bool:
    """Whether these integers are at most `limit` in size."""
    for x in xs:
        if max(map(abs, bounds(x))) > limit:
            _small(x)
        low, high = bounds(x)
        if max(-low, high) <= limit:
            continue
        if not isinstance(x, Number) or not holds(ops.less(ops.absolute(real(x)), float(limit))):
            return False
        _bounded(x, -limit, limit)
    return True


def real(x: Any) -> Any:
    """The number as a float, as Python converts it."""
    if not isinstance(x, Number):
        return float(x)
    return x if x.dtype.kind == "f" else number(cast(x, dtype="float64"))


def _integer(x: Any) -> Any:
    if not isinstance(x, Number):
        return int(x)
    return x if x.dtype.kind != "b" else _bounded(number(cast(x, dtype="int64")), 0, 1)


def _plus(x: Any) -> Any:
    return _integer(x) if kind_of(x) == "b" else number(x._alias())


def _fitting(op: Callable[..., Any], of_reals: Callable[..., Any], range_of: Any, python: Any, *xs: Any) -> Any:
    """`op(*xs)`, an integer, where it has 64 bits; `range_of` gives its bounds from those of the operands."""
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
    return _bounded(number(op(*xs)), low, high)


def whole(op: Callable[..., Any], x: Any, python: Callable[..., Any]) -> Any:
    """A float rounded to an integer by `op`."""
    if kind_of(x) != "f":
        return _plus(x)
    rounded = op(x)
    if not holds(ops.less(ops.absolute(rounded), float(_SAFE))):
        return by_python(python, x)
    return _bounded(number(cast(rounded, dtype="int64")), -_SAFE, _SAFE)


# -- arithmetic of integers ------------------------------------------------------------------------------------
def _corners(f: Callable[[int, int], int]) -> Callable[..., tuple[int, int]]:
    def range_of(x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
        found = [f(a, b) for a in x for b in y]
        return min(found), max(found)

    return range_of


def _sums(name: str) -> Callable[..., Any]:
    op, python = {"add": ops.add, "sub": ops.subtract, "mul": ops.multiply}[name], getattr(operator, name)

    def compute(x: Any, y: Any) -> Any:
        return _fitting(op, op, _corners(python), python, x, y)

    return compute


def _nonzero(y: Any) -> bool:
    """Whether a divisor is not zero."""
    low, high = bounds(y) if kind_of(y) != "f" else (0, 0)
    if low > 0 or high < 0:
        return True
    return holds(ops.not_equal(y, 0)) if isinstance(y, Number) else y != 0


def _by_zero(python: Callable[..., Any], x: Any, y: Any) -> Any:
    """Raise Python's error; if the divisor is always zero, whatever `x` is."""
    return by_python(python, x if isinstance(y, Number) else 1.0 if kind_of(x) == "f" else 1, y)


def _int_divide(x: Any, y: Any) -> Any:
    if not _nonzero(y):
        return _by_zero(operator.truediv, x, y)
    if not _within(_EXACT, x, y):
        return by_python(operator.truediv, x, y)
    return number(ops.divide(x, y))


def _quotients(x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
    most = max(map(abs, x)) if y[0] < 0 else 0
    return min(x[0], 0, -most), max(x[1], 0, most)


def _int_floor_divide(x: Any, y: Any) -> Any:
    if not _nonzero(y):
        return _by_zero(operator.floordiv, x, y)
    return _fitting(ops.floor_divide, ops.divide, _quotients, operator.floordiv, x, y)


def _int_remainder(x: Any, y: Any) -> Any:
    if not _nonzero(y):
        return _by_zero(operator.mod, x, y)
    low, high = bounds(y)
    return _bounded(number(ops.remainder(x, y)), min(low + 1, 0), max(high - 1, 0))


def _int_power(x: Any, y: Any) -> Any:
    low, high = bounds(y)
    if low < 0 and (high < 0 or not holds(ops.greater_equal(y, 0))):
        usual = number(ops.power(real(x), real(y)))
        return usual if holds(ops.isfinite(usual)) else by_python(operator.pow, x, y, usual=usual)
    if not isinstance(y, Number):
        return _repeated(x, y)
    return _fitting(ops.power, ops.power, _powers, operator.pow, x, y)


def _powers(x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
    size, most = max(map(abs, x)), max(y[1], 0)
    if size < 2:
        return (-1, 1) if x[0] < 0 else (0, 1)
    largest = size**most if most < 64 else 2**64
    return -largest if x[0] < 0 else 0, largest


def _repeated(x: Any, n: int) -> Any:
    """`x` to the power `n` by products."""
    if n == 0:
        return 1
    if n > 64:
        return by_python(operator.pow, x, n)
    found = None
    while n:
        if n & 1:
            found = x if found is None else _INTEGERS["mul"](found, x)
        n >>= 1
        x = _INTEGERS["mul"](x, x) if n else x
    return _plus(found) if isinstance(found, Number) else found


def _shifts(name: str, op: Callable[..., Any]) -> Callable[..., Any]:
    python = getattr(operator, name)

    def compute(x: Any, y: Any) -> Any:
        low, high = bounds(y)
        inside = ops.logical_and(ops.greater_equal(y, 0), ops.less(y, 63)) if isinstance(y, Number) else 0 <= y < 63
        if not (low >= 0 and high < 63) and not holds(inside):
            return by_python(python, x, y)
        places = max(low, 0), min(high, 62)
        if name == "rshift":
            return _bounded(number(op(x, y)), *_corners(python)(bounds(x), places))
        return _fitting(op, lambda a, b: ops.multiply(a, ops.exp2(b)),
                        lambda a, _: _corners(python)(a, places), python, x, y)  # fmt: skip

    return compute


def _logic(name: str, op: Callable[..., Any]) -> Callable[..., Any]:
    def compute(x: Any, y: Any) -> Any:
        (a, b), (c, d) = bounds(x), bounds(y)
        top = 2 ** max(*(v.bit_length() for v in (a, b, c, d)))
        return _bounded(number(op(x, y)), -top if min(a, c) < 0 else 0, top - 1)

    return compute


def _both(kinds: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    def compute(x: Any, y: Any) -> Any:
        return kinds["floordiv"](x, y), kinds["mod"](x, y)

    return compute


_INTEGERS: dict[str, Callable[..., Any]] = {
    "add": _sums("add"), "sub": _sums("sub"), "mul": _sums("mul"), "truediv": _int_divide, "pow": _int_power,
    "floordiv": _int_floor_divide, "mod": _int_remainder,
    "lshift": _shifts("lshift", bits.left_shift), "rshift": _shifts("rshift", bits.right_shift),
    "and_": _logic("and_", bits.bitwise_and), "or_": _logic("or_", bits.bitwise_or),
    "xor": _logic("xor", bits.bitwise_xor),
}  # fmt: skip
_INTEGERS["divmod"] = _both(_INTEGERS)


# -- arithmetic of floats --------------------------------------------------------------------------------------
def _divisions(name: str, op: Callable[..., Any]) -> Callable[..., Any]:
    python = getattr(operator, name)

    def compute(x: Any, y: Any) -> Any:
        return number(op(x, y)) if _nonzero(y) else _by_zero(python, x, y)

    return compute


def _float_power(x: Any, y: Any) -> Any:
    usual = usual_power(x, y)
    if not isinstance(y, Number) and 0 <= y <= 1:
        sure = y in (0, 1) or holds(ops.logical_not(ops.less(x, 0.0)))
    else:
        sure = holds(ops.isfinite(usual))
    return usual if sure else by_python(operator.pow, x, y, usual=usual)


def usual_power(x: Any, y: Any) -> Any:
    """The power of two floats, where it is one."""
    if isinstance(y, Number):
        return number(ops.power(x, y))
    if y == 2:
        return number(ops.square(x))
    if y == -1:
        return number(ops.reciprocal(x))
    if y == 0.5:
        return number(ops.add(ops.sqrt(x), 0.0))  # the square root of -0.0 is -0.0, its power is not
    return number(ops.power(x, y))


_FLOATS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: number(ops.add(x, y)), "sub": lambda x, y: number(ops.subtract(x, y)),
    "mul": lambda x, y: number(ops.multiply(x, y)), "truediv": _divisions("truediv", ops.divide),
    "floordiv": _divisions("floordiv", ops.floor_divide), "mod": _divisions("mod", ops.remainder),
    "pow": _float_power,
}  # fmt: skip
_FLOATS["divmod"] = _both(_FLOATS)


# -- operators -------------------------------------------------------------------------------------------------
def _is_huge(x: Any) -> bool:
    return type(x) is int and not _ALL[0] <= x <= _ALL[1]


def _arithmetic(name: str, x: Any, y: Any) -> Any:
    """The operation `name` of two Python numbers, one of them at least of the trace."""
    python: Any = divmod if name == "divmod" else getattr(operator, name)
    kinds = kind_of(x) + kind_of(y)
    if "c" in kinds or ("f" not in kinds and (_is_huge(x) or _is_huge(y))):
        return by_python(python, x, y)
    if "f" in kinds:
        if name not in _FLOATS:
            return python(*(0.0 if kind_of(v) == "f" else 0 for v in (x, y)))  # which is a TypeError
        return _FLOATS[name](real(x), real(y))
    if name in ("and_", "or_", "xor") and kinds == "bb":
        return number({"and_": ops.logical_and, "or_": ops.logical_or, "xor": ops.logical_xor}[name](x, y))
    return _INTEGERS[name](_integer(x), _integer(y))


_COMPARISONS = {"lt": ops.less, "le": ops.less_equal, "gt": ops.greater, "ge": ops.greater_equal, "eq": ops.equal,
                "ne": ops.not_equal}  # fmt: skip


def _compare(name: str, x: Any, y: Any) -> Any:
    """Python compares integers and floats as they are, without rounding the one to the other."""
    kinds = kind_of(x) + kind_of(y)
    mixed = "f" in kinds and kinds != "ff"
    if "c" in kinds or _is_huge(x) or _is_huge(y):
        return by_python(getattr(operator, name), x, y)
    if mixed and not _within(_EXACT, *[v for v in (x, y) if kind_of(v) != "f"]):
        return by_python(getattr(operator, name), x, y)
    return number(_COMPARISONS[name](x, y))


def _negative(x: Any) -> Any:
    if kind_of(x) == "f":
        return number(ops.negative(x))
    return _fitting(ops.negative, ops.negative, lambda r: (-r[1], -r[0]), operator.neg, _integer(x))


def _absolute(x: Any) -> Any:
    if kind_of(x) == "f":
        return number(ops.absolute(x))
    return _fitting(ops.absolute, ops.absolute, lambda r: (0, max(map(abs, r))), abs, _integer(x))


def _invert(x: Any) -> Any:
    if kind_of(x) == "f":
        return ~0.0  # type: ignore[operator]  # which is a TypeError
    return _INTEGERS["sub"](-1, _integer(x))


def _install(name: str, compute: Callable[[str, Any, Any], Any], method: str, reflected: str = "") -> None:
    inherited = getattr(Tracer, method)

    def forward(self: Any, other: Any, *modulus: Any) -> Any:
        if modulus:
            return by_python(pow, self, other, *modulus)
        if is_number(other):
            return compute(name, self, other)
        if isinstance(other, list | tuple):
            return other * int(self) if name == "mul" and kind_of(self) != "f" else NotImplemented
        return inherited(self, other)

    setattr(Number, method, forward)
    if reflected:
        beside = getattr(Tracer, reflected)

        def backward(self: Any, other: Any, *modulus: Any) -> Any:
            if modulus:
                return by_python(pow, other, self, *modulus)
            if is_number(other):
                return compute(name, other, self)
            if isinstance(other, list | tuple):
                return forward(self, other) if name == "mul" else NotImplemented
            return beside(self, other)

        setattr(Number, reflected, backward)


for _name in (*_INTEGERS,):
    _stem = _name.rstrip("_")
    _install(_name, _arithmetic, f"__{_stem}__", f"__r{_stem}__")
for _name in _COMPARISONS:
    _install(_name, _compare, f"__{_name}__")
for _name, _unary in {"neg": _negative, "abs": _absolute, "invert": _invert, "pos": _plus}.items():
    setattr(Number, f"__{_name}__", lambda self, _unary=_unary: _unary(self))
