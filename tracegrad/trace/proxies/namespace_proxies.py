"""Proxies of `globals()` and of the built-in namespace: traced code reads names through the world."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Iterator
from typing import Any

from tracegrad.ir import GraphValue
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.builder.inlinable import Inlinable
from tracegrad.trace.bytecode.exception_regions import Namespace
from tracegrad.trace.loops.array_iteration import ITERATED
from tracegrad.trace.proxies.builtin_proxies import BUILTINS
from tracegrad.trace.proxies.module_proxies import imported, replacement
from tracegrad.trace.rewriting.call_sites import LOOPED, MARK, callee
from tracegrad.trace.sources.code_origin import is_library_module
from tracegrad.trace.sources.sources import Attribute, Fixed, Hiding, Item, ModuleGlobal
from tracegrad.trace.sources.state_sources import Name

EMPTY: Any = object()


def contents(cell: types.CellType) -> Any:
    """The contents of a cell; EMPTY for an empty cell."""
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


class Globals(Namespace):
    """The globals of shadows: reads come from the real namespace through the world, writes stay here."""

    __slots__ = ("known", "real", "world")

    def __init__(self, real: dict[str, Any], world: Any):
        names = _builtins_of(real, world)
        super().__init__(__builtins__=names)
        self.real, self.world = real, world
        names.space = self
        self.known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if super().__contains__(name):
            return super().__getitem__(name)
        if name.endswith(MARK):
            return self._called(name[: -len(MARK)])
        if not self.world.open:
            names = super().__getitem__("__builtins__")
            return self.real[name] if name in self.real else dict.__getitem__(names, name)
        if name not in self.known:
            self.known[name] = self._lookup(name)
        return self.known[name]

    def _called(self, name: str) -> object:
        """The callee under a name; an undefined name raises Python's error."""
        try:
            x = self[name]
        except KeyError:
            raise NameError(f"name {name!r} is not defined", name=name) from None
        return _iterated(x) if name in LOOPED else callee(x)

    def _lookup(self, name: str) -> Any:
        """The value of a name that traced code did not assign; KeyError for undefined names."""
        if name in self.real:
            return self.world.translate(self.real[name], ModuleGlobal(self.real, name))
        source, builtin = Name(self.real, name), dict.get(super().__getitem__("__builtins__"), name, EMPTY)
        if builtin is EMPTY:
            self.world.assume(source, "absent", None)
            raise KeyError(name)
        if name in ("__import__", "__build_class__"):
            return builtin
        self.world.assume(source, "is", builtin)
        if name == "id":
            self.world.note_identity()
            self.world.compares(always=True)
        result = _OF_ATTRIBUTES.get(name) or BUILTINS.get(name) or replacement(builtin)
        return builtin if result is None else result

    # User code also reads the result of `globals()` by the methods of a dict.
    def __contains__(self, name: object) -> bool:
        if super().__contains__(name) or not self.world.open or not isinstance(name, str):
            return super().__contains__(name) or name in self.real
        if name in self.real:
            return self.get(name) is not self
        self.world.assume(ModuleGlobal(self.real, name), "absent", None)
        return False

    def get(self, name: str, default: Any = None) -> Any:
        if super().__contains__(name) or name in self.real:
            return self[name]
        self.world.assume(ModuleGlobal(self.real, name), "absent", None)
        return default

    def _names(self) -> list[str]:
        """All names, with a guard on them."""
        if self.world.open:
            self.world.assume(Fixed(self.real, "the globals"), "keys", (dict, tuple(self.real)))
        assigned = [name for name in dict.__iter__(self) if name != "__builtins__"]
        return [*dict.fromkeys([*self.real, *assigned])]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def keys(self) -> Any:
        return self._names()

    def values(self) -> Any:
        return [value for _, value in self.items()]

    def items(self) -> Any:
        return [(name, self.real[name] if name in _OF_IMPORTS else self[name]) for name in self._names()]

    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    def setdefault(self, name: str, default: object = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def _refuse_removal(self, *_: Any) -> Any:
        """Refuse the removal of names, which no call would repeat."""
        raise self.world.builder.abort("it takes a name away from globals()")

    pop = popitem = clear = __delitem__ = _refuse_removal


# Names that the import of a module sets in it, which code that lists the module does not need.
_OF_IMPORTS = ("__builtins__", "__loader__", "__spec__")


def _iterated(x: object) -> object:
    """The function that traced code calls instead of `x` if a `for` loop iterates over its result."""
    return next((traced_version for builtin, traced_version in ITERATED.items() if builtin is x), callee(x))


class _BuiltinNames(dict[str, Any]):
    """The built-in names of a namespace. Class bodies and `eval` also look up global names here, because they bypass
    `__getitem__` of the namespace."""

    __slots__ = ("space",)
    space: Any

    def __getitem__(self, name: str) -> Any:
        return self.space[name]


def _builtins_of(real: dict[str, object], world: Any) -> _BuiltinNames:
    """The built-in names for shadows with the globals `real`; imports return proxies."""
    result = real.get("__builtins__", builtins)
    names = _BuiltinNames(result if isinstance(result, dict) else vars(result))
    real_import = dict.__getitem__(names, "__import__")

    def load(name: str, _: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> object:
        source = Item(Fixed(sys.modules, "sys.modules"), name)
        try:
            result = real_import(name, real, locals, fromlist, level)
        except ImportError:
            if not level:  # None in `sys.modules` marks a module that cannot be imported
                is_listed = name in sys.modules
                world.assume(source, "is" if is_listed else "absent", sys.modules.get(name))
            raise
        inner = sys.modules.get(name)
        if world.open and not level and inner is not result and inner is not None and not is_library_module(inner):
            world.assume(source, "is", inner)
        return imported(world, result, name, name.partition(".")[0])

    names["__import__"] = load
    return names


def _getattr(x: object, name: str, *default: object) -> object:
    """`getattr`, with a guard if a function or a class lacks the attribute."""
    try:
        result = BUILTINS["getattr"](x, name)
        if isinstance(x, type) and hasattr(type(x), "__getattr__"):
            _may_be_hidden(x, name)
        return result
    except AttributeError:
        trace = current_trace()
        if trace is not None and isinstance(x, types.FunctionType | type | Inlinable):
            lacks(trace.world, trace.world.real_of(x), name)
        if default:
            return default[0]
        raise


def _may_be_hidden(cls: type, name: str) -> None:
    """Guard that a class has no attribute of this name itself, if its metaclass handles missing attributes."""
    trace = current_trace()
    if trace is not None and not any(name in vars(c) for c in cls.__mro__):
        trace.world.assume(Hiding(cls, frozenset([name])), "is", None)


def _hasattr(x: object, name: str) -> bool:
    if isinstance(x, GraphValue):
        return bool(BUILTINS["hasattr"](x, name))
    return _getattr(x, name, EMPTY) is not EMPTY


_OF_ATTRIBUTES = {"getattr": _getattr, "hasattr": _hasattr}


def lacks(world: Any, real: Any, name: str) -> None:
    """Guard that a function or class has no attribute of this name, if it has none."""
    if not hasattr(real, name):
        world.assume(Attribute(Fixed(real, real.__name__), name), "absent", None)
