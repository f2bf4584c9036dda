"""What traced code asks of functions and classes themselves: names, documentation, signatures, members, subclasses.

Its shadows have what the functions have, which others may assign. Few programs ask for that, and so it is guarded for
those alone whose code names it, of all functions and classes that they know.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Iterable
from typing import Any

from tracegrad.trace.bytecode.instructions import attributes_in
from tracegrad.trace.proxies.namespace_proxies import contents
from tracegrad.trace.sources.code_origin import is_user_code
from tracegrad.trace.sources.sources import Attribute, Fixed, Item
from tracegrad.trace.sources.state_sources import Called

__all__ = ["ask", "guard", "guard_class"]

# Of the functions that are asked by name.
_NAMES = frozenset(["__doc__", "__name__", "__qualname__"])
_SUBCLASSES = "__subclasses__"
_OF_OWNERS = _NAMES | {_SUBCLASSES}
# Of whichever function: these are asked of what is passed to a decorator or a validator.
_ASKED = frozenset(
    [
        "__annotations__", "__defaults__", "__dict__", "__kwdefaults__", "__signature__", "get_annotations",
        "get_type_hints", "getcallargs", "getdoc", "getfullargspec", "signature", "singledispatch", "vars",
    ]
)  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _asks(code: types.CodeType) -> bool:
    inner = [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return not _ASKED.isdisjoint(code.co_names) or any(map(_asks, inner))


def ask(world: Any, fun: types.FunctionType) -> None:
    """Before a trace runs the code of a function: note what that may ask of others."""
    code = fun.__code__
    world.asks_functions = world.asks_functions or _asks(code)
    if _SUBCLASSES in (*code.co_names, *code.co_consts):
        world.natives.follow_subclasses()
    if _OF_OWNERS.isdisjoint(code.co_names):
        return
    cells = dict(zip(code.co_freevars, fun.__closure__ or ()))
    for name, attribute in attributes_in(code):
        owner = contents(cells[name]) if name in cells else fun.__globals__.get(name)
        if attribute in _NAMES and isinstance(owner, types.FunctionType):
            world.assume(Attribute(Fixed(owner, name), attribute), "equals", getattr(owner, attribute))
        if attribute == _SUBCLASSES and isinstance(owner, type) and not is_user_code(owner) and not world.once:
            raise world.builder.gives_up(f"{name}.{_SUBCLASSES}() lists classes of which a trace does not know all")


def guard(world: Any, functions: Iterable[Any]) -> None:
    """Guard what was asked of functions."""
    for fun in functions if world.asks_functions else ():
        if isinstance(fun, types.FunctionType):
            world.assume(Called(_held, (fun,)), "items", [list, *_held(fun)])


def guard_class(world: Any, cls: Any, names: set[str]) -> None:
    """Guard what code in which these names occur may ask of a class: what it is called, which classes derive from it,
    and the members of an enumeration, which are looked up by functions of Python's."""
    place = Fixed(cls, cls.__name__)
    for name in sorted(_NAMES & names):
        world.assume(Attribute(place, name), "equals", getattr(cls, name))
    if _SUBCLASSES in names:
        world.assume(Called(type.__subclasses__, (cls,)), "items", [list, *type.__subclasses__(cls)])
    if issubclass(cls, enum.Enum):  # flags know combinations of members once these were made
        for table in ("_member_map_",) if issubclass(cls, enum.Flag) else ("_member_map_", "_value2member_map_"):
            world.assume(Attribute(place, table), "keys", (dict, tuple(getattr(cls, table))))
        if "_missing_" not in vars(cls):
            world.assume(Item(Attribute(place, "__dict__"), "_missing_"), "absent", None)


def _held(fun: Any) -> list[Any]:
    """What a function has that can be assigned, but for its code."""
    named = [fun.__annotations__, fun.__kwdefaults__ or {}, vars(fun)]
    parts = [x for held in named for x in (len(held), *held, *held.values())]
    return [fun.__name__, fun.__qualname__, fun.__doc__, fun.__defaults__, *parts]
