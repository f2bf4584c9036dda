"""Proxies of functions and classes of packages that are not traced."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from tracegrad import tree
from tracegrad.errors import TraceError, located, lost
from tracegrad.ir import GraphValue
from tracegrad.trace.proxies.logging_proxy import by_value
from tracegrad.trace.random.rejected_reads import only_compared


def opaque_object(world: Any, value: object, package: str) -> object:
    """The stand-in of a class of the package; instances end the trace."""
    name = getattr(value, "__qualname__", type(value).__qualname__)
    refuse = functools.partial(world.builder.abort, f"{name} is of the package {package}, which is opaque")
    if isinstance(value, type):
        return only_compared(value, refuse)
    raise refuse()


def opaque_function(world: Any, fun: types.FunctionType, package: str) -> Callable[..., object]:
    """The stand-in of a function of the package, which may be passed on and not called."""

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not world.open:
            return fun(*args, **kwargs)
        innermost = world.builder.innermost()
        package_text = f"is of the package {package}, which is opaque"
        for x in tree.leaves((args, kwargs)):
            if isinstance(x, GraphValue) and innermost.has_derivative(x.node):
                reason = f"{package_text}, and is given a value that is being differentiated"
                raise lost(fun.__qualname__, reason, "give it stop_gradient(x), or write a rule with custom_vjp")
            if isinstance(x, GraphValue) and not innermost.knows(x):
                raise TraceError(
                    located(f"{fun.__qualname__} {package_text}, and is given a value that is not known yet")
                )
        if world.once:
            return by_value(fun, args, kwargs)
        raise world.builder.abort(f"{fun.__qualname__} {package_text}")

    return call
