"""Elementwise functions with PyTorch's names and signatures, over the elementwise ops.

Each takes arrays, Tensors and traced arrays of shapes that broadcast, and Python numbers, which take the dtype of the
arrays. Dtypes follow PyTorch for Tensors (see `promotion`), and NumPy for other arrays. Functions of real numbers
convert integers and booleans to the default dtype of Tensors, and for other arrays to float64. At a kink the derivative
is PyTorch's. In-place forms have a trailing underscore.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.numpy_api import selection, ufuncs
from tracegrad.numpy_api.operands import arrays, operands, to_dtype
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import Carrier, Op, bind, named, one_node
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.elementwise.table import (
    add,
    copysign,
    divide,
    flat,
    fmod,
    greater_equal,
    isnan,
    less,
    logical_or,
    multiply,
    power,
    remainder,
    rint,
    subtract,
    trunc,
    where,
)
from tracegrad.ops.nn import activations
from tracegrad.torch.functions.core.dims import copied, one
from tracegrad.torch.functions.core.operands import (
    TensorOperands,
    as_node,
    counted,
    floating,
    in_floats,
    is_number,
    is_whole,
    pair,
)
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import ONE_OP, function
from tracegrad.torch.functions.math.complex import sign_of_real
from tracegrad.torch.functions.math.integer_operators import integer_power, refuse_bool
from tracegrad.typing import Array, ArrayLike
from tracegrad.utils.doc_table import phrase

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracegrad.ops.core.dispatch import Operand


_NONE: dict[str, Any] = {}


# -- functions that are one op -------------------------------------------------------------------------------------
def of_one(op: Op, *names: str, real: bool, node: str | None = None) -> None:
    """Register a unary `op`; with `real`, integers become floats first; `node` is PyTorch's node name."""
    prepared = floating if real else one

    def call(input: Array) -> Array:
        if isinstance(input, Carrier) and input.dtype.kind == "f":
            output: Array = bind(op, (input,), _NONE)
            return output
        result: Array = op(prepared(input))
        return result

    def renamed(input: Array) -> Array:
        result: Array = named(str(node), op(prepared(input)))
        return result

    fn = call if node is None else renamed
    fn.__name__, fn.__doc__ = names[0], phrase(f"{op.__doc__}, element by element.")
    function(*names, in_place=True)(fn)
    ONE_OP.update(dict.fromkeys(names, (op, node or "")))


for _op, _names in {
    ops.arccos: ("acos", "arccos"),
    ops.arccosh: ("acosh", "arccosh"),
    ops.arcsin: ("asin", "arcsin"),
    ops.arcsinh: ("asinh", "arcsinh"),
    ops.arctan: ("atan", "arctan"),
    ops.arctanh: ("atanh", "arctanh"),
    ops.cos: ("cos",),
    ops.cosh: ("cosh",),
    ops.erf: ("erf",),
    ops.erfc: ("erfc",),
    ops.exp: ("exp",),
    ops.exp2: ("exp2",),
    ops.expm1: ("expm1",),
    ops.log: ("log",),
    ops.log10: ("log10",),
    ops.log2: ("log2",),
    ops.reciprocal: ("reciprocal",),
    ops.rsqrt: ("rsqrt",),
    ops.sigmoid: ("sigmoid",),
    ops.sin: ("sin",),
    ops.sinh: ("sinh",),
    ops.sqrt: ("sqrt",),
    ops.tan: ("tan",),
    ops.tanh: ("tanh",),
}.items():
    of_one(_op, *_names, real=True)
of_one(ops.log1p, "log1p", real=True, node="Log1PBackward0")
of_one(ops.absolute, "abs", "absolute", real=False)
of_one(ops.negative, "neg", "negative", real=False)
of_one(ops.square, "square", real=False)
of_one(activations.relu, "relu", real=False)


def _of_two(op: Elementwise, *names: str, tensors: str, in_place: bool = False, real: bool = False) -> None:
    """Register a binary `op`; `tensors` says which operands must be Tensors, as in `TensorOperands`."""
    rule = TensorOperands(names[0], tensors)

    def call(input: Array, other: Array) -> Array:
        return op(*pair(input, other, rule))

    def on_reals(input: Array, other: Array) -> Array:
        return op(*in_floats(pair(input, other, rule)))

    fn = on_reals if real else call
    fn.__name__, fn.__doc__ = names[0], phrase(f"{op.__doc__}, element by element.")
    function(*names, in_place=in_place)(fn)


_of_two(ops.maximum, "maximum", tensors="both")
_of_two(ops.minimum, "minimum", tensors="both")
_of_two(ops.logaddexp, "logaddexp", tensors="both", real=True)
_of_two(ops.hypot, "hypot", tensors="both", in_place=True, real=True)
_of_two(ops.arctan2, "atan2", "arctan2", tensors="both", in_place=True, real=True)
for _op, _names in {
    ops.equal: ("eq",),
    ops.not_equal: ("ne", "not_equal"),
    ops.less: ("lt", "less"),
    ops.less_equal: ("le", "less_equal"),
    ops.greater: ("gt", "greater"),
    ops.greater_equal: ("ge", "greater_equal"),
}.items():
    _of_two(_op, *_names, tensors="first", in_place=True)
for _op in (ops.logical_and, ops.logical_or, ops.logical_xor):
    _of_two(_op, _op.name, tensors="both", in_place=True)


def _tested(test: Elementwise | Callable[..., object], name: str, doc: str, in_place: bool = False) -> None:
    def call(input: Array) -> Any:
        return test(one(input))

    call.__name__, call.__doc__ = name, phrase(f"{doc}, element by element.")
    function(name, in_place=in_place)(call)


for _test in (ops.isnan, ops.isinf, ops.isfinite, ops.signbit):
    _tested(_test, _test.name, str(_test.__doc__))
_tested(ops.logical_not, "logical_not", str(ops.logical_not.__doc__), in_place=True)
_tested(lambda x: ops.equal(x, math.inf), "isposinf", "whether x is inf")
_tested(lambda x: ops.equal(x, -math.inf), "isneginf", "whether x is -inf")


# -- arithmetic ----------------------------------------------------------------------------------------------------
def _scaled(op: Elementwise, name: str, x: Array, y: Array, alpha: float) -> Array:
    if alpha == 1:
        return op(x, y)
    if type(alpha) is float and all(is_number(v) or is_whole(v) for v in (x, y)):
        raise RuntimeError(located("For integral input tensors, argument alpha must not be a floating point number."))
    return as_node(name, lambda u, v: op(u, multiply(v, alpha)), x, y)


@function("add", in_place=True)
def add_(input: ArrayLike, other: ArrayLike, *, alpha: float = 1) -> Array:
    """input + alpha * other.

    >>> import numpy as np
    >>> add_(np.array([1.0, 2.0]), 3, alpha=2).tolist()
    [7.0, 8.0]
    """
    if alpha == 1 and isinstance(input, Carrier):
        return input + other
    return _scaled(add, "AddBackward0", *pair(input, other), alpha)


@function("sub", "subtract", in_place=True)
def sub(input: ArrayLike, other: ArrayLike, *, alpha: float = 1) -> Array:
    """input - alpha * other."""
    if alpha == 1 and isinstance(input, Carrier):
        return input - other
    return _scaled(subtract, "SubBackward0", *pair(input, other), alpha)


@function("rsub")
def rsub(input: ArrayLike, other: ArrayLike, *, alpha: float = 1) -> Array:
    """other - alpha * input."""
    x, y = pair(input, other, _RSUB)
    refuse_bool(x, y)
    name = counted("Rsub", y, 1)
    return named(name, subtract(y, x)) if alpha == 1 else as_node(name, _reversed, x, y, alpha)


_RSUB = TensorOperands("rsub", "first")


def _reversed(x: Array, y: Array, alpha: float) -> Array:
    return subtract(y, multiply(x, alpha))


@function("mul", "multiply", in_place=True)
def mul(input: ArrayLike, other: ArrayLike) -> Array:
    """input * other."""
    return input * other if isinstance(input, Carrier) else multiply(*pair(input, other))


@function("div", "divide", "true_divide", in_place=True)
def div(input: ArrayLike, other: ArrayLike, *, rounding_mode: str | None = None) -> Array:
    """input / other, rounded towards zero with the mode "trunc", and down with "floor".

    A rounded quotient has the derivative 0. RuntimeError for another mode.

    >>> import numpy as np
    >>> div(np.array([-7.0, 7.0]), 2, rounding_mode="trunc").tolist()
    [-3.0, 3.0]
    """
    if rounding_mode is None:
        return input / other if isinstance(input, Carrier) else divide(*pair(input, other))
    x, y = pair(input, other)
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(
            located(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")
        )
    return as_node("DivBackward2", _quotient, x, y, rounding_mode)


def _quotient(x: Array, y: Array, mode: str) -> Array:
    down = ops.floor_divide(x, y)
    if mode == "trunc":
        exact = ops.equal(multiply(down, y), x) if down.dtype.kind in "iu" else None
        down = (
            trunc(divide(x, y))
            if exact is None
            else where(ops.logical_and(less(down, 0), ops.logical_not(exact)), add(down, 1), down)
        )
    for v in (x, y):
        if not is_number(v) and v.dtype.kind == "f":
            down = _flat(down, v)
    return down


@function("floor_divide", in_place=True)
def floor_divide(input: ArrayLike, other: ArrayLike) -> Array:
    """floor(input / other), a constant for derivatives."""
    return ops.floor_divide(*pair(input, other))


@function("remainder", in_place=True)
def remainder_(input: ArrayLike, other: ArrayLike) -> Array:
    """input - other * floor(input / other), which has the sign of `other`."""
    x, y = pair(input, other, _REMAINDER)
    return named(counted("Remainder", y), remainder(x, y))


_REMAINDER = TensorOperands("remainder", "one")


@function("fmod", in_place=True)
def fmod_(input: ArrayLike, other: ArrayLike) -> Array:
    """input - other * trunc(input / other), which has the sign of `input`."""
    x, y = pair(input, other, _FMOD)
    return named(counted("Fmod", y), fmod(x, y))


_FMOD = TensorOperands("fmod", "first")


@function("pow", in_place=True)
def pow(input: ArrayLike, exponent: ArrayLike) -> Array:
    """input ** exponent

    >>> import numpy as np
    >>> pow(2, np.array([1.0, 3.0])).tolist()
    [2.0, 8.0]
    """
    x, y = pair(input, exponent, _POW)
    return named("PowBackward2" if is_number(x) else counted("Pow", y), integer_power(x, y))


_POW = TensorOperands("pow", "one", ("input", "exponent"))
_FLOAT_POWER = TensorOperands("float_power", "one", ("input", "exponent"))


@function("float_power", in_place=True)
def float_power(input: ArrayLike, exponent: ArrayLike) -> Array:
    """input ** exponent, in float64"""
    name = "PowBackward2" if is_number(input) else counted("Pow", exponent)
    return as_node(name, lambda x, y: power(*ufuncs.in_double(x, y)), *pair(input, exponent, _FLOAT_POWER))


@function("addcmul", in_place=True)
def addcmul(input: ArrayLike, tensor1: ArrayLike, tensor2: ArrayLike, *, value: float = 1) -> Array:
    """input + value * tensor1 * tensor2"""
    x, y, z = operands(input, tensor1, tensor2)
    return _addcmul(x, y, z, value)


@one_node("AddcmulBackward0")
def _addcmul(x: Any, y: Any, z: Any, value: float) -> Array:
    product = multiply(y, z)
    return add(x, product if value == 1 else multiply(product, value))


@function("addcdiv", in_place=True)
def addcdiv(input: ArrayLike, tensor1: ArrayLike, tensor2: ArrayLike, *, value: float = 1) -> Array:
    """input + value * tensor1 / tensor2"""
    x, y, z = operands(input, tensor1, tensor2)
    return _addcdiv(x, y, z, value)


@one_node("AddcdivBackward0")
def _addcdiv(x: Any, y: Any, z: Any, value: float) -> Array:
    quotient = divide(y, z)
    return add(x, quotient if value == 1 else multiply(quotient, value))


@function("lerp", in_place=True)
def lerp(input: Operand, end: Array, weight: Array) -> Array:
    """input + weight * (end - input), exactly `end` for the weight 1.

    >>> import numpy as np
    >>> lerp(np.array([1.0, 2.0]), np.array([3.0, 6.0]), 0.5).tolist()
    [2.0, 4.0]
    """
    require_one_dtype(input, end, "expected dtype {a} for `end` but got dtype {b}")
    if getattr(weight, "shape", ()):
        require_one_dtype(input, weight, "expected dtype {a} for `weight` but got dtype {b}")
    return as_node(counted("Lerp", weight), _lerp, *operands(input, end, weight))


def _lerp(x: Array, y: Array, weight: Operand) -> Array:
    difference = subtract(y, x)
    near, far = add(x, multiply(difference, weight)), subtract(y, multiply(difference, subtract(1, weight)))
    if is_number(weight):
        return near if abs(weight) < 0.5 else far
    return where(less(ops.absolute(weight), 0.5), near, far)


# -- step functions, whose derivative is 0 -------------------------------------------------------------------------
def _flat(value: Array, x: Array) -> Array:
    """Return `value`, computed from `x`, as a function of `x` with the derivative 0."""
    return flat(value, x) if x.dtype.kind == "f" else value


def _piecewise_constant(name: str, fn: Any, x: Array, *args: object) -> Array:
    """Compute `fn(x)`, which is piecewise constant; if `x` has a tape, record the derivative 0."""
    return named(name, _flat(fn(x, *args), x))


_STEP_FUNCTIONS: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("FloorBackward0", ops.floor, ("floor",)),
    ("CeilBackward0", ops.ceil, ("ceil",)),
    ("TruncBackward0", ops.trunc, ("trunc", "fix")),
    ("SignBackward0", sign_of_real, ("sign",)),
)
for _name, _step_function, _names in _STEP_FUNCTIONS:

    def _stepping(
        input: ArrayLike, _name: str = _name, _op: Elementwise | Callable[..., object] = _step_function
    ) -> Array:
        return _piecewise_constant(_name, _op, one(input))

    _stepping.__name__, _stepping.__doc__ = _names[0], f"{_step_function.__doc__}, element by element."
    function(*_names, in_place=True)(_stepping)


@function("round", in_place=True)
def round(input: ArrayLike, *, decimals: int = 0) -> Array:
    """Round to `decimals` digits behind the point (before it, if negative), ties to even.

    >>> import numpy as np
    >>> round(np.array([0.5, 1.5, -2.25])).tolist()
    [0.0, 2.0, -2.0]
    """
    x = one(input)
    if decimals == 0 or x.dtype.kind != "f":
        return _piecewise_constant("RoundBackward0", rint, x) if x.dtype.kind in "fc" else copied(x)
    return _piecewise_constant("RoundBackward1", selection.round, x, decimals)


@function("frac", in_place=True)
def frac(input: ArrayLike) -> Array:
    """input - trunc(input)"""
    x = floating(input)
    return named("FracBackward0", subtract(x, trunc(x)))


@function("heaviside", in_place=True)
def heaviside(input: Array, values: Array) -> Array:
    """0 below zero, `values` at zero, and 1 above, in their one dtype."""
    require_one_dtype(input, values, "heaviside is not yet implemented for tensors with different dtypes.")
    x, y = arrays(*pair(input, values, _HEAVISIDE))
    return to_dtype(ufuncs.heaviside(x, y), x.dtype)


_HEAVISIDE = TensorOperands("heaviside", parameters=("input", "values"))


# -- piecewise functions -------------------------------------------------------------------------------------------
@function("clamp", "clip", in_place=True)
def clamp(input: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """Clamp to at least `min` and at most `max`, or to `max` if `min` is larger.

    On a bound, the derivative is that of the input. RuntimeError if both bounds are missing.

    >>> import numpy as np
    >>> clamp(np.array([-2.0, 0.5, 2.0]), -1, 1).tolist()
    [-1.0, 0.5, 1.0]
    """
    if min is None and max is None:
        raise RuntimeError(located("torch.clamp: At least one of 'min' or 'max' must not be None"))
    numbers = all(bound is None or is_number(bound) for bound in (min, max))
    if min is None or max is None:
        bounded = clamp_min(input, min) if max is None else clamp_max(input, max)
    else:
        bounded = ops.clamp(*operands(input, min, max))
    return named("ClampBackward1" if numbers else "ClampBackward0", bounded)


@function("clamp_min", in_place=True)
def clamp_min(input: ArrayLike, min: Any) -> Array:
    """max(input, min), with the derivative of the input on the bound."""
    return named(counted("ClampMin", min), ops.clamp_min(*pair(input, min, _CLAMP_MIN)))


@function("clamp_max", in_place=True)
def clamp_max(input: ArrayLike, max: ArrayLike) -> Array:
    """min(input, max), with the derivative of the input on the bound."""
    return named(counted("ClampMax", max), ops.clamp_max(*pair(input, max, _CLAMP_MAX)))


_CLAMP_MIN = TensorOperands("clamp_min", "first", ("input", "min"))
_CLAMP_MAX = TensorOperands("clamp_max", "first", ("input", "max"))


@function("copysign", in_place=True)
def copysign_(input: ArrayLike, other: ArrayLike) -> Array:
    """Return the magnitude of `input` with the sign of `other`."""
    x, y = pair(input, other, _COPYSIGN)
    return named("CopysignBackward1" if is_number(y) else "CopysignBackward0", copysign(in_floats((x, y))[0], y))


_COPYSIGN = TensorOperands("copysign", "first")


def _ignoring_nan(name: str, better: Elementwise, x: Array, y: Array, rule: TensorOperands) -> Array:
    def choose(u: Array, v: Array) -> Array:
        return where(logical_or(better(u, v), isnan(v)), u, v)

    return as_node(name, choose, *pair(x, y, rule))


_FMAX, _FMIN = TensorOperands("fmax"), TensorOperands("fmin")


@function("fmax")
def fmax(input: Array, other: Array) -> Array:
    """Return the larger element, or the one that is not nan."""
    return _ignoring_nan("FmaxBackward0", greater_equal, input, other, _FMAX)


@function("fmin")
def fmin(input: Array, other: Array) -> Array:
    """Return the smaller element, or the one that is not nan."""
    return _ignoring_nan("FminBackward0", ops.less_equal, input, other, _FMIN)


@function("nan_to_num", in_place=True)
def nan_to_num(
    input: Array, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Array:
    """Replace nan by 0, and infinities by the largest numbers of the dtype, or by the passed values."""
    x = one(input)
    if x.dtype.kind not in "fc":
        return copied(x)
    return as_node("NanToNumBackward0", _cleaned, x, 0.0 if nan is None else nan, posinf, neginf)


def _cleaned(x: Array, nan: float, posinf: float | None, neginf: float | None) -> Array:
    result: Array = selection.nan_to_num(x, True, nan, posinf, neginf)
    return result


@function("positive")
def positive(input: ArrayLike) -> Array:
    """Return the input.

    RuntimeError for booleans.
    """
    x = one(input)
    if x.dtype.kind == "b":
        raise RuntimeError(located("The `+` operator, on a bool tensor is not supported."))
    return x


# -- comparison up to rounding, and booleans ------------------------------------------------------------------------
@function("isclose")
def isclose(input: Array, other: Array, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Array:
    """Whether |input - other| <= atol + rtol * |other|, or both are the same infinity.

    >>> import numpy as np
    >>> isclose(np.array([1.0, 2.0]), np.array([1.0 + 1e-9, 2.1])).tolist()
    [True, False]
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise RuntimeError(located(f"{name} must be greater than or equal to zero, but got {value}"))
    require_one_dtype(input, other, "{A} did not match {B}")
    return ufuncs.isclose(*pair(input, other, _ISCLOSE), rtol, atol, equal_nan)


_ISCLOSE = TensorOperands("isclose")
