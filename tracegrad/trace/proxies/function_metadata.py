"""Guard metadata of functions and classes: names, documentation, signatures, members, and subclasses.

Proxies have the metadata of their functions, which user code may assign. Few programs read metadata, so only the
functions and classes known to code that names metadata are guarded.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tracegrad.trace.bytecode.instructions import attributes_in
from tracegrad.trace.bytecode.nested_code import names_in
from tracegrad.trace.proxies.namespace_proxies import contents
from tracegrad.trace.sources.code_origin import is_user_code
from tracegrad.trace.sources.sources import Attribute, Fixed, Item
from tracegrad.trace.sources.state_sources import FunctionResult

if TYPE_CHECKING:
    from collections.abc import Callable


# The metadata that code reads from functions it names.
_NAMES = frozenset(["__doc__", "__name__", "__qualname__"])
_SUBCLASSES = "__subclasses__"
_OF_OWNERS = _NAMES | {_SUBCLASSES}
# The names by which code reads metadata of any function, such as the argument of a decorator or a validator.
_METADATA_NAMES = frozenset(
    [
        "__annotations__",
        "__defaults__",
        "__dict__",
        "__kwdefaults__",
        "__signature__",
        "get_annotations",
        "get_type_hints",
        "getcallargs",
        "getdoc",
        "getfullargspec",
        "signature",
        "singledispatch",
        "vars",
    ]
)


def note_metadata(world: Any, fun: types.FunctionType) -> None:
    """Note the metadata that the code of a function may read, before a trace runs it."""
    code = fun.__code__
    world.reads_functions = world.reads_functions or not _METADATA_NAMES.isdisjoint(names_in(code))
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
            raise world.builder.abort(f"{name}.{_SUBCLASSES}() lists classes of which a trace does not know all")


def guard(world: Any, functions: Iterable[Any]) -> None:
    """Guard the metadata that was read from functions."""
    for fun in functions if world.reads_functions else ():
        if isinstance(fun, types.FunctionType):
            world.assume(FunctionResult(_held, (fun,)), "items", [list, *_held(fun)])


def guard_class(world: Any, cls: Any, names: set[str]) -> None:
    """Guard the class metadata that code with these names may read: the class name, its subclasses, and the members of
    an enumeration, which Python's own functions look up."""
    class_source = Fixed(cls, cls.__name__)
    for name in sorted(_NAMES & names):
        world.assume(Attribute(class_source, name), "equals", getattr(cls, name))
    if _SUBCLASSES in names:
        world.assume(FunctionResult(type.__subclasses__, (cls,)), "items", [list, *type.__subclasses__(cls)])
    if issubclass(cls, enum.Enum):  # flags add combinations of members when they are first made
        for table in ("_member_map_",) if issubclass(cls, enum.Flag) else ("_member_map_", "_value2member_map_"):
            world.assume(Attribute(class_source, table), "keys", (dict, tuple(getattr(cls, table))))
        if "_missing_" not in vars(cls):
            world.assume(Item(Attribute(class_source, "__dict__"), "_missing_"), "absent", None)


def _held(fun: Callable[..., object]) -> list[Any]:
    """The assignable attributes of a function, except its code."""
    named = [fun.__annotations__, fun.__kwdefaults__ or {}, vars(fun)]
    attributes = [x for held in named for x in (len(held), *held, *held.values())]
    return [fun.__name__, fun.__qualname__, fun.__doc__, fun.__defaults__, *attributes]
