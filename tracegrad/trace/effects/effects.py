"""Record side effects of a traced call and replay them at each call.

During tracing nothing outside changes: writes stay in proxies, in copied containers and in tracers
(`tracegrad.trace.world.write_log`). Each call repeats the writes. It first computes all values and reads all target
objects, then writes, arrays first. The result is the same as Python's, even if two attributes are swapped.

No signal handler runs between two writes: CPython runs handlers after calls, and most effects are statements without a
call.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import keyword
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from numpy.lib.array_utils import byte_bounds

from tracegrad.ops import Carrier
from tracegrad.trace.effects.result_template import (
    ConstantTemplate,
    ContainerTemplate,
    ResultTemplate,
    TensorOutput,
    attributes,
)
from tracegrad.trace.sources.code_origin import is_user_code
from tracegrad.trace.sources.sources import Attribute, Child, ClosureCell, Fixed, Item, ModuleGlobal, Source, Static
from tracegrad.trace.values.container_proxies import Shadowed, real_key
from tracegrad.trace.values.tracer import Tracer
from tracegrad.tree import children, is_node
from tracegrad.tree.registry import KINDS
from tracegrad.utils.deferred_signals import uninterrupted
from tracegrad.utils.source import define

if TYPE_CHECKING:
    import numpy as np


Template = Callable[[Any], ResultTemplate]

# The statement of each kind of effect, with named fields.
# `tracegrad.trace.driver.tensors` adds the kind for Tensors.
STATEMENTS = {
    "data": "{holder}[...] = {value}",
    "field": "{holder}.{name} = {value}",
    "attribute": "set_attribute({holder}, {key}, {value})",
    "no attribute": "delete_attribute({holder}, {key})",
    "static": "set_attribute({holder}, {key}, {value})",
    "no static": "delete_attribute({holder}, {key})",
    "item": "{holder}[{key}] = {value}",
    "no item": "{holder}.pop({key}, None)",
    "extended": "{holder} += {value}",
    "added": "{holder} |= {{*{value}}}",
    "list": "{holder}[:] = {value}",
    "contents": "{holder}.clear(); {holder}.update({value})",
    "queue": "{holder}.clear(); {holder}.extend({value})",
    "cell": "{holder}.cell_contents = {value}",
    "beneath": "change_beneath({holder}, {key}, {value})",
    "state": "{holder}.to({value})",
}


def set_attribute(x: object, name: str, value: object) -> None:
    """Set an attribute of an object, a class or a traced function. A Python `__setattr__` of its class has its own
    effects."""
    cls: Any = type(x)
    _in_c(cls, "__setattr__")(x, name, value)


def delete_attribute(x: object, name: str) -> None:
    """Delete an attribute if it exists: it may have been set in the same call."""
    cls: Any = type(x)
    with contextlib.suppress(AttributeError):
        _in_c(cls, "__delattr__")(x, name)


@functools.lru_cache(maxsize=1024)
def _in_c(cls: type, name: str) -> Any:
    """The C implementation of a method for a class: `object.__setattr__` refuses objects of other C classes."""
    definitions = [vars(c)[name] for c in cls.__mro__ if name in vars(c)]
    return next(x for x in definitions if isinstance(x, types.WrapperDescriptorType))


def _change_beneath(x: Any, change: tuple[str, Any], value: Any) -> None:
    """Apply an effect to a container of a user class without running its own methods again."""
    kind, key = change
    cls: Any = next(each for each in _CONTAINERS if isinstance(x, each))
    if kind == "item":
        cls.__setitem__(x, key, value)
    elif kind == "no item":
        cls.pop(x, key, None)
    elif kind in ("extended", "added"):
        (set.update if cls is set else cls.__iadd__)(x, value)
    else:
        cls.clear(x)
        for each in value.items() if isinstance(value, dict) else ():
            cls.__setitem__(x, *each)
        if not isinstance(value, dict):
            (set.update if cls is set else cls.__iadd__)(x, value)


_CONTAINERS: tuple[type, ...] = (list, deque, OrderedDict, dict, set, bytearray)
NAMES = {
    "set_attribute": set_attribute,
    "delete_attribute": delete_attribute,
    "change_beneath": _change_beneath,
}


class Effect:
    """A side effect of this `kind` that each call repeats on the object at `holder`: at `key`, with the value of
    `template`."""

    __slots__ = ("holder", "key", "kind", "template")

    def __init__(self, kind: str, holder: Source, key: Any = None, template: ResultTemplate | None = None):
        self.kind, self.holder, self.key = kind, holder, key
        self.template = ConstantTemplate(None) if template is None else template

    @property
    def location(self) -> Hashable:
        """The key of the source that it writes to."""
        if self.kind == "item":
            space = isinstance(self.holder, Fixed)  # a namespace of globals
            return ModuleGlobal(self.holder.parent, self.key).key if space else Item(self.holder, self.key).key
        if self.kind == "cell":
            return ClosureCell(self.holder.parent, self.holder.name).key
        if self.kind == "static":
            return attribute_source(self.holder.read(), self.key).key
        return Attribute(self.holder, self.key).key if self.kind in ("field", "attribute") else self.holder.key

    @property
    def memory(self) -> Source | None:
        """The source of the array that it writes into, if any."""
        if self.kind == "tensor":
            return Attribute(self.holder, "array")
        return self.holder if self.kind == "data" else None

    @property
    def recorded(self) -> bool | None:
        """Whether the new value that it writes into a Tensor has a derivative; None if it writes no such value."""
        return self.template.root >= 0 if self.kind == "tensor" and isinstance(self.template, TensorOutput) else None

    def text(self, holder: str, value: str, name: Callable[..., object]) -> str:
        """The statement for a holder and a value with these names."""
        key = repr(self.key) if type(self.key) in (str, int) else name(self.key)
        return STATEMENTS[self.kind].format(holder=holder, value=value, key=key, name=self.key)


def attribute_source(x: object, name: str) -> Source:
    """The source of an attribute of a class or of a traced function."""
    return Static(x, name) if isinstance(x, type) else Attribute(fixed(x), name)


def fixed(x: object) -> Fixed:
    """The constant source of a class or function."""
    return Fixed(x, getattr(x, "__name__", "the function"))


def statements(effects: Sequence[Effect], name: Callable[..., object], following: Sequence[str] = ()) -> list[str]:
    """The statements that write the effects to `holder_0`, ... with the values `value_0`, ...; no signal handler runs
    between them. `name` gives the names of objects. Among the statements `following`, only the last may call a
    function."""
    results = [*[effect.text(f"holder_{i}", f"value_{i}", name) for i, effect in enumerate(effects)], *following]
    code = ";".join([STATEMENTS[effect.kind] for effect in effects] + ["-"] * bool(following))
    if ";" not in code or "(" not in code:
        return results
    return [f"with {name(uninterrupted)}():", *[f"    {text}" for text in results]]


def writer(effects: Sequence[Effect]) -> Callable[[Any, Any], None]:
    """Compile the function that writes these effects, given the holders and the values."""
    space: dict[str, Any] = dict(NAMES)

    def name(x: object) -> str:
        space[f"object_{len(space)}"] = x
        return f"object_{len(space) - 1}"

    names = [", ".join(f"{word}_{i}" for i in range(len(effects))) for word in ("holder", "value")]
    lines = [f"({names[0]},), ({names[1]},) = holders, values", *statements(effects, name)]
    return define("write", "\n    ".join(["def write(holders, values):", *lines]), space, "effects")


def are_disjoint(written: Sequence[Any], arrays: Sequence[Any]) -> bool:
    """Whether the arrays that a call writes to are writable and disjoint from all its other `arrays`; False if one of
    them is not an array."""
    try:
        if not all(x.flags.writeable for x in written):
            return False
        targets = {byte_bounds(x) for x in written}
        bounds = sorted([byte_bounds(x) for x in arrays if x.size])
    except AttributeError:
        return False
    end = end_of_written = 0
    for first, end_of_array in bounds:
        is_written = (first, end_of_array) in targets
        if first < (end if is_written else end_of_written):
            return False
        end = max(end, end_of_array)
        end_of_written = max(end_of_written, end_of_array) if is_written else end_of_written
    return True


# -- copies of containers and objects, which traced code received ----------------------------------------------------
class WatchedCopy:
    """A copy of the container at `source` that traced code received, and its original contents."""

    __slots__ = ("_attributes", "_before", "copy", "source")

    def __init__(self, result: Any, source: Source):
        self.copy, self.source, self._before, self._attributes = (
            result,
            source,
            contents(result),
            _user_attributes(result),
        )

    def changes(self, template: Template) -> Iterator[Effect]:
        """The effects that bring the container and its attributes to the present state of the copy."""
        result = changes(self.copy, self._before, self.source, template)
        if not _is_user_container(self.copy):
            yield from result
            return
        for e in result:
            yield Effect("beneath", e.holder, (e.kind, e.key), e.template)
        kind = attribute_kind(type(self.copy))
        yield from changed_names(_user_attributes(self.copy), self._attributes, self.source, template, kind)


def _is_user_container(x: object) -> bool:
    cls: Any = type(x)
    return issubclass(cls, _CONTAINERS) and is_user_code(cls)


def _user_attributes(x: object) -> dict[str, object]:
    """The attributes of a container of a user class."""
    return attributes(x) if _is_user_container(x) else {}


def watched(x: object, source: Source) -> Iterator[WatchedCopy]:
    """The mutable containers in the pytree `x`, a copy of the value at `source`."""
    if not is_node(x) or x is None:
        return
    cls = type(x)
    if not isinstance(x, tuple):
        yield WatchedCopy(x, source)
    for i, child in enumerate(children(x)):
        if is_node(child) and child is not None:
            yield from watched(child, _child(source, x, cls, i))


def _child(source: Source, x: object, cls: type, i: int) -> Source:
    kind, n = KINDS[cls], len(children(x))
    assert kind is not None
    name = kind.names(kind.flatten(x)[1], n)[i]
    if name.startswith("."):
        return Attribute(source, name[1:])
    if isinstance(x, list | tuple):
        return Item(source, i)
    if isinstance(x, dict):
        return Item(source, kind.flatten(x)[1][0][i])
    return Child(source, i)


def contents(x: object) -> Any:
    """The contents of a container or an object; a container proxy does not count this as a read."""
    if isinstance(x, list):
        return list(list.__iter__(x))
    if isinstance(x, deque):
        return list(deque.__iter__(x))
    if isinstance(x, OrderedDict):
        return {plain_key(k): v for k, v in x.items()}
    if isinstance(x, dict):
        return {plain_key(k): v for k, v in dict.items(x)}
    if isinstance(x, set):
        return set(set.__iter__(x))
    return bytes(x) if isinstance(x, bytearray) else attributes(x)


def plain_key(x: object) -> Any:
    """The value of a traced key of a dict or set, which has already been guarded."""
    if type(x) is tuple and any(isinstance(each, Tracer) for each in x):
        return tuple([plain_key(each) for each in x])
    return x.shown() if isinstance(x, Tracer) else lookup_key(x)


def lookup_key(key: object) -> Any:
    """The key that later calls look up: objects and tuples made by traced code contain guarded values in place of
    tracers."""
    with contextlib.suppress(TypeError):  # an array in an object, which is not hashable
        key = real_key(key)
    if isinstance(key, tuple | frozenset):
        elements = [*map(lookup_key, key)]
        if all(a is b for a, b in zip(elements, key)):
            return key
        return tuple.__new__(type(key), elements) if isinstance(key, tuple) else type(key)(elements)
    cls: Any = type(key)
    if isinstance(key, _AS_THEY_ARE) or not is_user_code(cls):
        return key
    held = {name: (x, lookup_key(x)) for name, x in attributes(key).items()}
    if all(a is b for a, b in held.values()):
        return key
    real = object.__new__(cls)
    for name, (_, x) in held.items():
        object.__setattr__(real, name, x)
    return real


_AS_THEY_ARE = (type, Carrier, Shadowed, types.FunctionType, enum.Enum)


def fill(x: Any, before: Any) -> None:
    """Set the contents of a list, dict, set or deque."""
    x.clear()
    x.extend(before) if isinstance(x, list | deque) else x.update(before)


def changes(
    x: Any,
    before: Any,
    holder: Source,
    template: Template,
    blind: dict[tuple[np.float64, ...] | str, None] | tuple[object, ...] = (),
) -> Iterator[Effect]:
    """The effects that change a container or an object from the contents `before` to the contents of `x`; the items
    with the keys `blind` may change before the next call."""
    now = contents(x)
    if isinstance(x, list | deque):
        yield from _of_items(now, before, holder, template, "list" if isinstance(x, list) else "queue")
    elif isinstance(x, dict):
        yield from _of_dict(now, before, holder, template, blind)
    elif isinstance(x, set):
        if before <= now and now != before:
            yield Effect("added", holder, None, _listed([*(now - before)], template))
        elif now != before:
            yield Effect("contents", holder, None, _listed([*now], template))
    elif isinstance(x, bytearray):
        if now != before:
            yield Effect("list", holder, None, ConstantTemplate(now))
    else:
        yield from changed_names(now, before, holder, template, attribute_kind(type(x)))


def _of_items(now: Any, before: Any, holder: Source, template: Template, kind: str) -> Iterator[Effect]:
    same = len(now) >= len(before) and all(x is y for x, y in zip(now, before))
    if not same:
        yield Effect(kind, holder, None, _listed(now, template))
    elif len(now) > len(before):
        yield Effect("extended", holder, None, _listed(now[len(before) :], template))


def appended(values: Sequence[object], holder: Source, template: Template, kind: str) -> Effect:
    """The effect of adding to an unread container."""
    return Effect(kind, holder, None, _listed(values, template))


def _listed(values: Sequence[Any], template: Template) -> ResultTemplate:
    kind = KINDS[list]
    assert kind is not None
    return ContainerTemplate(kind, None, [template(x) for x in values])


def _of_dict(
    now: dict[Any, Any], before: Any, holder: Source, template: Template, blind: Collection[Any]
) -> Iterator[Effect]:
    positions = {k: i for i, k in enumerate(now)}  # looked up by hash: keys may be Tensors
    if any(
        positions[k] != i for i, k in enumerate([k for k in before if k in now])
    ):  # the order changed: write all items
        kind = KINDS[dict]
        assert kind is not None
        values, aux = kind.flatten(now)
        whole = ContainerTemplate(kind, aux, [template(x) for x in values])
        yield Effect("contents", holder, None, whole)
    else:
        yield from changed_names(now, before, holder, template, "item", blind)


def attribute_kind(cls: type) -> str:
    """The kind of attribute effects for a class: plain statements unless it has a `__setattr__` in Python. The
    `__setattr__` of `threading.local` in C differs from the one of `object`."""
    return "field" if isinstance(cls.__setattr__, types.WrapperDescriptorType) else "attribute"


def changed_names(
    now: dict[Any, Any],
    before: dict[Any, Any],
    holder: Source,
    template: Template,
    kind: str,
    blind: Collection[Any] = (),
) -> Iterator[Effect]:
    """The differing effects on attributes ("field", "attribute", "static") or items ("item")."""
    removal = f"no {kind}".replace("field", "attribute")
    for k in before:
        if k not in now:
            yield Effect(removal, holder, k)
    if kind == "field" and not all(k.isidentifier() and not keyword.iskeyword(k) for k in now):
        kind = "attribute"
    for k in blind:
        if k in now:
            yield Effect(kind, holder, k, template(now[k]))
    for k, x in now.items():
        if k not in blind and (k not in before or before[k] is not x):
            yield Effect(kind, holder, k, template(x))
