"""Shared parts of the transforms: checks of their arguments, and construction of their `Traced` functions.

A transform returns a `Traced` function, with the name and static arguments of the user's function, and compiled with
its options. It stores the recipe that made it, so that another process can make it again.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any

from tracegrad.errors import TraceError, located
from tracegrad.ops import Carrier
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.sources.describe import Description, describe
from tracegrad.traced_function import Parameters, Traced

__all__ = [
    "Options",
    "check",
    "compiled_options",
    "derived",
    "is_eager",
    "require_callable",
    "require_options",
    "require_sequences",
    "second_program",
    "standing_for",
    "statics",
]

Function = Callable[..., Any]
Options = tuple[bool | None, int | None]  # tiered and optimize


def require_callable(fun: object, name: str) -> None:
    """Raise TypeError for an object that is not callable, and TraceError for an async function."""
    if not callable(fun):
        is_matrix = name == "trace" and hasattr(fun, "shape")
        hint = "; the trace of a matrix is x.trace(), or linalg.trace(x)" if is_matrix else ""
        raise TypeError(located(f"{name} takes a function, got a {type(fun).__name__}{hint}"))
    if inspect.iscoroutinefunction(fun) or inspect.isasyncgenfunction(fun):
        text = (
            f"{name} cannot take {describe(fun)}, which is async; make what it computes a function, and call that in it"
        )
        raise TraceError(located(text))


def require_options(name: str, options: Options) -> None:
    """Raise TypeError or ValueError for invalid options."""
    tiered, optimize = options
    if tiered not in (None, True, False):
        raise TypeError(located(f"{name}: tiered must be True, False or None, got {tiered!r}"))
    if optimize is not None and (type(optimize) is not int or not 1 <= optimize <= 3):
        raise ValueError(located(f"{name}: optimize must be 1, 2, 3 or None, got {optimize!r}"))


def check(fun: Any, argnums: Any, name: str, options: Options) -> None:
    """Raise TypeError or ValueError if the transform `name` does not apply to a function, or to these arguments."""
    require_callable(fun, name)
    require_options(name, options)
    argnum_tuple = argnums if isinstance(argnums, tuple) else (argnums,)
    if not argnum_tuple or not all(type(i) is int for i in argnum_tuple):
        raise TypeError(located(f"{name}: argnums must be an int or a tuple of ints, got {argnums!r}"))
    static = fun.binder.static_nums if isinstance(fun, Traced) else ()
    for i in argnum_tuple:
        if i in static:
            raise ValueError(
                located(
                    f"{name} of {describe(fun)}: argnums names {describe(fun).argument(i)}, which is a static argument"
                )
            )


def require_sequences(fun: Function, primals: object, tangents: object, name: str) -> Description:
    """Raise TypeError if primals or tangents are no tuple or list; return how messages call the function."""
    description = describe(fun, f"{name} of ")
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        kinds = f"{type(primals).__name__} and {type(tangents).__name__}"
        raise TypeError(located(f"{description}: primals and tangents must be tuples or lists, got {kinds}"))
    return description


def is_eager(leaves: Iterable[object]) -> bool:
    """Whether a derivative is taken eagerly: in the active trace, or on the tape."""
    return current_trace() is not None or any(isinstance(x, Carrier) for x in leaves)


def derived(
    fun: Callable[Parameters, Any],
    body: Function,
    transform: Function,
    transform_args: tuple[object, ...],
    options: Options,
    **others: object,
) -> Traced[Parameters, Any]:
    """Trace `body` with the arguments of `fun`: the result of `transform(fun, *given, **others)` with these options."""
    nums, names = statics(fun)
    keywords = dict(zip(("tiered", "optimize"), options))
    how = compiled_options(fun) | {option: value for option, value in keywords.items() if value is not None}
    return Traced(
        fun,
        body=body,
        static_argnums=nums,
        static_argnames=names,
        name=f"{transform.__name__}({describe(fun).name})",
        recipe=(transform, transform_args, keywords | others),
        **how,
    )


def standing_for(fun: Function, body: Function, name: str) -> Any:
    """Trace `body`, with its own arguments; messages name the user's function."""
    vars(body).update(__signature__=inspect.signature(body), __wrapped__=fun)
    # Arguments can be static only if `body` has the arguments of the function.
    nums, names = statics(fun) if _has_var_positional(body) else ((), ())
    return Traced(
        fun,
        body=body,
        signature=body,
        static_argnums=nums,
        static_argnames=names,
        name=f"{name}({describe(fun).name})",
        **compiled_options(fun),
    )


def second_program(half: Any, name: str, fun: Function) -> Function:
    """Return the compiled second program of a function; make it at the first call."""
    if half.function is None:
        half.function = Traced(half, name=f"{name}({half.__name__})", **compiled_options(fun))
    function: Function = half.function
    return function


def compiled_options(fun: Function) -> dict[str, Any]:
    """Return the compile options for functions derived from a function.

    Only a traced function has options; a bound method or a `functools.partial` has the options of its function.
    """
    while isinstance(fun, functools.partial | types.MethodType):
        fun = fun.func if isinstance(fun, functools.partial) else fun.__func__
    return fun.options if isinstance(fun, Traced) else {}


def statics(fun: Function) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the positions and the names of the static arguments of a function."""
    if not isinstance(fun, Traced):
        return (), ()
    return tuple(fun.binder.static_nums), tuple(fun.binder.static_names)


def _has_var_positional(body: Function) -> bool:
    return any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(body).parameters.values())
