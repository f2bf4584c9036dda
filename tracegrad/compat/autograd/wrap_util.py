"""Lift operators on functions of one argument to operators on functions of several arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.ops import Carrier

__all__ = ["get_doc", "get_name", "split_function", "unary_to_nary", "wraps"]

Function = Callable[..., Any]


def get_name(f: Any) -> str:
    """Return the name of a function."""
    return getattr(f, "__name__", "[unknown name]")


def get_doc(f: Any) -> str:
    """Return the docstring of a function."""
    return getattr(f, "__doc__", "") or ""


def wraps(fun: Any, namestr: str = "{fun}", docstr: str = "{doc}", **kwargs: object) -> Callable[[Any], Any]:
    """Return a decorator that names a function after another one."""

    def named(f: Callable[..., object]) -> Any:
        try:
            f.__name__ = namestr.format(fun=get_name(fun), **kwargs)
            f.__doc__ = docstr.format(fun=get_name(fun), doc=get_doc(fun), **kwargs)
        except (AttributeError, TypeError, LookupError, ValueError):  # the callable stays unnamed
            pass
        return f

    return named


def split_function(fun: Function) -> tuple[Function, Any]:
    """Return a function `(x, rest)`, and the `rest` with which it is `fun`."""
    results: tuple[Function, Any] | None = getattr(fun, "parts", None)
    return results or (lambda x, rest: fun(x), ())


def _is_value(x: Any) -> bool:
    if isinstance(x, Carrier) or type(x) in (int, float, complex):
        return True
    return (type(x) is np.ndarray or isinstance(x, np.generic)) and x.dtype.kind in "fciub"


def unary_to_nary(unary_operator: Function) -> Function:
    """Lift an operator `(function, x) -> result` to functions of several arguments.

    The new operator takes a function and `argnum`, the positions of one argument or of a tuple of them. It returns a
    function with the same arguments, which applies the old operator to the function of that argument, with all others
    fixed.

    >>> at = unary_to_nary(lambda f, x: (f(x), x))
    >>> at(lambda a, b: a - b, 1)(10, 3)
    (7, 3)
    """

    def nary_operator(fun: Function, argnum: int | Sequence[int] = 0, *extra: object, **named: object) -> Function:
        if type(argnum) not in (int, tuple, list):
            raise AssertionError(f"argnum must be an int, or a tuple or list of ints, got {argnum!r}")

        def nary_f(*args: object, **kwargs: object) -> Any:
            is_tuple = not isinstance(argnum, int)
            argnums: Sequence[int] = (argnum,) if isinstance(argnum, int) else argnum
            positions = [i % len(args) if -len(args) <= i < 0 else i for i in argnums]
            x = tuple([args[i] for i in positions]) if is_tuple else args[positions[0]]
            # Other arrays and numbers are arguments of the compiled function, which is the same for all their values.
            others = [i for i, v in enumerate(args) if i not in positions and _is_value(v)]
            held = [None if i in others or i in positions else v for i, v in enumerate(args)]
            passed = {name: v for name, v in kwargs.items() if _is_value(v)}
            options = {name: v for name, v in kwargs.items() if name not in passed}
            rest = [args[i] for i in others], passed

            def of_rest(x: Any, rest: Any) -> Any:
                inputs = list(held)
                for i, v in zip(positions, x if is_tuple else (x,)):
                    inputs[i] = v
                for i, v in zip(others, rest[0]):
                    inputs[i] = v
                return fun(*inputs, **options, **rest[1])

            def unary_f(x: object) -> object:
                return of_rest(x, rest)

            unary_f.parts = wraps(fun)(of_rest), rest  # type: ignore[attr-defined]
            return unary_operator(wraps(fun)(unary_f), x, *extra, **named)

        op = get_name(unary_operator)
        text = (
            "    {op} of function {fun} with respect to argument number {argnum}. Takes the\n"
            "    same arguments as {fun} but returns the {op}.\n"
        )
        return wraps(fun, "{op}_of_{fun}_wrt_argnum_{argnum}", text, op=op, argnum=argnum)(nary_f)  # type: ignore[no-any-return]

    return wraps(unary_operator)(nary_operator)  # type: ignore[no-any-return]
