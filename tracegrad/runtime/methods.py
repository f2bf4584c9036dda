"""Methods of instances: what a traced function is when it is looked up on an instance of the class that it is in."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from tracegrad.trace.describe import signature_of
from tracegrad.trace.inline import Inlinable
from tracegrad.trace.sources import Weak

__all__ = ["Method"]


class Method(Inlinable):
    """A method of an instance that it does not keep alive."""

    own = frozenset(["reference", "weak"])

    def __init__(self, fun: Callable[..., Any], instance: Any, forget: Callable[[Any], None]):
        self.__wrapped__ = fun
        try:
            self.reference: Any = weakref.ref(instance, forget)
            self.weak = True
        except TypeError:  # the class has __slots__ and none for weak references
            self.reference, self.weak = (lambda: instance), False
        signature = signature_of(fun)
        if signature is not None:
            self.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(self.reference(), *args, **kwargs)

    def inlined(self, world: Any) -> Any:
        instance = world.translate(self.reference(), Weak(self.reference, "self"), guard=False)
        return types.MethodType(world.inline(self.__wrapped__), instance)
