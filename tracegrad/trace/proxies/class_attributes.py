"""Read class attributes of objects from outside: properties and descriptors of user classes."""

from __future__ import annotations

import copy
import copyreg
import functools
import sys
import types
from collections import UserDict
from collections.abc import Callable
from typing import Any

from tracegrad.trace.proxies.namespace_proxies import EMPTY
from tracegrad.trace.sources.class_patching import dispatched, genuine, hook
from tracegrad.trace.sources.code_origin import is_user_code, is_user_file
from tracegrad.trace.sources.sources import Attribute, Item, Source, Static
from tracegrad.trace.values.container_proxies import LentDict

__all__ = [
    "LABELS", "Written", "another", "assume_no_own", "data_names", "descriptor", "dict_of", "getter", "is_dict_of",
    "is_of_python", "lend_dict", "of_class", "of_python", "own", "runs_code", "static", "writes_of",
]  # fmt: skip

_get = object.__getattribute__


def static(cls: type, name: str) -> Any:
    """The raw attribute of a class or its bases under a name; EMPTY if there is none."""
    return genuine(next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), EMPTY))


def of_class(owner: Any, name: str) -> Source:
    """The raw class attribute of the object behind a shadow."""
    return Attribute(Attribute(_get(owner, "_source"), "__class__"), name)


def getter(owner: Any, real: Any, name: str, found: Any) -> Any:
    """The function that computes the attribute, if the class has a property or a user-defined descriptor for it."""
    world = _get(owner, "_world")
    if isinstance(found, property) and found.fget is not None:
        world.assume(of_class(owner, name), "is", found)
        return functools.partial(world.adopt(found.fget), owner)
    if type(found) is functools.cached_property and name not in getattr(real, "__dict__", ()):
        world.assume(of_class(owner, name), "is", found)
        assume_no_own(owner, real, name)
        return functools.partial(_computed_once, owner, name, world.adopt(found.func))
    if type(found) is functools.singledispatchmethod and name not in getattr(real, "__dict__", ()):
        place = Static(type(real), name).inherited()
        world.inherits(type(real), place)
        world.assume(place, "is", found)
        assume_no_own(owner, real, name)
        return functools.partial(dispatched, found, owner, type(real))
    get = hook(type(found), "__get__")
    if get is None or (name in getattr(real, "__dict__", ()) and not _is_data(found)):
        return None
    if not _is_data(found):
        assume_no_own(owner, real, name)
    return functools.partial(world.adopt(get), descriptor(owner, name, found), owner, type(real))


def assume_no_own(owner: Any, real: Any, name: str) -> None:
    """Guard that the object behind a shadow has no instance attribute that would hide the class attribute."""
    if hasattr(real, "__dict__"):
        _get(owner, "_world").assume(own(owner, name), "absent", None)


def own(owner: Any, name: str) -> Source:
    """The instance attribute of the object behind a shadow, without its class."""
    return Item(Attribute(_get(owner, "_source"), "__dict__"), name)


# -- special names of Python ------------------------------------------------------------------------------------------
# The metadata that Python itself stores in functions and classes; it is assumed not to change.
LABELS = {
    *vars(type("_", (), {})), "__abstractmethods__", "__annotations__", "__class_getitem__", "__dataclass_fields__",
    "__dataclass_params__", "__isabstractmethod__", "__match_args__", "__orig_bases__", "__orig_class__",
    "__parameters__", "__signature__", "__slots__", "__subclasshook__", "__type_params__",
}  # fmt: skip
_OF_USER_DICT = UserDict.__len__.__code__.co_filename
# The attribute methods of `object`, which must read and write the shadow.
_OF_ATTRIBUTES = ("__delattr__", "__getattribute__", "__setattr__")
# The methods of `object` that read all attributes at once; they would bypass the shadow.
_OF_STATES = ("__dir__", "__getstate__", "__reduce__", "__reduce_ex__", "__sizeof__")


def _is_copied_by_dict(cls: type) -> bool:
    """Whether `copy` makes a new object of the class with the `__dict__` of the original."""
    if not cls.__dictoffset__ or copyreg._slotnames(cls):  # type: ignore[attr-defined]
        return False
    own = ("__reduce__", "__reduce_ex__", "__getstate__")
    return all(getattr(cls, x, None) is getattr(object, x, None) for x in own) and not any(
        hasattr(cls, x) for x in ("__getnewargs__", "__getnewargs_ex__", "__setstate__")
    )


def _state(owner: Any) -> dict[str, Any] | None:
    return {**owner.__dict__} or None


def _reduced(owner: Any, protocol: Any) -> Any:
    return copyreg.__newobj__, (type(_get(owner, "_real")),), _state(owner)  # type: ignore[attr-defined]


_REDUCED: dict[str, Callable[..., Any]] = {"__getstate__": _state, "__reduce_ex__": _reduced}


def is_of_python(owner: Any, name: str) -> bool:
    """Whether an attribute name of an outside object has Python's own meaning; other names of that form, such as
    `__wrapped__`, are user attributes."""
    if not (name.startswith("__") and name.endswith("__")):
        return False
    real = _get(owner, "_real")
    if name in getattr(real, "__dict__", ()):
        return False
    has = next((c for c in type(real).__mro__ if name in vars(c)), None)
    if has is None or name in vars(_get(owner, "__class__")):
        return has is not None
    return name in LABELS or not is_user_code(has)


def of_python(owner: Any, name: str) -> Any:
    """The value of an attribute name with Python's own meaning, for the shadow of an object; any attribute after the
    end of the trace."""
    world, real, cls = _get(owner, "_world"), _get(owner, "_real"), _get(owner, "__class__")
    if not world.open:
        return getattr(real, name)
    asks = sys._getframe(2).f_code.co_filename
    if name == "__class__":
        world.assume(Attribute(_get(owner, "_source"), name), "is", type(real))
        if asks == _OF_USER_DICT or is_user_file(asks):  # user code may make instances, or call methods
            world.natives.note(type(real))
    if asks == copy.__file__ and name in ("__getstate__", "__reduce_ex__") and _is_copied_by_dict(type(real)):
        return functools.partial(_REDUCED[name], owner)
    if name in _OF_STATES:
        raise world.builder.gives_up(f"{name} of {_get(owner, '_source')} reads all that it holds; use vars(x)")
    own = static(cls, name) if name in _OF_ATTRIBUTES else vars(cls).get(name)
    return types.MethodType(own, owner) if isinstance(own, types.FunctionType) else getattr(real, name)


# -- the `__dict__` of an object ---------------------------------------------------------------------------------------
class Written(dict[str, Any]):
    """Writes to the shadow of an object: its own `__dict__`, unless traced code has assigned another one."""


def another(owner: Any, name: str) -> BaseException:
    """The exception that ends the trace if traced code assigns the `__dict__` of an object, which may be shared, or its
    `__class__`, which changes the meaning of all later accesses."""
    instead = "assign its items instead" if name == "__dict__" else "make another object instead"
    what = f"the {name} of {_get(owner, '_source')} is assigned; {instead}"
    failure: BaseException = _get(owner, "_world").builder.gives_up(what)
    return failure


def lend_dict(owner: Any) -> Any:
    """A proxy of the `__dict__` of the object behind a shadow, which sees all later writes."""
    source = Attribute(_get(owner, "_source"), "__dict__")
    lent = _get(owner, "_world").translate(_get(owner, "_real").__dict__, source)
    is_dict_of(lent, owner)
    return lent


def is_dict_of(lent: Any, owner: Any) -> None:
    """Record that `lent` is the proxy of the `__dict__` of the object behind a shadow, from any source."""
    _get(owner, "_known")["__dict__"] = lent
    _move(owner, lent)
    if isinstance(lent, LentDict):
        lent._loan.behind = functools.partial(_move, owner, lent)
        place, own_place = lent._loan.source, Attribute(_get(owner, "_source"), "__dict__")
        if place.key != own_place.key:
            for each in (place, own_place):
                _get(owner, "_world").assume(each, "is", lent._loan.real)


def dict_of(owner: Any) -> Any:
    """The `__dict__` of the object behind a shadow; None if it has none."""
    real = _get(owner, "_real")
    return real.__dict__ if type(real).__dictoffset__ else None


def writes_of(owner: Any) -> Any:
    """The writes to the shadow of an object, without the writes in the `__dict__` proxy."""
    writes = _get(owner, "__dict__")
    if _get(owner, "_world").open:
        if type(writes) is not Written:
            raise another(owner, "__dict__")
        if writes and "__dict__" in _get(owner, "_known"):
            _move(owner, _get(owner, "_known")["__dict__"])
    return writes


def _move(owner: Any, lent: Any) -> None:
    """Move writes of `object.__setattr__` on a shadow into the `__dict__` proxy of its object."""
    writes = _get(owner, "__dict__")
    several = list(writes.items())
    writes.clear()
    for k, x in several:
        lent.pop(k, None) if x is EMPTY else lent.__setitem__(k, x)


def runs_code(found: Any) -> bool:
    """Whether reading a class attribute runs user code."""
    return type(found) is functools.cached_property or hook(type(found), "__get__") is not None


def _computed_once(owner: Any, name: str, compute: Any) -> Any:
    """The value of a `cached_property`, which is then stored in the object."""
    value = compute(owner)
    lent = _get(owner, "_known").get("__dict__")
    (_get(owner, "__dict__") if lent is None else lent)[name] = value
    return value


def _is_data(x: Any) -> bool:
    """Whether a property or a user-defined descriptor takes precedence over instance attributes (data descriptor)."""
    asked = hook(type(x), "__set__") is not None or hook(type(x), "__delete__") is not None
    return asked or (isinstance(x, property) and x.fget is not None)


def descriptor(owner: Any, name: str, found: Any) -> Any:
    """The shadow of a descriptor in the class of an object."""
    world, place = _get(owner, "_world"), Static(type(_get(owner, "_real")), name)
    world.inherits(place.parent, place.inherited())
    return world.translate(found, place.inherited())


def data_names(cls: Any) -> tuple[str, ...]:
    """The names for which the class decides reads and writes (data descriptors)."""
    names = dict.fromkeys(name for c in cls.__mro__ for name in vars(c) if not name.startswith("__"))
    return tuple([name for name in names if _is_data(static(cls, name))])
