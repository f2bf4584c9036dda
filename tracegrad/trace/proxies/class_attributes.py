"""Read class attributes of objects from outside: properties and descriptors of user classes."""

from __future__ import annotations

import copy
import copyreg
import functools
import types
from collections import UserDict
from collections.abc import Callable
from typing import Any

from tracegrad.cpython.frames import frame_at
from tracegrad.cpython.object_layout import has_dict
from tracegrad.trace.proxies.namespace_proxies import EMPTY
from tracegrad.trace.sources.class_patching import dispatched, genuine, hook
from tracegrad.trace.sources.code_origin import is_user_code, is_user_file
from tracegrad.trace.sources.sources import Attribute, Item, Source, Static
from tracegrad.trace.values.container_proxies import DictProxy

_get = object.__getattribute__


def static(cls: type, name: str) -> Any:
    """The raw attribute of a class or its bases under a name; EMPTY if there is none."""
    return genuine(next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), EMPTY))


def of_class(owner: object, name: str) -> Source:
    """The raw class attribute of the object behind a shadow."""
    return Attribute(Attribute(_get(owner, "_source"), "__class__"), name)


def getter(owner: object, real: object, name: str, value: object) -> Any:
    """The function that computes the attribute, if the class has a property or a user-defined descriptor for it."""
    world = _get(owner, "_world")
    if isinstance(value, property) and value.fget is not None:
        world.assume(of_class(owner, name), "is", value)
        return functools.partial(world.adopt(value.fget), owner)
    if type(value) is functools.cached_property and name not in getattr(real, "__dict__", ()):
        world.assume(of_class(owner, name), "is", value)
        assume_no_instance_value(owner, real, name)
        return functools.partial(_computed_once, owner, name, world.adopt(value.func))
    if type(value) is functools.singledispatchmethod and name not in getattr(real, "__dict__", ()):
        source = Static(type(real), name).inherited()
        world.inherits(type(real), source)
        world.assume(source, "is", value)
        assume_no_instance_value(owner, real, name)
        return functools.partial(dispatched, value, owner, type(real))
    get = hook(type(value), "__get__")
    if get is None or (name in getattr(real, "__dict__", ()) and not _is_data(value)):
        return None
    if not _is_data(value):
        assume_no_instance_value(owner, real, name)
    return functools.partial(world.adopt(get), descriptor(owner, name, value), owner, type(real))


def assume_no_instance_value(owner: object, real: object, name: str) -> None:
    """Guard that the object behind a shadow has no instance attribute that would hide the class attribute."""
    if hasattr(real, "__dict__"):
        _get(owner, "_world").assume(instance_attribute(owner, name), "absent", None)


def instance_attribute(owner: object, name: str) -> Source:
    """The instance attribute of the object behind a shadow, without its class."""
    return Item(Attribute(_get(owner, "_source"), "__dict__"), name)


# -- special names of Python ------------------------------------------------------------------------------------------
# The members of a class that make its annotations, since Python 3.14 when they are first read.
ANNOTATION_MEMBERS = frozenset(["__annotate__", "__annotate_func__", "__annotations_cache__", "__classdictcell__"])
# The metadata that Python itself stores in functions and classes; it is assumed not to change.
LABELS = {
    *vars(type("_", (), {})),
    *ANNOTATION_MEMBERS,
    "__abstractmethods__",
    "__annotations__",
    "__class_getitem__",
    "__dataclass_fields__",
    "__dataclass_params__",
    "__isabstractmethod__",
    "__match_args__",
    "__orig_bases__",
    "__orig_class__",
    "__parameters__",
    "__signature__",
    "__slots__",
    "__subclasshook__",
    "__type_params__",
}
_OF_USER_DICT = UserDict.__len__.__code__.co_filename
# The attribute methods of `object`, which must read and write the shadow.
_OF_ATTRIBUTES = ("__delattr__", "__getattribute__", "__setattr__")
# The methods of `object` that read all attributes at once; they would bypass the shadow.
_OF_STATES = ("__dir__", "__getstate__", "__reduce__", "__reduce_ex__", "__sizeof__")


def _is_copied_by_dict(cls: type) -> bool:
    """Whether `copy` makes a new object of the class with the `__dict__` of the original."""
    if not has_dict(cls) or copyreg._slotnames(cls):  # type: ignore[attr-defined]
        return False
    methods = ("__reduce__", "__reduce_ex__", "__getstate__")
    return all(getattr(cls, x, None) is getattr(object, x, None) for x in methods) and not any(
        hasattr(cls, x) for x in ("__getnewargs__", "__getnewargs_ex__", "__setstate__")
    )


def _state(owner: object) -> dict[str, Any] | None:
    return {**owner.__dict__} or None


def _reduced(owner: object, protocol: object) -> object:
    return copyreg.__newobj__, (type(_get(owner, "_real")),), _state(owner)  # type: ignore[attr-defined]


_REDUCED: dict[str, Callable[..., Any]] = {"__getstate__": _state, "__reduce_ex__": _reduced}


def is_of_python(owner: object, name: str) -> bool:
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


def of_python(owner: object, name: str) -> object:
    """The value of an attribute name with Python's own meaning, for the shadow of an object; any attribute after the
    end of the trace."""
    world, real, cls = _get(owner, "_world"), _get(owner, "_real"), _get(owner, "__class__")
    if not world.open:
        return getattr(real, name)
    caller_file = frame_at(2).f_code.co_filename
    if name == "__class__":
        world.assume(Attribute(_get(owner, "_source"), name), "is", type(real))
        if caller_file == _OF_USER_DICT or is_user_file(caller_file):  # user code may make instances, or call methods
            world.natives.note(type(real))
    if caller_file == copy.__file__ and name in ("__getstate__", "__reduce_ex__") and _is_copied_by_dict(type(real)):
        return functools.partial(_REDUCED[name], owner)
    if name in _OF_STATES:
        raise world.builder.abort(f"{name} of {_get(owner, '_source')} reads all that it holds; use vars(x)")
    class_value = static(cls, name) if name in _OF_ATTRIBUTES else vars(cls).get(name)
    return types.MethodType(class_value, owner) if isinstance(class_value, types.FunctionType) else getattr(real, name)


# -- the `__dict__` of an object ---------------------------------------------------------------------------------------
class WriteBuffer(dict[str, Any]):
    """Writes to the shadow of an object: its own `__dict__`, unless traced code has assigned another one."""


def another(owner: object, name: str) -> BaseException:
    """The exception that ends the trace if traced code assigns the `__dict__` of an object, which may be shared, or its
    `__class__`, which changes the meaning of all later accesses."""
    instead = "assign its items instead" if name == "__dict__" else "make another object instead"
    description = f"the {name} of {_get(owner, '_source')} is assigned; {instead}"
    failure: BaseException = _get(owner, "_world").builder.abort(description)
    return failure


def proxy_of_dict(owner: object) -> object:
    """A proxy of the `__dict__` of the object behind a shadow, which sees all later writes."""
    source = Attribute(_get(owner, "_source"), "__dict__")
    proxy = _get(owner, "_world").translate(_get(owner, "_real").__dict__, source)
    is_dict_of(proxy, owner)
    return proxy


def is_dict_of(proxy: object, owner: object) -> None:
    """Record that `proxy` is the proxy of the `__dict__` of the object behind a shadow, from any source."""
    _get(owner, "_known")["__dict__"] = proxy
    _move(owner, proxy)
    if isinstance(proxy, DictProxy):
        proxy._state.flush_attributes = functools.partial(_move, owner, proxy)
        source, own_source = proxy._state.source, Attribute(_get(owner, "_source"), "__dict__")
        if source.key != own_source.key:
            for each in (source, own_source):
                _get(owner, "_world").assume(each, "is", proxy._state.real)


def dict_of(owner: object) -> object:
    """The `__dict__` of the object behind a shadow; None if it has none."""
    real = _get(owner, "_real")
    return real.__dict__ if has_dict(type(real)) else None


def writes_of(owner: object) -> Any:
    """The writes to the shadow of an object, without the writes in the `__dict__` proxy."""
    writes = _get(owner, "__dict__")
    if _get(owner, "_world").open:
        if type(writes) is not WriteBuffer:
            raise another(owner, "__dict__")
        if writes and "__dict__" in _get(owner, "_known"):
            _move(owner, _get(owner, "_known")["__dict__"])
    return writes


def _move(owner: Any, proxy: Any) -> None:
    """Move writes of `object.__setattr__` on a shadow into the `__dict__` proxy of its object."""
    writes = _get(owner, "__dict__")
    items = list(writes.items())
    writes.clear()
    for k, x in items:
        proxy.pop(k, None) if x is EMPTY else proxy.__setitem__(k, x)


def runs_code(value: object) -> bool:
    """Whether reading a class attribute runs user code."""
    return type(value) is functools.cached_property or hook(type(value), "__get__") is not None


def _computed_once(owner: object, name: str, compute: Callable[..., object]) -> object:
    """The value of a `cached_property`, which is then stored in the object."""
    value = compute(owner)
    proxy = _get(owner, "_known").get("__dict__")
    (_get(owner, "__dict__") if proxy is None else proxy)[name] = value
    return value


def _is_data(x: object) -> bool:
    """Whether a property or a user-defined descriptor takes precedence over instance attributes (data descriptor)."""
    overrides_write = hook(type(x), "__set__") is not None or hook(type(x), "__delete__") is not None
    return overrides_write or (isinstance(x, property) and x.fget is not None)


def descriptor(owner: object, name: str, value: object) -> Any:
    """The shadow of a descriptor in the class of an object."""
    world, source = _get(owner, "_world"), Static(type(_get(owner, "_real")), name)
    world.inherits(source.parent, source.inherited())
    return world.translate(value, source.inherited())


def data_names(cls: type) -> tuple[str, ...]:
    """The names for which the class decides reads and writes (data descriptors)."""
    names = dict.fromkeys(name for c in cls.__mro__ for name in vars(c) if not name.startswith("__"))
    return tuple([name for name in names if _is_data(static(cls, name))])
