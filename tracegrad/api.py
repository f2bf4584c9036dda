"""The public transforms of functions: `trace`, `grad`, `value_and_grad`, `vjp`, `jvp`, `linearize`, `stop_gradient`.

They nest in any order: what is called inside a traced function is recorded into its graph, so `grad(grad(f))` is one
graph and one compiled program.
"""

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
from tracegrad.transforms import vjp_function as reverse
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
    """A function that records what `fun` does with NumPy, compiles it, and runs the compiled program from then on.

    Arguments are ndarrays, NumPy scalars, Python numbers, and containers of them (tuple, list, dict, namedtuple,
    dataclass, None, `register_pytree_node`). What `static_argnums` (positions) or `static_argnames` name is a
    constant of the trace instead; it must be hashable. A program is made for each structure of the arguments,
    dtypes and shapes, and static values; Python that asks for a value (`if x.sum() > 0`) makes one for each answer.
    What the function reads from outside is read again at each call.

    With `tiered`, NumPy answers calls, op by op, while another thread compiles, where that is quicker than to wait; if
    False, the first call waits for the compiler; by default `settings.first_call` says: NumPy answers the first, the
    second waits. Results differ by rounding only. What is derived from the function is compiled as it is. Where the
    other thread fails, one of the next calls tells so, by a `PerformanceWarning`, and NumPy goes on answering.

    With `optimize=1`, machine code is what is quickest to compile, with 3 what is quickest to run, by default
    `settings.optimize`, 2: nearly as quick to run, and much quicker to compile. What is derived is optimised alike.

    Arguments that `donate_argnums` or `donate_argnames` name are given away, as in JAX: a result of the same shape and
    dtype may be written over an array of theirs, and is then that array, so that `params = step(params, x)` needs no
    memory for new parameters. Results differ by rounding at most. What such an array contains afterwards is undefined,
    whoever else refers to it. Arrays that are views, read-only, or share memory with another argument stay as they are,
    as do all where a result depends on answers to questions for values. ValueError for arguments that there are not, or
    that are static.

    Raises `TraceError` for arguments of other types, `DTypeError` for dtypes that are not supported,
    `UnsupportedError` for NumPy functions that are not, with the user's file and line. What the function does to
    arrays, objects and names from outside is done at every call; what it prints is printed once per trace.

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
    """The function `(*args) -> (value, gradient)`, where `value = fun(*args)` is a floating scalar.

    The gradient is with respect to the positional argument `argnums`, with its structure, shapes and dtypes; for a
    tuple of argnums it is a tuple. With `has_aux`, `fun` returns `(value, aux)` and the result is `((value, aux),
    gradient)`. With respect to x + iy it is that with respect to x plus i times that to y, as PyTorch has it (JAX gives
    the conjugate); with `holomorphic`, value and arguments are complex, and the gradient is the derivative. `tiered`
    and `optimize` are as for `trace`, by default those of `fun`.

    Raises `DTypeError` (a TypeError) when an argument to differentiate is neither floating nor complex, TypeError (a
    `ShapeError` too) when the value is not a scalar, ValueError for argnums that name no argument or a static one.

    >>> value, gradient = value_and_grad(lambda x: x * x)(3.0)
    >>> print(value, gradient)
    9.0 6.0
    """
    check(fun, argnums, "value_and_grad", (tiered, optimize))

    def make() -> Traced[Parameters, tuple[Any, Any]]:
        body = reverse.value_and_grad(fun, argnums, has_aux, holomorphic)
        return derived(fun, body, value_and_grad, (argnums, has_aux, holomorphic), (tiered, optimize))

    return remembered(fun, ("value_and_grad", argnums, has_aux, holomorphic, tiered, optimize), make)


def grad(
    fun: Callable[Parameters, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *,
    tiered: bool | None = None, optimize: int | None = None,
) -> Traced[Parameters, Any]:  # fmt: skip
    """The function `(*args) -> gradient` of a scalar function; with `has_aux`, `(gradient, aux)`. See `value_and_grad`.

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
        both = reverse.value_and_grad(fun, argnums, has_aux, holomorphic)

        def body(*args: Any, **kwargs: Any) -> Any:
            value, gradient = both(*args, **kwargs)
            return (gradient, value[1]) if has_aux else gradient

        return derived(fun, body, grad, (argnums, has_aux, holomorphic), (tiered, optimize))

    return remembered(fun, ("grad", argnums, has_aux, holomorphic, tiered, optimize), make)


def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """`(out, vjp_fn)`, where `out = fun(*primals)` and `vjp_fn(ct)` is the tuple of the cotangents of the primals.

    `out` is a pytree of arrays, `ct` has its structure, shapes and dtypes (Python numbers will do for scalars).
    With `has_aux`, `fun` returns `(out, aux)` and the result is `(out, vjp_fn, aux)`. The primals must be floating or
    complex (`DTypeError`); a cotangent of another structure or shape is a `ShapeError`. `vjp_fn` is a compiled program
    of its own that does not run `fun` again: it has copies of what it reads, and can be called any number of times.
    Only where a rule of `custom_vjp` asks for the value of a cotangent, or changes something, does `fun` run again.

    >>> import numpy as np
    >>> out, vjp_fn = vjp(lambda x, y: x * y, np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    >>> print(*vjp_fn(np.array([1.0, 10.0])))
    [ 3. 40.] [ 1. 20.]
    """
    require_callable(fun, "vjp")
    leaves, structure = tree.flatten(primals)
    if _at_once(leaves):
        now, pull, aux = reverse.pull_back(fun, primals, has_aux)
        return (now, pull, aux) if has_aux else (now, pull)
    forward = remembered(fun, ("vjp", has_aux), lambda: standing_for(fun, pulled(fun, has_aux), "vjp"))
    result, kept, half = forward(primals)
    if half is not None:
        pull, primals = _second(half, "vjp", fun), kept
    else:
        pull = remembered(fun, ("pull", has_aux), lambda: standing_for(fun, pulled_again(fun, has_aux), "vjp"))
        primals = tree.unflatten(structure, kept)
    out, aux = result if has_aux else (result, None)

    def vjp_fn(cotangent: Any) -> Any:
        return pull(primals, cotangent)

    return (out, vjp_fn, aux) if has_aux else (out, vjp_fn)


def _second(half: Any, name: str, fun: Function) -> Function:
    """What is called for the second program of a function."""
    if half.function is None:
        half.function = Traced(half, name=f"{name}({half.__name__})", **compiled_options(fun))
    function: Function = half.function
    return function


def jvp(fun: Function, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """`(out, tangent)`: `out = fun(*primals)`, and what becomes of it where the primals move by `tangents`.

    Both are tuples or lists with one entry per positional argument, of one structure, shapes and dtypes (Python numbers
    will do for scalars); the tangent has the structure of `out`. Integers and truths do not move, whatever their
    tangents are, and have the tangent 0 in the output. With `has_aux`, `fun` returns `(out, aux)` and the result is
    `(out, tangent, aux)`. Forward mode takes about twice the time of the function itself.

    Raises TypeError for another structure or dtype, `ShapeError` (a ValueError) for another shape; TypeError for a
    `custom_vjp`, which has no tangents.

    >>> import numpy as np
    >>> out, tangent = jvp(lambda x, y: x * y, (np.array([1.0, 2.0]), 3.0), (np.array([1.0, 0.0]), 10.0))
    >>> print(out, tangent)
    [3. 6.] [13. 20.]
    """
    require_callable(fun, "jvp")
    who = _require_sequences(fun, primals, tangents, "jvp")
    # The usual case is told in less time than its arguments are checked: a program is known for those that fit.
    given = (*primals, *tangents)
    if not all(type(x) is np.ndarray and x.dtype.kind == "f" for x in given) or _at_once(given):
        point = forward.Point(primals, who)
        moved = point.tangents(tangents)
        if _at_once([*point.leaves, *moved]):
            found = forward.jvp(fun, point, moved, has_aux)
            return found if has_aux else found[:2]
        tangents = point.filled(moved)
    found = remembered(fun, ("jvp", has_aux), lambda: _pushed(fun, has_aux))(tuple(primals), tuple(tangents))
    return found if has_aux else found[:2]


def _require_sequences(fun: Function, primals: Any, tangents: Any, name: str) -> Description:
    who = describe(fun, f"{name} of ")
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        kinds = f"{type(primals).__name__} and {type(tangents).__name__}"
        raise TypeError(located(f"{who}: primals and tangents must be tuples or lists, got {kinds}"))
    return who


def _at_once(leaves: Iterable[Any]) -> bool:
    """Whether a derivative is taken here: in the trace under way, or on the tape."""
    return current_trace() is not None or any(isinstance(x, Carrier) for x in leaves)


def _pushed(fun: Function, has_aux: bool) -> Any:
    def pushed(primals: Any, tangents: Any) -> Any:
        point = forward.Point(primals, describe(fun, "jvp of "))
        return forward.jvp(fun, point, point.tangents(tangents), has_aux)

    return standing_for(fun, pushed, "jvp")


def linearize(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """`(out, f_jvp)`: `out = fun(*primals)`, and `f_jvp(*tangents)` is the tangent of the output, as `jvp` gives it.

    `f_jvp` is a compiled program of its own that computes nothing again that the tangents have no part in; it can be
    called any number of times. With `has_aux`, `fun` returns `(out, aux)` and the result is `(out, f_jvp, aux)`.
    Errors as for `jvp`.

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
        out, aux, kept, half = first(primals)
        second = _second(half, "f_jvp", fun)

        def f_jvp(*tangents: Any) -> Any:
            return second(kept, point.tangents(tangents))

    return (out, f_jvp, aux) if has_aux else (out, f_jvp)


def vmap(
    fun: Callable[Parameters, Any], in_axes: Any = 0, out_axes: Any = 0, axis_size: int | None = None
) -> Traced[Parameters, Any]:
    """The function that maps `fun` over an axis of its arguments, all examples at once.

    `in_axes` says along which axis each positional argument is mapped: an int, None for an argument that is the same
    for all, or a tuple with one such entry per argument, in which a container of the argument's structure has them for
    its leaves. Arguments by keyword are mapped along axis 0. `out_axes`, an int, None, or a prefix of the structure of
    the result, says where the axis of the batch goes; with None, for an output that does not depend on mapped
    arguments, there is none. `axis_size` is needed where nothing is mapped.

    Inside, arrays have the shapes of one example and no values: `if` and other questions for a value raise
    `TraceError`, unless no mapped argument has a part in it; use `tg.where` or `tg.cond`. ValueError if the sizes of
    mapped axes differ, if an argument has no such axis, or for entries of the wrong structure.

    A dict, a list or an object with a mapped leaf is a new one for each example: what the function writes to it belongs
    to that example. One without is the same for all, and what is written to it is written once; where this is a value
    of an example, `TraceError` is raised where it is used later.

    >>> import numpy as np
    >>> x = np.arange(6.0).reshape(2, 3)
    >>> print(vmap(np.sum)(x), vmap(np.dot, in_axes=(0, None))(x, np.ones(3)))
    [ 3. 12.] [ 3. 12.]
    """
    return vmap_in_chunks(fun, in_axes, out_axes, axis_size, None)


def vmap_in_chunks(
    fun: Callable[Parameters, Any], in_axes: Any, out_axes: Any, axis_size: Any, chunk_size: int | None
) -> Traced[Parameters, Any]:
    """As `vmap`, for `chunk_size` examples at a time; None for all."""
    require_callable(fun, "vmap")
    batch.check_axes(in_axes, out_axes)
    chunks = None if chunk_size is None else (chunk_size, over_chunks)

    def make() -> Any:
        body = batch.batched_call(fun, in_axes, out_axes, axis_size, statics(fun)[1], chunks)
        made = standing_for(fun, body, "vmap")
        made.recipe = vmap_in_chunks, (in_axes, out_axes, axis_size, chunk_size), {}
        return made

    return remembered(fun, ("vmap", _axes_key(in_axes), _axes_key(out_axes), axis_size, chunk_size), make)


def _axes_key(axes: Any) -> Any:
    leaves, structure = tree.flatten(axes)
    return structure, tuple(leaves)


def jacrev(
    fun: Callable[Parameters, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *,
    chunk_size: int | None = None, tiered: bool | None = None, optimize: int | None = None,
) -> Traced[Parameters, Any]:  # fmt: skip
    """The function `(*args) -> Jacobian`, row by row: the way for more inputs than outputs.

    The Jacobian has the structure of the output, with that of the argument (for a tuple of argnums, a tuple of such) in
    the place of each leaf: arrays with the axes of the output and then those of the argument. With `has_aux`, `fun`
    returns `(out, aux)` and the result is `(Jacobian, aux)`. All rows are computed at once, or `chunk_size` at a time.
    `tiered` and `optimize` are as for `trace`, by default those of `fun`.

    Raises `DTypeError` (a TypeError) where an output is not floating, or an argument neither floating nor complex (for
    `jacfwd` the other way round; if `holomorphic`, where one is not complex), ValueError for argnums that name no
    argument or a static one.

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
    """As `jacrev`, column by column: the way for more outputs than inputs.

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
    """The function `(*args) -> Hessian`, forward mode over reverse mode; structure and errors as for `jacrev`, twice.

    >>> import numpy as np
    >>> print(hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0])))
    [[4. 2.]
     [2. 0.]]
    """
    return _of_elements(
        fun, (argnums, has_aux, holomorphic, chunk_size), (tiered, optimize), hessian, jacobians.hessian_of
    )


def hvp(fun: Function, primals: Any, tangents: Any) -> Any:
    """The Hessian of a scalar function at the primals, times the tangents, at the cost of a few gradients.

    Both are tuples or lists with one entry per positional argument, as for `jvp`. The result has the structure of the
    only primal, or is a tuple with that of each.

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
    """`x`, an array or a pytree of arrays, as a constant for every derivative.

    >>> print(grad(lambda x: x * stop_gradient(x))(3.0))
    3.0
    """
    return tree.map(lambda leaf: linear.stop_gradient(leaf) if isinstance(leaf, Carrier) else leaf, x)
