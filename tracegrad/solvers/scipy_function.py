"""SciPy functions by name, their bound arguments, and the decorator of their shadows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import LITERALS
from tracegrad.control.operands import inlined
from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api.boolean_mask import known
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops import Carrier, TapeCarrier
from tracegrad.ops.core.op import dispatch_operand
from tracegrad.scipy_api.registry import shadow

Function = Callable[..., Any]


def scipy_function(name: str) -> Any:
    """Return SciPy's own function of a name such as `optimize.root`."""
    package, _, function = name.rpartition(".")
    return getattr(import_module(f"scipy.{package}"), function)


class SolverArguments(dict[str, Any]):
    """Arguments of a SciPy function, bound by name with its defaults.

    A shadow takes out the arguments that it handles itself. The others are the `options` of SciPy's function.
    """

    def __init__(self, name: str, args: Sequence[object], kwargs: Mapping[str, object]):
        self.name, self.api_name = name, f"scipy.{name}"
        self.signature = inspect.signature(self.real)
        inputs = self.signature.bind(*args, **kwargs)
        inputs.apply_defaults()
        super().__init__(inputs.arguments)

    @property
    def real(self) -> Any:
        """SciPy's own function."""
        return scipy_function(self.name)

    def refuse_unusual(self, names: Sequence[str]) -> None:
        """Remove arguments that must have their defaults, as far as this SciPy has them; UnsupportedError for other
        values."""
        for name in [name for name in names if name in self]:
            value, usual = self.pop(name), self.signature.parameters[name].default
            if dispatch_operand((value,)) is not None or (value is not usual and value != usual):
                raise refuse(f"the argument {name}= of {self.api_name}")

    def options(self) -> dict[str, Any]:
        """Return the remaining arguments, except None, as constants."""
        return plain_options(self.api_name, {k: v for k, v in self.items() if v is not None})


def solver(name: str, *usual: str) -> Callable[[Callable[[SolverArguments], Any]], Function]:
    """Register the decorated function of bound arguments as the shadow of a SciPy function that takes functions.

    The arguments `usual` must have their defaults, and are removed.
    """

    def declare(implementation: Callable[[SolverArguments], Any]) -> Function:
        def call(*args: object, **kwargs: object) -> Any:
            inputs = SolverArguments(name, args, kwargs)
            inputs.refuse_unusual(usual)
            return implementation(inputs)

        call.__name__, call.__doc__ = implementation.__name__, implementation.__doc__
        return shadow(f"scipy.{name}", of_functions=True)(call)

    return declare


def arguments_tuple(args: object) -> tuple[Any, ...]:
    """Return the further arguments of a function as a tuple; SciPy also takes a single one."""
    return args if isinstance(args, tuple) else (args,)


def with_args(f: Function, args: object) -> Callable[[Any], Any]:
    """Bind all arguments of `f` except the first."""
    extra_args = arguments_tuple(args)
    return lambda x: inlined(f)(x, *extra_args)


_PLAIN = (*LITERALS, str, np.generic, np.ndarray)


def plain_options(api_name: str, options: Mapping[str, object]) -> dict[str, Any]:
    """Return options with constant values; UnsupportedError for functions and traced values."""
    table = {}
    for name, value in options.items():
        leaves, structure = tree.flatten(value)
        table[name] = tree.unflatten(structure, [_plain(api_name, name, x) for x in leaves])
    return table


def _plain(api_name: str, name: str, x: object) -> Any:
    traced = isinstance(x, Carrier)
    result = known(x) if traced and not isinstance(x, TapeCarrier) else x
    if not isinstance(result, _PLAIN) and (traced or x is not None):
        kind = "traced value" if traced else type(x).__name__
        raise UnsupportedError(located(f"{api_name} in traced code takes no {kind} for {name}="))
    return result
