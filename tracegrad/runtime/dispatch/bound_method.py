"""Bind a traced function to an instance that it is looked up on (bound traced method)."""

from __future__ import annotations

import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

from tracegrad.errors import located
from tracegrad.trace.builder.inlinable import Inlinable
from tracegrad.trace.sources.describe import signature_of
from tracegrad.trace.sources.sources import Weak


class BoundMethod(Inlinable):
    """A bound method with a weak reference to its instance."""

    __slots__ = ("reference", "weak")

    def __init__(self, fun: Callable[..., Any], instance: Any, forget: Callable[..., object]):
        self.__wrapped__ = fun
        try:
            self.reference: Any = weakref.ref(instance, forget)
            self.weak = True
        except TypeError:  # the class has __slots__ without __weakref__
            self.reference, self.weak = (lambda: instance), False
        signature = signature_of(fun)
        if signature is not None:
            parameters = list(signature.parameters.values())
            has_varargs = (
                bool(parameters) and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL
            )  # *args includes the instance
            self.__signature__ = signature.replace(parameters=parameters if has_varargs else parameters[1:])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(self.instance, *args, **kwargs)

    @property
    def instance(self) -> Any:
        """The instance; ReferenceError if it is gone."""
        result = self.reference()
        if result is None:
            text = "a traced method does not keep its instance alive, which is gone; keep the instance, not its method"
            raise ReferenceError(located(text))
        return result

    def inlined(self, world: Any) -> Any:
        instance = world.translate(self.instance, Weak(self.reference, "self"), guard=False)
        return types.MethodType(world.inline(self.__wrapped__), instance)
