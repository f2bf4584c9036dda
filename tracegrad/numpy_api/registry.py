"""Registry of NumPy functions implemented in ops, and NumPy's dispatch to them.

`@implements(np.sum, refuses=("out",))` registers a function with NumPy's own signature; an argument named in `refuses`
with another value than its default raises `UnsupportedError` with the user's line. Ufuncs are registered by name with
`@ufunc("expit")`, because SciPy's ufuncs are not imported before the user imports them. The name applies only to the
function of that name in NumPy or in `scipy.special`, not to a user's function. `tracegrad.scipy_api` has the ufuncs
that only SciPy has; it is queried when one is called (`LOOKUPS`).
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from tracegrad.avals import is_literal, weak_dtype
from tracegrad.cpython.frames import frame_at, local_variables
from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api.operands import arrays, assigned, operands, to_dtype
from tracegrad.ops.core.half_rounding import HALF
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.typing import DType

if TYPE_CHECKING:
    from types import FrameType

    from tracegrad.typing import Array, ArrayLike, Number


Implementation = Callable[..., Any]
Function = TypeVar("Function", bound=Callable[..., object])

FUNCTIONS: dict[Any, Implementation] = {}
UFUNCS: dict[str, Implementation] = {}
UFUNC_METHODS: dict[tuple[str, str], Implementation] = {}
# Lookups of the implementations of other universal functions; `tracegrad.scipy_api` adds SciPy's.
LOOKUPS: list[Callable[[np.ufunc], Implementation | None]] = []

NO_VALUE: Any = np._NoValue

# The types of `out=`, `initial=` and `where=`, of a reduction, and of a result that is a bool unless it is of a batch.
Out: TypeAlias = "Array | None"
Start: TypeAlias = "Array | Number"
Mask: TypeAlias = "ArrayLike"
Answer: TypeAlias = "bool | Array"
Reduction: TypeAlias = "Callable[..., Array]"


def refuse(feature: str, hint: str = "") -> UnsupportedError:
    """Return the error for an unsupported `feature`, with the user's line."""
    hint = f"; {hint}" if hint else ""
    caller = "" if feature.startswith("scipy.") else _caller()
    feature = f"{feature}, which {caller} calls," if caller else feature
    return UnsupportedError(located(f"{feature} is not supported on traced arrays and Tensors{hint}"))


def public_name(function: object) -> str:
    """Return the name by which users call a NumPy function."""
    module = getattr(function, "__module__", None) or "numpy"
    name = getattr(function, "__name__", repr(function))
    return f"{module.replace('numpy', 'np', 1)}.{name}"


def implements(*functions: object, refuses: tuple[str, ...] = ()) -> Callable[[Function], Function]:
    """Register the decorated function as the meaning of NumPy's `functions` on carriers.

    A function is None if the installed NumPy does not have it.
    """

    def declare(implementation: Function) -> Function:
        name = public_name(functions[0])
        checked: Function = _refusing(implementation, refuses, name) if refuses else implementation
        for function in functions:
            if function is not None:
                FUNCTIONS[function] = checked
        return checked

    return declare


_NEVER = sys.maxsize  # the position of an argument that can only be given by name


def _refusing(implementation: Callable[..., object], refuses: tuple[str, ...], name: str) -> Any:
    @functools.cache
    def watched() -> list[
        tuple[int, str, str | None]
    ]:  # computed at the first call: a process calls few of these functions
        parameters = list(inspect.signature(implementation).parameters.values())
        return [
            (_NEVER if p.kind is p.KEYWORD_ONLY else i, p.name, p.default)
            for i, p in enumerate(parameters)
            if p.name in refuses
        ]

    @functools.wraps(implementation)
    def call(*args: Any, **kwargs: object) -> Any:
        target = None
        for i, argument, default in watched():
            value = args[i] if i < len(args) else kwargs.get(argument, default)
            if value is default or value is NO_VALUE or _equals(value, default):
                continue
            target = (value[0] if type(value) is tuple and len(value) == 1 else value) if argument == "out" else None
            if not isinstance(target, Carrier):
                raise refuse(f"the argument {argument}= of {name}")
            args = args if i >= len(args) else (*args[:i], default, *args[i + 1 :])
            kwargs.pop("out", None)
        result = implementation(*args, **kwargs)
        return result if target is None else write(name, (target,), result, name != "np.clip")

    return call


def _equals(value: object, default: object) -> bool:
    return type(value) is type(default) and isinstance(value, bool | int | str) and value == default


def ufunc(*names: str) -> Callable[[Function], Function]:
    """Register the decorated function as the meaning of the universal functions `names` on carriers."""

    def declare(implementation: Function) -> Function:
        for name in names:
            UFUNCS[name] = implementation
        return implementation

    return declare


_OUTSIDE = "return the array, and do that outside"
_BEFORE = "compute it outside of the traced function, and pass what it gives"
# Hints for functions that are refused.
_INSTEAD = {f"np.{name}": _OUTSIDE for name in ("array2string", "array_repr", "array_str", "save", "savetxt", "savez")}


# -- NumPy's two protocols -------------------------------------------------------------------------------
def dispatch_function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Implement `__array_function__`."""
    implementation = FUNCTIONS.get(function)
    if implementation is None:
        name = public_name(function)
        raise refuse(name, _INSTEAD.get(name, _BEFORE))
    if kwargs:
        kwargs = {k: v for k, v in kwargs.items() if v is not NO_VALUE}
    result = implementation(*args, **kwargs)
    if isinstance(result, Carrier) and not result.aval.shape:
        return _without_axes(function, result, args)
    return result


# NumPy's results without axes are scalars, except the results of `_ARRAYS`. Functions of `_PRESERVING_KIND`, which move
# data, return an array for an array.
_ARRAYS = frozenset(
    {
        np.where,
        np.select,
        np.copy,
        np.zeros_like,
        np.ones_like,
        np.full_like,
        np.empty_like,
        np.broadcast_to,
        np.tensordot,
        np.cov,
        np.cross,
        np.pad,
        np.block,
        np.piecewise,
    }
)
_PRESERVING_KIND = frozenset(
    {
        np.reshape,
        np.squeeze,
        np.transpose,
        np.real,
        np.imag,
        np.roll,
        np.moveaxis,
        np.swapaxes,
        np.rollaxis,
        np.astype,
        np.permute_dims,
    }
)


def _without_axes(function: Any, result: Any, args: tuple[object, ...]) -> Any:
    """Convert a result without axes to the scalar or the array of NumPy's rules."""
    if function in _ARRAYS:
        return result.zero_d()
    inputs: Any = args[0] if args else None
    if function in (np.real, np.imag) and getattr(inputs, "weak", False):
        return inputs._weakened(result)
    preserves = function in _PRESERVING_KIND and isinstance(inputs, Carrier)
    return inputs.preserve_kind(result) if preserves else result


def dispatch_ufunc(function: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Implement `__array_ufunc__`."""
    name = _name_of(function)
    if method != "__call__":
        implementation = UFUNC_METHODS.get((name, method))
        if implementation is None:
            return UFUNC_METHODS["", method](function, *inputs, **kwargs)
        return implementation(*inputs, **kwargs)
    implementation = UFUNCS.get(name) or _of_scipy(function, name)
    if implementation is None:
        raise refuse(public_ufunc(function), "use np.vectorize" if _of_objects(function) else "")
    out, order = kwargs.pop("out", None), kwargs.pop("order", "K")
    mask = kwargs.pop("where", True) if kwargs else True
    if kwargs and function.signature and not kwargs.keys().isdisjoint(_OF_AXES):
        result = UFUNC_METHODS["", "axes"](function, inputs, kwargs)
        return result if out is None else write(public_ufunc(function), out, result)
    if kwargs:
        inputs, kwargs = _in_loop(function, inputs, kwargs)
    elif function in _OF_OTHERS:
        inputs = _in_scipys_loop(function, inputs)
    result = implementation(*inputs, **kwargs)
    if mask is not True:
        result = _apply_where(mask, result, out)
    if out is not None:
        return write(public_ufunc(function), out, result)
    return result if order in (None, "K") else _in_order(result, order, inputs)


def _of_objects(function: np.ufunc) -> bool:
    """Whether the ufunc was made by `np.frompyfunc`."""
    return bool(set("".join(function.types)) <= set("O->"))


def _of_scipy(function: np.ufunc, name: str) -> Implementation | None:
    """Return the implementation of a SciPy ufunc on carriers; None for others."""
    if name.startswith("unknown") or getattr(np, name, None) is function:
        return None
    return next((result for lookup in LOOKUPS if (result := lookup(function)) is not None), None)


def _is_fortran(x: Any) -> bool:
    return bool((x if isinstance(x, np.ndarray) else x._visible_layouts(x)[0]).flags.fnc)


def _in_loop(function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Convert the inputs to the dtypes of dtype=, signature= and casting=; return the other arguments too."""
    casting, dtype = kwargs.pop("casting", "same_kind"), kwargs.pop("dtype", None)
    signature = kwargs.pop("signature", None)
    kwargs.pop("subok", None)
    for argument in kwargs:
        if argument != "axis":
            raise refuse(f"the argument {argument}= of {public_ufunc(function)}")
    if dtype is None and signature is None and casting in _USUAL:
        return inputs, kwargs
    if signature is None:
        signature = (*[None] * function.nin, *[None if dtype is None else np.dtype(dtype)] * function.nout)
    args = operands(*inputs)
    kinds = (*map(weak_dtype, args), *[None] * function.nout)
    loop = function.resolve_dtypes(kinds, signature=signature, casting=casting)
    return [_as(x, kind) for x, kind in zip(args, loop)], kwargs


def _in_scipys_loop(function: Any, inputs: tuple[Any, ...]) -> Any:
    """Convert the inputs of a SciPy ufunc, which has loops for some floats only, to the dtypes of its loop.

    The loop for integers and Python numbers depends on the version of SciPy.
    """
    args = operands(*inputs)
    kinds = [np.dtype(kind) if (kind := weak_dtype(x)) is bool else kind for x in args]  # no bool is weak
    if all(not isinstance(kind, type) and kind.kind in "fc" and kind != HALF for kind in kinds):
        return inputs
    loop = function.resolve_dtypes((*kinds, *[None] * function.nout))
    return [_as(x, kind) for x, kind in zip(args, loop)]


_USUAL = ("same_kind", "safe", "unsafe")
# Arguments of functions that work on whole vectors and matrices.
_OF_AXES = ("axes", "keepdims")


def _as(x: Array | Number, dtype: DType) -> Array | Number:
    return assigned(x, dtype) if is_literal(x) else to_dtype(x, dtype)


def _apply_where(mask: Any, result: Any, out: Any) -> tuple[Array, ...] | Array:
    """Apply `where=`: other elements of the outputs are unchanged, or zero if NumPy leaves them uninitialized."""
    is_tuple = isinstance(result, tuple)
    results = result if is_tuple else (result,)
    before = [None] * len(results) if out is None else out
    chosen = []
    for computed, old in zip(results, before):
        inside, new = arrays(mask, computed)
        chosen.append(elementwise.where(inside, new, (False if new.dtype.kind == "b" else 0) if old is None else old))
    return tuple(chosen) if is_tuple else chosen[0]


def _in_order(result: Any, order: str, inputs: tuple[Any, ...]) -> Any:
    """Return the new arrays with this order of elements in memory; "A" is "F" if all operands have it."""
    if order == "A":
        known = [x for x in inputs if isinstance(x, Carrier | np.ndarray)]
        order = "F" if all(_is_fortran(x) for x in known) else "C"
    return (
        tuple([x._in_memory_order(order) for x in result])
        if isinstance(result, tuple)
        else result._in_memory_order(order)
    )


def write(name: str, out: tuple[Any, ...], result: Any, any_dtype: bool = False) -> Any:
    """Assign the results of the function `name` to its output arrays."""
    if isinstance(result, tuple):
        args = zip((*out, *[None] * len(result)), result)
        return tuple([x if target is None else write(name, (target,), x) for target, x in args])
    if len(out) != 1 or not isinstance(out[0], Carrier):
        raise refuse(
            f"{name} writing into an ndarray that the traced function did not make",
            "make the array inside, or use the result",
        )
    target: Any = out[0]
    fitting = result.astype(target.dtype) if any_dtype and hasattr(result, "astype") else result
    target._update(fitting, name.removeprefix("np."))
    return target


# Names of functions that never dispatch, which are replaced in traced code.
REPLACED: set[str] = set()
_NAMES: dict[Any, str] = {}
# Universal functions that are not NumPy's.
_OF_OTHERS: set[Any] = set()


def _name_of(function: Callable[..., object]) -> str:
    name = _NAMES.get(function)
    if name is None:
        name = function.__name__
        homes = (np, np.linalg, *map(sys.modules.get, _OF_SCIPY))
        if not any(getattr(home, name, None) is function for home in homes) and name not in _INTERNAL:
            name = f"unknown {name}"
        _NAMES[function] = name
        if getattr(np, name, None) is not function and name not in _INTERNAL:
            _OF_OTHERS.add(function)
    return name


_OF_SCIPY = ("scipy.special", "scipy.special._ufuncs")
# Internal ufuncs of NumPy's functions: their name is another object in NumPy's namespace.
_INTERNAL = frozenset({"clip"})


def public_ufunc(function: Callable[..., object]) -> str:
    """Return the name by which users call a universal function."""
    name = function.__name__
    if getattr(np, name, None) is function:
        return f"np.{name}"
    return f"the universal function {name}" if _name_of(function) != name else f"scipy.special.{name.lstrip('_')}"


def caller_in_scipy() -> str:
    """Name the function of SciPy, or of `np.polynomial`, that the user called and that called this; "" if none."""
    called = _caller()
    instead = " (use np.poly1d, np.polyval or np.polyfit)" if called.startswith("numpy.polynomial.") else ""
    return f"{called}, which tracegrad does not know on traced arrays and Tensors{instead}," if called else ""


def _caller() -> str:
    frame: Any = frame_at(1)
    called = ""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(("scipy.", "numpy.polynomial.")):
            called = _public_of(frame, module) or called
        elif called and not module.startswith(("numpy.", "tracegrad.")):
            break
        frame = frame.f_back
    return called


# The variable names of wrapped functions in SciPy's decorators.
_WRAPPED = ("f", "func", "fun", "function", "hypotest_fun_in")


def _public_of(frame: FrameType, module: str) -> str:
    """Return the public name of the function of a frame, or of the one it wraps; "" for others."""
    name, held = frame.f_code.co_name, local_variables(frame)
    for wrapped in map(held.get, _WRAPPED):
        if (
            callable(wrapped)
            and hasattr(wrapped, "__name__")
            and (getattr(wrapped, "__module__", None) or "").startswith("scipy.")
        ):
            name = getattr(wrapped, "__qualname__", wrapped.__name__)
            module, name = wrapped.__module__, wrapped.__name__ if "<" in name else name
            break
    else:
        if "self" in held:
            module, name = type(held["self"]).__module__, f"{type(held['self']).__name__}.{name}"
    path = module.split(".")
    home = ".".join(path[: next((i for i, part in enumerate(path) if part.startswith("_")), len(path))])
    if name.endswith(".__call__"):  # an object that users call by its public name
        space = getattr(sys.modules.get(home), "__dict__", {})
        name = next((key for key, value in space.items() if value is held["self"]), name)
    known = "." in name or hasattr(sys.modules.get(home), name)
    return f"{home}.{name}" if known and home != "scipy" else ""


def supported() -> list[str]:
    """Names of the functions, universal functions and their methods that traced code can call.

    >>> {"np.sum", "np.tanh", "np.add.reduce", "np.zeros", "scipy.special.expit"} <= set(supported())
    True
    """
    special = {name for name in UFUNCS if not hasattr(np, name)}
    names = {public_name(f) for f in FUNCTIONS}
    names |= {f"scipy.special.{name}" if name in special else f"np.{name}" for name in UFUNCS if name[0] != "_"}
    return sorted(names | REPLACED | {f"np.{name}.{method}" for name, method in UFUNC_METHODS if name})
