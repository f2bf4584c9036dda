"""Transforms of functions (`trace`, `grad`, `vjp`, `vmap`, ...): nested ones make one graph and one program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload

import numpy as np

from tracegrad import jacobians, tree
from tracegrad.control.loops import map as over_chunks
from tracegrad.errors import located
from tracegrad.ops import Carrier
from tracegrad.ops.shape import linear
from tracegrad.reroll import find_circles, roll
from tracegrad.runtime.dispatch.closure_families import remembered
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.sources.describe import Description, describe
from tracegrad.traced_function import Parameters, Result, Traced
from tracegrad.transform_support import (
    Options,
    check,
    compiled_options,
    derived,
    require_callable,
    require_options,
    standing_for,
    statics,
)
from tracegrad.transforms import jvp_function as forward
from tracegrad.transforms import vjp_function
from tracegrad.transforms import vmap as batch
from tracegrad.transforms.split_program import linearized, pulled, pulled_again

__all__ = [
    "grad", "hessian", "hvp", "jacfwd", "jacobian", "jacrev", "jvp", "linearize", "stop_gradient",
    "trace", "value_and_grad", "vjp", "vmap",
]  # fmt: skip

TraceBuilder.roll = staticmethod(roll)
TraceBuilder.find_circles = staticmethod(find_circles)

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]


@overload
def trace(
    fun: Callable[Parameters, Result], *, static_argnums: Any = (), static_argnames: Any = (),
    tiered: bool | None = None, optimize: int | None = None, donate_argnums: Any = (), donate_argnames: Any = (),
) -> Traced[Parameters, Result]: ...  # fmt: skip
@overload
def trace(
    *, static_argnums: Any = (), static_argnames: Any = (), tiered: bool | None = None, optimize: int | None = None,
    donate_argnums: Any = (), donate_argnames: Any = (),
) -> Callable[[Callable[Parameters, Result]], Traced[Parameters, Result]]: ...  # fmt: skip
def trace(
    fun: Function | None = None, *, static_argnums: Any = (), static_argnames: Any = (), tiered: bool | None = None,
    optimize: int | None = None, donate_argnums: Any = (), donate_argnames: Any = (),
) -> Any:  # fmt: skip
    """Compile a NumPy function: trace it at the first call, and run the compiled program from then on.

    Parameters
    ----------
    fun : callable; without it, a decorator is returned
    static_argnums, static_argnames : int or str, or sequence of them; arguments that are constants, hashable
    tiered : bool, optional
        True: NumPy evaluates calls op by op while another thread compiles, if that is faster than to wait. False: the
        first call waits. Default: `settings.first_call`; NumPy evaluates the first call, the second compiles.
    optimize : {1, 2, 3}, optional
        1 compiles fastest, 3 makes the fastest code. Default: `settings.optimize`, 2: nearly as fast, and sooner.
    donate_argnums, donate_argnames : int or str, or sequence of them; arguments to overwrite with results, as in JAX

    Returns
    -------
    Traced, the compiled function; functions derived from it, as by `grad`, have the same options

    Raises
    ------
    TraceError, DTypeError, UnsupportedError for other types, dtypes or NumPy functions, with the user's file and line
    ValueError if a static or donated argument does not exist, or is both

    Notes
    -----
    Arguments are ndarrays, NumPy scalars, Python numbers, and pytrees of them (tuple, list, dict, namedtuple,
    dataclass, None, `register_pytree_node`). Each structure, dtype, shape and static value has its own program, and so
    has each answer to Python code that asks for a value (`if x.sum() > 0`). Every call reads the variables from
    outside, and changes arrays, objects and names there; text is printed once per trace. NumPy's results differ by
    rounding only. If the compiling thread fails, NumPy goes on, and a later call issues a `PerformanceWarning`.

    A result may be written into a donated array of its shape and dtype, and is then that array, so that a training step
    `params = step(params, x)` allocates nothing. Results change by rounding at most; the array's content is undefined
    for all who refer to it. Views, read-only arrays and arrays that share memory with another argument are not
    overwritten, nor is any array if a result depends on answers to questions for values.

    Examples
    --------
    >>> import numpy as np
    >>> @trace
    ... def norm(x):
    ...     return np.sqrt(np.sum(x * x))
    >>> print(norm(np.array([3.0, 4.0])))
    5.0
    """
    options = {"static_argnums": static_argnums, "static_argnames": static_argnames}
    options |= {"tiered": tiered, "optimize": optimize}
    options |= {"donate_argnums": donate_argnums, "donate_argnames": donate_argnames}
    if fun is None:
        return lambda f: trace(f, **options)
    require_callable(fun, "trace")
    require_options("trace", (tiered, optimize))
    return Traced(fun, **options)


def value_and_grad(
    fun: Callable[Parameters, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *,
    tiered: bool | None = None, optimize: int | None = None,
) -> Traced[Parameters, tuple[Any, Any]]:  # fmt: skip
    """Differentiate a scalar function: compute its value and its gradient in one program (reverse mode).

    Parameters
    ----------
    fun : callable; its value is a floating scalar
    argnums : int or tuple of int; positional arguments, floating or complex
    has_aux : bool; whether `fun` returns `(value, aux)`
    holomorphic : bool; whether value and arguments are complex, and the gradient is the complex derivative
    tiered, optimize : as for `trace`; default: the options of `fun`

    Returns
    -------
    Traced
        Function `(*args) -> (value, gradient)`, or with `has_aux` `((value, aux), gradient)`. The gradient is with
        respect to the positional argument `argnums`, with its structure, shapes and dtypes; a tuple for a tuple of
        argnums. With respect to x + iy it is dL/dx + i dL/dy, as in PyTorch (JAX gives the conjugate).

    Raises
    ------
    DTypeError (a TypeError) if an argument to differentiate is neither floating nor complex
    TypeError (a `ShapeError` too) if the value is not a scalar
    ValueError if `argnums` names no argument, or a static one

    Examples
    --------
    >>> value, gradient = value_and_grad(lambda x: x * x)(3.0)
    >>> print(value, gradient)
    9.0 6.0
    """
    check(fun, argnums, "value_and_grad", (tiered, optimize))

    def make() -> Traced[Parameters, tuple[Any, Any]]:
        body = vjp_function.value_and_grad(fun, argnums, has_aux, holomorphic)
        return derived(fun, body, value_and_grad, (argnums, has_aux, holomorphic), (tiered, optimize))

    return remembered(fun, ("value_and_grad", argnums, has_aux, holomorphic, tiered, optimize), make)


def grad(
    fun: Callable[Parameters, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *,
    tiered: bool | None = None, optimize: int | None = None,
) -> Traced[Parameters, Any]:  # fmt: skip
    """Return the function `(*args) -> gradient`, with `has_aux` `(gradient, aux)`; all else as for `value_and_grad`.

    >>> import numpy as np
    >>> print(grad(lambda x: np.sum(x**3))(np.array([1.0, 2.0])))
    [ 3. 12.]
    >>> print(grad(grad(np.sin))(0.5) == -np.sin(0.5))
    True
    >>> print(grad(lambda z: z**2, holomorphic=True)(np.complex128(1 + 2j)))
    (2+4j)
    """
    check(fun, argnums, "grad", (tiered, optimize))

    def make() -> Traced[Parameters, Any]:
        both = vjp_function.value_and_grad(fun, argnums, has_aux, holomorphic)

        def body(*args: Any, **kwargs: Any) -> Any:
            value, gradient = both(*args, **kwargs)
            return (gradient, value[1]) if has_aux else gradient

        return derived(fun, body, grad, (argnums, has_aux, holomorphic), (tiered, optimize))

    return remembered(fun, ("grad", argnums, has_aux, holomorphic, tiered, optimize), make)


def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """Compute `out = fun(*primals)` and the function of its vector-Jacobian products (reverse mode).

    Parameters
    ----------
    fun : callable; its result is a pytree of arrays
    *primals : pytrees of floating or complex arrays
    has_aux : bool; whether `fun` returns `(out, aux)`

    Returns
    -------
    (out, vjp_fn) or (out, vjp_fn, aux)
        `vjp_fn(ct)` is the tuple of the primals' cotangents. `ct` has the structure, shapes and dtypes of `out`;
        numbers stand for scalars. `vjp_fn` is a separate compiled program with copies of its residuals, callable any
        number of times. It reruns `fun` only if a `custom_vjp` rule asks for a cotangent's value, or changes something.

    Raises
    ------
    DTypeError if a primal is neither floating nor complex; ShapeError if a cotangent's structure or shape differs

    Examples
    --------
    >>> import numpy as np
    >>> out, vjp_fn = vjp(lambda x, y: x * y, np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    >>> print(*vjp_fn(np.array([1.0, 10.0])))
    [ 3. 40.] [ 1. 20.]
    """
    require_callable(fun, "vjp")
    leaves, structure = tree.flatten(primals)
    if _at_once(leaves):
        now, pull, aux = vjp_function.pull_back(fun, primals, has_aux)
        return (now, pull, aux) if has_aux else (now, pull)
    forward = remembered(fun, ("vjp", has_aux), lambda: standing_for(fun, pulled(fun, has_aux), "vjp"))
    result, saved, half = forward(primals)
    if half is not None:
        pull, primals = _second(half, "vjp", fun), saved
    else:
        pull = remembered(fun, ("pull", has_aux), lambda: standing_for(fun, pulled_again(fun, has_aux), "vjp"))
        primals = tree.unflatten(structure, saved)
    out, aux = result if has_aux else (result, None)

    def vjp_fn(cotangent: Any) -> Any:
        return pull(primals, cotangent)

    return (out, vjp_fn, aux) if has_aux else (out, vjp_fn)


def _second(half: Any, name: str, fun: Function) -> Function:
    """Return the compiled second program of a function; make it at the first call."""
    if half.function is None:
        half.function = Traced(half, name=f"{name}({half.__name__})", **compiled_options(fun))
    function: Function = half.function
    return function


def jvp(fun: Function, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """Compute `out = fun(*primals)` and its directional derivative along `tangents` (forward mode).

    Parameters
    ----------
    fun : callable; its result is a pytree of arrays
    primals, tangents : tuple or list; one entry for each positional argument, of one structure, shape and dtype
    has_aux : bool; whether `fun` returns `(out, aux)`

    Returns
    -------
    (out, tangent) or (out, tangent, aux)
        `tangent` has the structure of `out`. Integers and booleans have the tangent 0 in it, whatever tangent is given;
        numbers stand for scalars. Forward mode takes about twice the time of `fun`.

    Raises
    ------
    TypeError if a structure or dtype differs, or for a `custom_vjp`, which has no tangents
    ShapeError (a ValueError) if a shape differs

    Examples
    --------
    >>> import numpy as np
    >>> out, tangent = jvp(lambda x, y: x * y, (np.array([1.0, 2.0]), 3.0), (np.array([1.0, 0.0]), 10.0))
    >>> print(out, tangent)
    [3. 6.] [13. 20.]
    """
    require_callable(fun, "jvp")
    who = _require_sequences(fun, primals, tangents, "jvp")
    # The usual case is told in less time than its arguments are checked: a program is known for those that fit.
    args = (*primals, *tangents)
    if not all(type(x) is np.ndarray and x.dtype.kind == "f" for x in args) or _at_once(args):
        point = forward.Point(primals, who)
        moved = point.tangents(tangents)
        if _at_once([*point.leaves, *moved]):
            result = forward.jvp(fun, point, moved, has_aux)
            return result if has_aux else result[:2]
        tangents = point.filled(moved)
    result = remembered(fun, ("jvp", has_aux), lambda: _pushed(fun, has_aux))(tuple(primals), tuple(tangents))
    return result if has_aux else result[:2]


def _require_sequences(fun: Function, primals: Any, tangents: Any, name: str) -> Description:
    who = describe(fun, f"{name} of ")
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        kinds = f"{type(primals).__name__} and {type(tangents).__name__}"
        raise TypeError(located(f"{who}: primals and tangents must be tuples or lists, got {kinds}"))
    return who


def _at_once(leaves: Iterable[Any]) -> bool:
    """Whether a derivative is taken eagerly: in the active trace, or on the tape."""
    return current_trace() is not None or any(isinstance(x, Carrier) for x in leaves)


def _pushed(fun: Function, has_aux: bool) -> Any:
    def pushed(primals: Any, tangents: Any) -> Any:
        point = forward.Point(primals, describe(fun, "jvp of "))
        return forward.jvp(fun, point, point.tangents(tangents), has_aux)

    return standing_for(fun, pushed, "jvp")


def linearize(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """Compute `(out, f_jvp)`: `out = fun(*primals)`, and the linear function `f_jvp(*tangents)` to its tangent.

    `f_jvp` is a compiled program, callable any number of times, that recomputes nothing independent of the tangents.
    With `has_aux`, `fun` returns `(out, aux)`, and the result is `(out, f_jvp, aux)`. Errors are those of `jvp`.

    >>> import numpy as np
    >>> out, f_jvp = linearize(np.exp, np.array([0.0, 1.0]))
    >>> print(out == f_jvp(np.array([1.0, 1.0])))
    [ True  True]
    """
    require_callable(fun, "linearize")
    point = forward.Point(primals, describe(fun, "linearize of "))
    if _at_once(point.leaves):
        out, push, aux = forward.linear(fun, point, has_aux)

        def f_jvp(*tangents: Any) -> Any:
            return push(point.tangents(tangents))
    else:
        key = "linearize", has_aux
        first = remembered(fun, key, lambda: standing_for(fun, linearized(fun, has_aux), "linearize"))
        out, aux, saved, half = first(primals)
        second = _second(half, "f_jvp", fun)

        def f_jvp(*tangents: Any) -> Any:
            return second(saved, point.tangents(tangents))

    return (out, f_jvp, aux) if has_aux else (out, f_jvp)


def vmap(
    fun: Callable[Parameters, Any], in_axes: Any = 0, out_axes: Any = 0, axis_size: int | None = None
) -> Traced[Parameters, Any]:
    """Vectorize a function: return the function that maps it over an axis of its arguments, all examples at once.

    Parameters
    ----------
    fun : callable; inside, arrays have the shapes of one example; arguments by keyword are mapped along axis 0
    in_axes : int, None (one argument for all examples), or tuple with an entry, or container of them, for each argument
    out_axes : int, None (no batch axis: independent of mapped arguments), or prefix of the result's structure
    axis_size : int, optional; number of examples, necessary if nothing is mapped

    Raises
    ------
    TraceError if Python asks for a value (`if`) that depends on a mapped argument: use `tg.where` or `tg.cond`
    ValueError if sizes of mapped axes differ, an argument has no such axis, or an entry has the wrong structure

    Notes
    -----
    A dict, list or object with a mapped leaf is a new one for each example: writes to it belong to that example. One
    without is shared, and written once; `TraceError` is raised at the later use of an example's value written there.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(6.0).reshape(2, 3)
    >>> print(vmap(np.sum)(x), vmap(np.dot, in_axes=(0, None))(x, np.ones(3)))
    [ 3. 12.] [ 3. 12.]
    """
    return vmap_in_chunks(fun, in_axes, out_axes, axis_size, None)


def vmap_in_chunks(
    fun: Callable[Parameters, Any], in_axes: Any, out_axes: Any, axis_size: Any, chunk_size: int | None
) -> Traced[Parameters, Any]:
    """Vectorize as `vmap`, for `chunk_size` examples at a time; None for all."""
    require_callable(fun, "vmap")
    batch.check_axes(in_axes, out_axes)
    chunks = None if chunk_size is None else (chunk_size, over_chunks)

    def make() -> Any:
        body = batch.batched_call(fun, in_axes, out_axes, axis_size, statics(fun)[1], chunks)
        result = standing_for(fun, body, "vmap")
        result.recipe = vmap_in_chunks, (in_axes, out_axes, axis_size, chunk_size), {}
        return result

    return remembered(fun, ("vmap", _axes_key(in_axes), _axes_key(out_axes), axis_size, chunk_size), make)


def _axes_key(axes: Any) -> Any:
    leaves, structure = tree.flatten(axes)
    return structure, tuple(leaves)


def jacrev(
    fun: Callable[Parameters, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *,
    chunk_size: int | None = None, tiered: bool | None = None, optimize: int | None = None,
) -> Traced[Parameters, Any]:  # fmt: skip
    """Return the function `(*args) -> Jacobian`, computed row by row: for more inputs than outputs (reverse mode).

    Parameters
    ----------
    fun, argnums, has_aux, holomorphic, tiered, optimize : as for `value_and_grad`; `fun` returns a pytree of arrays
    chunk_size : int, optional; rows computed at a time, by default all

    Returns
    -------
    Traced
        Function to the Jacobian, or `(Jacobian, aux)`: the output's structure, each leaf replaced by the argument's (by
        a tuple for a tuple of argnums). Arrays have the output's axes, then the argument's.

    Raises
    ------
    DTypeError (a TypeError) for outputs not floating, arguments not floating or complex; `jacfwd`: the other way round
    DTypeError with `holomorphic` for outputs or arguments not complex; ValueError as for `value_and_grad`

    Examples
    --------
    >>> import numpy as np
    >>> print(jacrev(lambda x: x[:2] * x[2])(np.array([1.0, 2.0, 3.0])))
    [[3. 0. 1.]
     [0. 3. 2.]]
    """
    return _of_elements(
        fun, (argnums, has_aux, holomorphic, chunk_size), (tiered, optimize), jacrev, jacobians.reverse_jacobian
    )


def jacfwd(
    fun: Callable[Parameters, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *,
    chunk_size: int | None = None, tiered: bool | None = None, optimize: int | None = None,
) -> Traced[Parameters, Any]:  # fmt: skip
    """Return the function `(*args) -> Jacobian`, as `jacrev`, but column by column: for more outputs than inputs.

    >>> import numpy as np
    >>> print(jacfwd(lambda x: np.array([x, x**2, x**3]))(2.0))
    [ 1.  4. 12.]
    """
    return _of_elements(
        fun, (argnums, has_aux, holomorphic, chunk_size), (tiered, optimize), jacfwd, jacobians.forward_jacobian
    )


jacobian = jacrev


def hessian(
    fun: Callable[Parameters, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *,
    chunk_size: int | None = None, tiered: bool | None = None, optimize: int | None = None,
) -> Traced[Parameters, Any]:  # fmt: skip
    """Return the function `(*args) -> Hessian`, forward mode over reverse mode; all else as for `jacrev`, twice.

    >>> import numpy as np
    >>> print(hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0])))
    [[4. 2.]
     [2. 0.]]
    """
    return _of_elements(
        fun, (argnums, has_aux, holomorphic, chunk_size), (tiered, optimize), hessian, jacobians.hessian_of
    )


def hvp(fun: Function, primals: Any, tangents: Any) -> Any:
    """Compute a Hessian-vector product of a scalar function, at the cost of a few gradients.

    `primals` (the point) and `tangents` (the vector) are tuples or lists with one entry for each positional argument,
    as for `jvp`. The result has the structure of the only primal, or is a tuple with the structure of each.

    >>> import numpy as np
    >>> print(hvp(lambda x: np.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 10.0]),)))
    [  6. 120.]
    """
    require_callable(fun, "hvp")
    _require_sequences(fun, primals, tangents, "hvp")
    if _at_once(tree.leaves((tuple(primals), tuple(tangents)))):
        return jacobians.hvp_at(fun, primals, tangents)
    return remembered(fun, ("hvp",), lambda: _hessian_product(fun))(tuple(primals), tuple(tangents))


def _hessian_product(fun: Function) -> Any:
    def product(primals: Any, tangents: Any) -> Any:
        return jacobians.hvp_at(fun, primals, tangents)

    return standing_for(fun, product, "hvp")


def _of_elements(
    fun: Callable[Parameters, Any], given: tuple[Argnums, bool, bool, Any], options: Options, transform: Any, make: Any
) -> Traced[Parameters, Any]:
    name, (argnums, *_, chunk_size) = transform.__name__, given
    check(fun, argnums, name, options)
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < 1):
        raise ValueError(located(f"{name}: chunk_size must be a positive int or None, got {chunk_size!r}"))
    who = describe(fun, f"{name} of ")

    def made() -> Traced[Parameters, Any]:
        return derived(fun, make(fun, *given, who), transform, given[:3], options, chunk_size=chunk_size)

    return remembered(fun, (name, given, options), made)


def stop_gradient(x: Any) -> Any:
    """Return `x`, an array or a pytree of arrays, as a constant for every derivative.

    >>> print(grad(lambda x: x * stop_gradient(x))(3.0))
    3.0
    """
    return tree.map(lambda leaf: linear.stop_gradient(leaf) if isinstance(leaf, Carrier) else leaf, x)
