"""What the class of an object from outside has for its attributes: properties, and descriptors of the user's."""

from __future__ import annotations

import functools
import types
from typing import Any

from tracegrad.trace.classes import genuine, hook
from tracegrad.trace.namespaces import EMPTY
from tracegrad.trace.sources import Attribute, Source, Static

__all__ = ["data_names", "descriptor", "getter", "of_class", "static"]

_get = object.__getattribute__


def static(cls: type, name: str) -> Any:
    """What a class has under a name, itself or from a base, as it is; EMPTY for nothing."""
    return genuine(next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), EMPTY))


def of_class(owner: Any, name: str) -> Source:
    """What the class of the object behind a shadow has under a name."""
    return Attribute(Attribute(_get(owner, "_source"), "__class__"), name)


def getter(owner: Any, real: Any, name: str, found: Any) -> Any:
    """What computes the attribute, if the class of the object has a property or a descriptor of the user's for it."""
    world = _get(owner, "_world")
    if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
        world.assume(of_class(owner, name), "is", found)
        return functools.partial(world.adopt(found.fget), owner)
    get = hook(type(found), "__get__")
    if get is None or (name in getattr(real, "__dict__", ()) and not _is_data(found)):
        return None
    return functools.partial(world.adopt(get), descriptor(owner, name, found), owner, type(real))


def _is_data(x: Any) -> bool:
    """Whether a property or a descriptor of the user's is asked before what the object itself has."""
    asked = hook(type(x), "__set__") is not None or hook(type(x), "__delete__") is not None
    return asked or (isinstance(x, property) and isinstance(x.fget, types.FunctionType))


def descriptor(owner: Any, name: str, found: Any) -> Any:
    """The shadow of what the class of an object has for an attribute."""
    world, place = _get(owner, "_world"), Static(type(_get(owner, "_real")), name)
    world.inherits(place.parent, place.inherited())
    return world.translate(found, place.inherited())


def data_names(cls: Any) -> tuple[str, ...]:
    """The names under which the class decides what is read and written, whatever its objects hold."""
    names = dict.fromkeys(name for c in cls.__mro__ for name in vars(c) if not name.startswith("__"))
    return tuple([name for name in names if _is_data(static(cls, name))])
