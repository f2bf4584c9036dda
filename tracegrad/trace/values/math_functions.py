"""Trace the functions of `math`: results are Python numbers, and errors are Python's.

Each row has an op and the domain in which its value may be used. Outside the domain Python computes with the values of
the call, and raises its own errors (`tracegrad.trace.values.python_arithmetic`). A NumPy scalar counts as the Python
number that `math` converts it to. A function without a row reads the values of its arguments, which leaves guards.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import lost
from tracegrad.numpy_api.registry import UFUNCS
from tracegrad.ops import Carrier
from tracegrad.ops.elementwise import number_parts
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.shape.linear import cast
from tracegrad.ops.special.scipy_special import apply, lgamma
from tracegrad.trace.values.python_arithmetic import by_python, holds, number, real, usual_power, whole
from tracegrad.trace.values.tracer import Tracer

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


_Condition = Callable[..., Any]


def _python_number(x: object) -> Any:
    """An argument as the Python number that `math` converts it to."""
    if not isinstance(x, Tracer) or x.weak:
        return x
    if x.shape:
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
    if x.dtype.kind == "c":
        raise TypeError("must be real number, not complex")
    return number(x if x.dtype == np.float64 or x.dtype.kind in "ib" else cast(x, dtype="float64"))


def _real(x: Any) -> Any:
    return real(_python_number(x)) if isinstance(x, Tracer) else math.ldexp(x, 0)  # raises TypeError for text


def _simple(op: Callable[..., object], usual: _Condition | None, function: Callable[..., object]) -> Callable[..., Any]:
    def compute(*args: object) -> Any:
        xs = [_python_number(x) for x in args]
        floats = [real(x) for x in xs]
        result = number(op(*floats))
        if usual is None or holds(usual(result, *floats)):
            return result
        return by_python(function, *xs, usual=result)

    return compute


def _not(op: Callable[..., Any], limit: float) -> _Condition:
    # The negation holds for nan.
    return lambda r, x: ops.logical_not(op(x, limit))


def _is_finite_result(r: Any, *xs: object) -> object:
    return ops.logical_not(ops.isinf(r))


def _of_finite(r: object, x: Array) -> Array:
    return ops.logical_not(ops.isinf(x))


def _small(r: object, x: Any) -> object:
    return ops.logical_not(ops.greater(ops.absolute(x), 710.4))


def _inside(op: Callable[..., Any]) -> _Condition:
    return lambda r, x: ops.logical_not(op(ops.absolute(x), 1.0))


# A condition on the argument is preferred to one on the result, which is then computed once.
_SIMPLE: dict[str, tuple[Callable[..., Any], _Condition | None]] = {
    "exp": (ops.exp, _not(ops.greater, 709.78)),
    "exp2": (ops.exp2, _not(ops.greater, 1023.9)),
    "expm1": (ops.expm1, _not(ops.greater, 709.78)),
    "cosh": (np.cosh, _small),
    "sinh": (np.sinh, _small),
    "tanh": (ops.tanh, None),
    "sqrt": (ops.sqrt, _not(ops.less, 0.0)),
    "cbrt": (UFUNCS["cbrt"], None),
    "log": (ops.log, _not(ops.less_equal, 0.0)),
    "log2": (np.log2, _not(ops.less_equal, 0.0)),
    "log10": (np.log10, _not(ops.less_equal, 0.0)),
    "log1p": (ops.log1p, _not(ops.less_equal, -1.0)),
    "sin": (ops.sin, _of_finite),
    "cos": (ops.cos, _of_finite),
    "tan": (np.tan, _of_finite),
    "asin": (np.arcsin, _inside(ops.greater)),
    "acos": (np.arccos, _inside(ops.greater)),
    "atan": (np.arctan, None),
    "asinh": (np.arcsinh, None),
    "acosh": (np.arccosh, _not(ops.less, 1.0)),
    "atanh": (np.arctanh, _inside(ops.greater_equal)),
    "atan2": (np.arctan2, None),
    "erf": (UFUNCS["erf"], None),
    "erfc": (ops.erfc, None),
    "lgamma": (lgamma, _is_finite_result),
    "gamma": (lambda x: apply("gamma", x), lambda r, x: ops.isfinite(r)),
    "fabs": (ops.absolute, None),
    "copysign": (np.copysign, None),
    "degrees": (np.degrees, None),
    "radians": (np.radians, None),
    "isnan": (ops.isnan, None),
    "isinf": (ops.isinf, None),
    "isfinite": (ops.isfinite, None),
    "pow": (usual_power, lambda r, x, y: ops.isfinite(r)),
    "fmod": (np.fmod, lambda r, x, y: ops.logical_and(ops.isfinite(x), ops.not_equal(y, 0.0))),
}


def _log(x: object, *base: object) -> Any:
    result = _log_of(x)
    return result / _log_of(*base) if base else result


def _log_of(x: Any) -> Any:
    return _LOG(x) if isinstance(x, Tracer) else math.log(x)


_LOG = _simple(*_SIMPLE["log"], math.log)


def _hypot(*xs: object) -> Any:
    first, *others = map(_python_number, xs)
    return functools.reduce(_simple(np.hypot, None, math.hypot), others, abs(first) * 1.0)


def _prod(xs: list[Array], *, start: int = 1) -> Operand:
    return functools.reduce(operator.mul, xs, start)


def _fsum(xs: Any) -> Any:
    """The sum with compensated rounding errors, exact except for the last digit."""
    args = [_python_number(x) for x in xs]
    total: Any = 0.0
    lost: Any = 0.0
    for x in map(real, args):
        after = ops.add(total, x)
        saved = ops.subtract(after, total)
        rounded = ops.add(ops.subtract(total, ops.subtract(after, saved)), ops.subtract(x, saved))
        total, lost = after, ops.add(lost, ops.where(ops.isfinite(after), rounded, 0.0))
    result = number(ops.add(total, lost))
    if holds(ops.isfinite(result)):
        return result
    return by_python(lambda *xs: math.fsum(xs), *args, usual=result)


def _dist(p: Any, q: Any) -> object:
    if len(p) != len(q):
        raise ValueError("both points must have the same number of dimensions")
    return _hypot(*map(operator.sub, p, q)) if len(p) else 0.0


def _sumprod(p: Any, q: Any) -> object:
    if len(p) != len(q):
        raise ValueError("Inputs are not the same length")
    return _fsum(map(operator.mul, p, q))


def _modf(x: object) -> object:
    return tuple([number(component) for component in number_parts.modf(_real(x))])


def _frexp(x: object) -> object:
    mantissa, exponent = number_parts.frexp(_real(x))
    return number(mantissa), number(cast(exponent, dtype="int64"))


def _ldexp(x: object, i: object) -> Any:
    i = _python_number(i)
    if isinstance(i, float) or getattr(i, "dtype", None) == np.float64:
        raise TypeError("Expected an int as second argument to ldexp.")
    result = number(UFUNCS["ldexp"](_real(x), i))
    return result if holds(ops.isfinite(result)) else by_python(math.ldexp, _real(x), i, usual=result)


def _isclose(a: Array, b: Array, *, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> Any:
    a, b = _real(a), _real(b)
    near = ops.maximum(ops.multiply(ops.maximum(ops.absolute(a), ops.absolute(b)), rel_tol), abs_tol)
    finite = ops.logical_and(ops.isfinite(a), ops.isfinite(b))
    close = ops.logical_and(finite, ops.less_equal(ops.absolute(ops.subtract(a, b)), near))
    return number(ops.logical_or(ops.equal(a, b), close))


def _trunc(x: Any) -> Any:
    if not x.weak and (x.dtype != np.float64 or not x._immutable_scalars):  # among NumPy scalars, only float64 has it
        raise TypeError(f"type {'numpy.ndarray' if x.shape else x.dtype} doesn't define __trunc__ method")
    return whole(ops.trunc, _python_number(x), math.trunc)


_TRACED_VERSIONS: dict[str, Callable[..., Any]] = {
    "log": _log,
    "hypot": _hypot,
    "prod": _prod,
    "modf": _modf,
    "isclose": _isclose,
    "frexp": _frexp,
    "ldexp": _ldexp,
    "fsum": _fsum,
    "dist": _dist,
    "sumprod": _sumprod,
    "floor": lambda x: whole(ops.floor, _python_number(x), math.floor),
    "ceil": lambda x: whole(ops.ceil, _python_number(x), math.ceil),
    "trunc": _trunc,
}


# Functions of iterables.
_OF_SEQUENCES = frozenset(["fsum", "prod", "dist", "sumprod"])


def _value(x: object) -> Any:
    """`x` as values of the call being traced; leaves guards."""
    if isinstance(x, list | tuple):
        return type(x)([_value(each) for each in x])
    if not isinstance(x, Tracer):
        return x
    result = x.concrete("the value")
    return result.item() if x.weak else result[()]


def valued(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, called by traced code with the guarded values of its arguments."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        traced = _traced((*args, *kwargs.values()))
        result = function(*map(_value, args), **{k: _value(x) for k, x in kwargs.items()})
        if _holds_floats(result) and any(x.builder.innermost().has_derivative(x.node) for x in traced):
            raise lost(function.__name__)
        return result

    return call


def _holds_floats(result: object) -> bool:
    return isinstance(result, float | complex) or (isinstance(result, list | tuple) and any(map(_holds_floats, result)))


def _traced(xs: Any) -> list[Any]:
    """The traced values among `xs`, including items of sequences."""
    results = []
    for x in xs:
        if isinstance(x, Tracer):
            results.append(x)
        elif isinstance(x, list | tuple):
            results += _traced(x)
    return results


def _of_math(name: str) -> Callable[..., object]:
    function = getattr(math, name)
    traced_version = _TRACED_VERSIONS.get(name) or (
        _simple(*_SIMPLE[name], function) if name in _SIMPLE else valued(function)
    )
    carrier_version = getattr(np, _ELSEWHERE.get(name, name), None) or UFUNCS.get(name) or _SIMPLE.get(name, (None,))[0]

    def call(*args: Any, **kwargs: object) -> Any:
        if name in _OF_SEQUENCES:
            args = tuple(map(list, args))
        if _traced(args):
            return traced_version(*args, **kwargs)
        if carrier_version is not None and any(
            isinstance(x, Carrier) for x in args
        ):  # the result of a Tensor is a Tensor
            return carrier_version(*args)
        return function(*args, **kwargs)

    return functools.wraps(function)(call)


_ELSEWHERE = {
    "acos": "arccos",
    "asin": "arcsin",
    "atan": "arctan",
    "atan2": "arctan2",
    "acosh": "arccosh",
    "asinh": "arcsinh",
    "atanh": "arctanh",
    "pow": "power",
    "fabs": "absolute",
}

# Replacements, by the id of the original.
MATH: dict[int, Any] = {
    id(getattr(math, name)): _of_math(name) for name in dir(math) if callable(getattr(math, name)) and name[0] != "_"
}
