"""Registry of PyTorch's functions and methods: each is one function over ops, under its names.

A function takes ndarrays, numbers or carriers, and returns the results of the ops. `axis` is another name for `dim`,
and `keepdims` for `keepdim`. A Tensor method is the same function with the Tensor as its first argument.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tracegrad.torch.functions.core.parameter_table import FUNCTION_DOCS
from tracegrad.typing import Rule

Function = Callable[..., Any]

FUNCTIONS: dict[str, Function] = {}
METHODS: dict[str, Function] = {}
# Methods that are one op of one operand, and the name of their node if it is not the op's.
ONE_OP: dict[str, tuple[Any, str]] = {}
# Methods that have a form with an underscore, which updates the Tensor in place.
IN_PLACE: set[str] = set()

_SAME = {"axis": "dim", "keepdims": "keepdim"}


def with_aliases(fn: Rule) -> Rule:
    """Wrap `fn` so that `dim` and `keepdim` may also be passed by their NumPy names."""
    parameters = inspect.signature(fn).parameters
    same = {other: name for other, name in _SAME.items() if name in parameters and other not in parameters}
    if not same:
        return fn

    @functools.wraps(fn)
    def call(*args: object, **kwargs: object) -> object:
        if kwargs:
            for other, name in same.items():
                if other in kwargs:
                    if name in kwargs:
                        raise TypeError(f"{fn.__name__}() got both {name}= and {other}=, which mean the same")
                    kwargs[name] = kwargs.pop(other)
        return fn(*args, **kwargs)

    return call  # type: ignore[return-value]


def function(*names: str, in_place: bool = False, methods: bool = True) -> Callable[[Rule], Rule]:
    """Register a function under `names`, as a function of the package and, unless PyTorch has none, as a method."""

    return _registering(names, (FUNCTIONS, METHODS) if methods else (FUNCTIONS,), in_place)


def method(*names: str, in_place: bool = False) -> Callable[[Rule], Rule]:
    """Register a function under `names` as a method only."""

    return _registering(names, (METHODS,), in_place)


def _registering(
    names: tuple[str, ...], tables: tuple[dict[str, Function], ...], in_place: bool
) -> Callable[[Rule], Rule]:
    def declare(fn: Rule) -> Rule:
        fn.__doc__ = FUNCTION_DOCS.numpydoc(fn)
        result = with_aliases(fn)
        for table in tables:
            table.update(dict.fromkeys(names, result))
        if in_place:
            IN_PLACE.update(names)
        return result

    return declare
