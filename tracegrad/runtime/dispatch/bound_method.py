"""Methods of instances: what a traced function is when it is looked up on an instance of the class that it is in."""

from __future__ import annotations

import inspect
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from tracegrad.errors import located
from tracegrad.trace.builder.inlinable import Inlinable
from tracegrad.trace.sources.describe import signature_of
from tracegrad.trace.sources.sources import Weak

__all__ = ["ALONE", "Method"]


class _Counted:
    """Tells how many references there are to an instance that it is looked up on."""

    def __get__(self, instance: Any, owner: Any = None) -> int:
        return sys.getrefcount(instance)


class _Probe:
    count = _Counted()


# As many references `__get__` finds to an instance that nobody else refers to, as in `Model().step(x)`.
ALONE = _Probe().count


class Method(Inlinable):
    """A method of an instance that it does not keep alive."""

    __slots__ = ("reference", "weak")

    def __init__(self, fun: Callable[..., Any], instance: Any, forget: Callable[[Any], None]):
        self.__wrapped__ = fun
        try:
            self.reference: Any = weakref.ref(instance, forget)
            self.weak = True
        except TypeError:  # the class has __slots__ and none for weak references
            self.reference, self.weak = (lambda: instance), False
        signature = signature_of(fun)
        if signature is not None:
            own = list(signature.parameters.values())
            takes_any = bool(own) and own[0].kind is inspect.Parameter.VAR_POSITIONAL  # the instance among others
            self.__signature__ = signature.replace(parameters=own if takes_any else own[1:])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(self.instance, *args, **kwargs)

    @property
    def instance(self) -> Any:
        """The instance; ReferenceError if it is gone."""
        found = self.reference()
        if found is None:
            text = "a traced method does not keep its instance alive, which is gone; keep the instance, not its method"
            raise ReferenceError(located(text))
        return found

    def inlined(self, world: Any) -> Any:
        instance = world.translate(self.instance, Weak(self.reference, "self"), guard=False)
        return types.MethodType(world.inline(self.__wrapped__), instance)
