"""Guard outside state that untraced code of a trace may read.

Traced code receives classes unchanged. Their methods run as shadows (`tracegrad.trace.sources.class_patching`), except
`__del__`, and traced code gets shadows of the containers and objects in class attributes. Other reads by the classes
and their methods are invisible. The end of a trace therefore guards every value that a name in the code may refer to,
read or not: class attributes, and the globals and closure variables of the methods and of functions they call.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.cpython.frames import instruction_of
from tracegrad.cpython.object_layout import has_dict
from tracegrad.errors import TracegradError
from tracegrad.ops import Carrier, TensorCarrier
from tracegrad.trace.builder.element_identity import may_compare_identity
from tracegrad.trace.builder.inlinable import Inlinable
from tracegrad.trace.bytecode.code_queries import calls_of_new, loaded_globals, matches_classes, owners_of
from tracegrad.trace.bytecode.exception_regions import within_try
from tracegrad.trace.bytecode.nested_code import code_objects
from tracegrad.trace.effects.effects import fixed
from tracegrad.trace.proxies import function_metadata, function_proxies
from tracegrad.trace.proxies.ambient_state import of_settings
from tracegrad.trace.proxies.class_attributes import ANNOTATION_MEMBERS, LABELS
from tracegrad.trace.proxies.opaque_state import (
    ObjectState,
    UnreadableState,
    attributes,
    is_constant,
    unreadable_object,
)
from tracegrad.trace.sources.class_patching import (
    ClassPatches,
    class_attribute,
    descriptors,
    functions_of,
    genuine,
    hook,
)
from tracegrad.trace.sources.code_origin import is_internal_class, is_user_code, is_user_function, is_user_module
from tracegrad.trace.sources.sources import Attribute, ClosureCell, Fixed, Hiding, Item, ModuleGlobal, Source, Static
from tracegrad.trace.sources.state_sources import FunctionResult, is_subclass
from tracegrad.trace.values.container_proxies import PROXIED_CLASSES, read
from tracegrad.trace.world.guards import all_of
from tracegrad.trace.world.impure_calls import Unasked
from tracegrad.trace.world.mutation_snapshots import Unseen


class Natives:
    """Classes and functions whose code one trace may have run untraced."""

    def __init__(self, world: Any):
        self.world = world
        self._classes: dict[Any, bool] = {}
        self._functions: dict[Any, None] = {}
        self._traced: dict[Any, None] = {}
        self._modules: list[tuple[Any, Source]] = []
        self._unseen, self._unasked = Unseen(), Unasked(world)
        self._states: list[tuple[ObjectState, Source]] = []
        self._as_they_are: dict[int, tuple[Any, dict[str, Any], dict[str, Any]]] = {}
        self._names: set[str] = set()
        self._whole: dict[Any, None] = {}  # classes whose attributes traced code may list
        self._families = False  # whether traced code may list subclasses
        self._patches = ClassPatches()
        self._descriptors: dict[int, tuple[Any, Source]] = {}
        self._attribute_sources: dict[int, Source] = {}  # the sources of class attributes, by the id of the value
        self.classes_of_arrays: set[type] = set()  # of outside arrays, such as `memmap`; no traced value has them

    def note(self, cls: Any, methods: bool = True) -> None:
        """Note that traced code may read attributes of this class, and run its `methods` untraced."""
        if is_user_code(cls):
            new = cls not in self._classes
            if methods and not self._classes.get(cls, False):
                for c in [c for c in cls.__mro__ if is_user_code(c)]:
                    for function in [f for x in vars(c).values() for f in functions_of(x) if is_user_function(f)]:
                        if not self.world.once:  # the changes of a single call must stay
                            self._unseen.watch(function)
                        self._unasked.watch(function)
                        if may_compare_identity(function, deep=True):
                            self.world.compares(always=True)
                self._patches.patch(cls, self._holds)
                self._note_hooks(cls)
            self._classes[cls] = self._classes.get(cls, False) or methods
            self.world.writes.watch(cls, self.world)
            if new and self._families:
                self._note_subclasses(cls)

    @property
    def numbers(self) -> set[Any]:
        """The floats held by classes that traced code may have read."""
        return {x for cls in self._classes for x in vars(cls).values() if issubclass(type(x), float)}

    @property
    def arrays(self) -> list[Any]:
        """The arrays held by classes."""
        return [x for cls in self._classes for x in vars(cls).values() if isinstance(x, np.ndarray)]

    def follow_subclasses(self) -> None:
        """Note that traced code may list the subclasses of a class, and read their attributes."""
        if not self._families:
            self._families = True
            for cls in list(self._classes):
                self._note_subclasses(cls)

    def _note_subclasses(self, cls: Any) -> None:
        for each in type.__subclasses__(cls):
            self.note(each)

    def list_all_of(self, cls: Any) -> Any:
        """Note that traced code lists the attributes of a class; returns them."""
        if not is_user_code(cls):
            return vars(cls)
        self.note(cls)
        self._whole[cls] = None
        return types.MappingProxyType({name: class_attribute(x, cls) for name, x in vars(cls).items()})

    def note_array(self, x: Any, source: Source) -> None:
        """Note that traced code reads an array, possibly of a NumPy subclass."""
        if type(x) is not np.ndarray:
            self.world.assume(source, "type", type(x))
            self.classes_of_arrays.add(type(x))

    def note_class_read(self, x: Any) -> None:
        """Note that traced code reads the class of an array, which may be an outside array."""
        captures = list(self.world.builder.captures.values())  # a copy, which stays the same in the loop
        for c in captures:
            if c.node is x.node and c.source is not None:
                self.world.assume(c.source, "type", type(c.array))

    def _holds(self, cls: type, name: str, x: Any) -> bool:
        """Whether traced code gets a shadow of a class attribute: a container, or a mutable object."""
        x = genuine(x)
        if is_internal_class(cls) or (name.startswith("_") and name.endswith("_")) or issubclass(cls, enum.Enum):
            return False
        known = type(x) in _HELD or isinstance(x, np.ndarray | TensorCarrier)
        if not known and (hasattr(type(x), "__get__") or _is_fixed(x) or name == "_abc_impl"):
            return False
        if self.world.writes.rewritten(cls, name):  # a value that traced code assigned needs no stand-in
            return False
        self._attribute_sources[id(x)] = Static(cls, name)
        return True

    def held(self, real: Any) -> Any:
        """The stand-in of a class attribute."""
        if not self.world.open:
            return real
        source = self._attribute_sources.get(id(real))
        if source is None:
            return self.world.translate(real, Fixed(real, type(real).__name__), guard=False)
        return self.world.translate(real, source)

    def _note_hooks(self, cls: Any) -> None:
        """Note the functions that Python itself calls: those of the metaclass and of descriptors, and `__del__`, which
        runs at an unknown time."""
        if hook(cls, "__del__") is not None and self.world.open and not self.world.once:
            reason = f"it may make a {cls.__qualname__}, whose __del__ runs when Python lets go of it"
            raise self.world.builder.abort(f"{reason}; make it outside of the traced function")
        self.note(type(cls))
        for c in cls.__mro__ if is_user_code(cls) else ():
            for name, x in descriptors(c) if is_user_code(c) else ():
                self._descriptors[id(x)] = x, Static(c, name)
                self.note(type(x))

    def descriptor(self, x: Any) -> Any:
        """The shadow of a user-defined descriptor of a class; other objects unchanged."""
        real, source = self._descriptors.get(id(x), (None, None))
        return x if source is None or real is not x else self.world.translate(x, source)

    def is_suspect(self, function: types.FunctionType) -> bool:
        """Whether a function may read impure state when it runs untraced, which aborts the trace."""
        return self._unasked.is_suspect(function)

    def chosen(self, choose: Any, cls: type) -> Any:
        """The function that `singledispatchmethod` chooses for a class, guarded because registrations may change."""
        result = choose(cls)
        if self.world.open:
            self.world.assume(FunctionResult(choose, (cls,)), "is", result)
        return result

    def receive_unchanged(self, x: Any, source: Source) -> Any:
        """Note an object with user-defined attribute access, which a trace of a single call receives unchanged; its
        methods run as shadows."""
        if not self.world.once:
            reason = f"{source} is a {type(x).__qualname__}, whose __getattribute__ decides what each name means"
            text = f"{reason}; make the object in the traced function, or pass what is needed of it"
            raise self.world.builder.abort(text)
        self.note(type(x))
        held = object.__getattribute__(x, "__dict__") if has_dict(type(x)) else {}
        self._as_they_are.setdefault(id(x), (x, held, dict(held)))
        return x

    @property
    def wrote(self) -> bool:
        """Whether traced code has changed an object that it received unchanged."""
        return any(not _same(held, before) for _, held, before in self._as_they_are.values())

    def rewind(self) -> None:
        """Undo changes to objects that traced code received unchanged, before the call is traced again."""
        for _, held, before in self._as_they_are.values():
            held.clear()
            held.update(before)

    def initialized(self, result: Any, frame: types.FrameType, cls: type, *args: Any, **kwargs: Any) -> Any:
        """The result of `__new__`, with `__init__` called if the frame calls the class. Python itself would not
        recognize the class of a proxy of an outside object, such as an instance that a class caches by name."""
        real = function_proxies.unshadowed(result)
        if real is result or not issubclass(type(real), cls) or hook(type(real), "__init__") is None:
            return result
        calls = calls_of_new(frame.f_code)
        if calls is None:
            raise self.world.builder.abort(f"{cls.__qualname__}.__new__ gives an object from outside")
        if instruction_of(frame) not in calls:
            result.__init__(*args, **kwargs)
        return result

    def source_of(self, x: Any) -> Source | None:
        """The source where traced code has read an object."""
        return self.world._sources.get(id(x)) if self.world.open and not self.world.once else None

    def is_none_of(self, cls: type, base: Any) -> None:
        """Guard that a class is not registered with an abstract base class."""
        if isinstance(base, abc.ABCMeta) and not is_subclass(cls, base):
            self.world.assume(FunctionResult(is_subclass, (cls, base)), "is", False)

    def raises_aside(self, name: str, error: Exception) -> None:
        """Abort the trace if traced code may catch an exception of untraced code that other values would not raise."""
        if self.world.open and not self.world.once and within_try():
            raise self.world.builder.abort(f"{name} raises {type(error).__name__}, which is caught") from error

    def note_all(self, x: Any) -> None:
        """Note the classes of the nodes of a pytree, and the settings that its leaves depend on."""
        if not tree.is_node(x):
            of_settings(self.world, x)
            if issubclass(type(x), function_proxies.VALUES):
                self.note_passed(x)
        else:
            self.note(type(x))
            for child in tree.children(x):
                self.note_all(child)

    def note_passed(self, x: Any) -> None:
        """Note a value that the call passes to traced code."""
        cls: Any = type(x)
        if not isinstance(x, enum.Enum):
            self.note_value(x, Fixed(x, cls.__name__))
        elif x._name_ in cls._member_map_:
            self.note_value(x, Item(Attribute(Fixed(cls, cls.__name__), "_member_map_"), x._name_))

    def note_value(self, x: Any, source: Source) -> None:
        """Note that traced code reads a number, a string or an enumeration member, which may have attributes."""
        self.note(type(x))
        if self.world.once or not hasattr(x, "__dict__"):
            return
        held, dict_source = vars(x), Attribute(source, "__dict__")
        if any(
            not (name.startswith("_") and isinstance(each, (*function_proxies.VALUES, type)))
            for name, each in held.items()
        ):
            self.note_object(held, dict_source)
            return
        self.world.assume(dict_source, "keys", (dict, tuple(held)))
        if isinstance(x, enum.Enum):
            self.world.assume(Attribute(source, "_value_"), "equals", held["_value_"])

    def note_object(self, x: Any, source: Source) -> None:
        """Note that traced code receives a library object, or a traced function, unchanged."""
        if isinstance(x, Inlinable):
            self._traced[x] = None
            self.world.writes.watch(x, self.world)
            return
        if self.world.once or is_constant(x) or any(x is s for s in (sys.stdout, sys.stderr)):
            return
        try:
            held = ObjectState(x)
        except UnreadableState as error:
            description = f"{source} is {unreadable_object(error, x)}, whose state a trace cannot see"
            raise self.world.builder.abort(f"{description}; read what is needed of it outside and pass that") from None
        self._states.append((held, source))
        self.world.assume(source, "state", held.key)

    def disturbed(self) -> str:
        """A description of changes that traced code made to objects received unchanged; "" if there are none."""
        for held, source in self._states:
            if not held.is_unchanged:
                return f"it changes {source}, an object of an installed package"
        name = self._unseen.changed()
        if not name:
            return ""
        owner = "of a dataclass, a namedtuple, a container, or an object that the traced code made"
        return f"a method that no trace sees ({owner}) changes {name}; do that in a function, not in a method"

    def restore(self) -> None:
        """Restore the objects that traced code received unchanged."""
        for held, _ in self._states:
            held.restore()
        self._states.clear()
        self._patches.restore()
        self._unseen.restore()
        self._unasked.restore()

    def guard(self, shadows: Iterable[Any]) -> None:
        """Guard all reads that untraced code may have done; `shadows` are the functions that ran as shadows."""
        if not self._classes and not self._traced:
            return
        codes: list[types.CodeType] = []
        for result in shadows:
            self._names.update(_names_in(result))
            codes += _codes(result)
        size = -1
        while size != (size := len(self._names) + len(self._functions) + len(self._classes)):
            self._follow()
        held = [(dict(attributes(module)), source) for module, source in self._modules]
        for state, source in [*held, *[(traced.labels(), fixed(traced)) for traced in self._traced]]:
            for name in sorted(self._names & state.keys()):
                if name == "__dict__":  # the namespace of a module
                    self._guard_namespace(state[name], source)
                else:
                    self._note_attribute(state[name], Attribute(source, name))
        classes = list(self._classes)
        self._guard_bases(classes, any(map(matches_classes, codes)))
        if not self._names.isdisjoint(_OF_BASES):
            classes = [*dict.fromkeys(c for cls in classes for c in cls.__mro__ if is_user_code(c))]
        for cls in (*self._whole, *(classes if any(map(_lists, codes)) else ())):
            self._guard_all_of(cls)
        for cls in classes:
            self._guard_class(cls)

    def _guard_class(self, cls: Any) -> None:
        """Guard the present and missing class attributes for the names in the code, and other class facts that the code
        may read."""
        if is_internal_class(cls):
            return
        function_metadata.guard_class(self.world, cls, self._names)
        result = vars(cls).get("__new__") if issubclass(cls, tuple) else None  # a named tuple
        if defaults := getattr(getattr(result, "__func__", result), "__defaults__", None):
            self.world.assume(Attribute(Attribute(Fixed(cls, cls.__name__), "__new__"), "__defaults__"), "is", defaults)
        missing = frozenset([name for name in sorted(self._names) if not self._static(Static(cls, name))])
        may_be_read = not self._names.isdisjoint(("__dict__", "vars")) or hook(type(cls), "__getattr__") is not None
        if missing and may_be_read:
            self.world.assume(Hiding(cls, missing), "is", None)

    def _guard_namespace(self, namespace: dict[str, object], module: Source) -> None:
        """Guard all attributes of a module and their names, if they may be listed.

        Its `__builtins__` are not its own, and packages keep objects of C among them, as pybind11 does.
        """
        self.world.assume(Attribute(module, "__dict__"), "keys", (dict, tuple(namespace)))
        for name in sorted(namespace.keys() - {"__builtins__"}):
            self._guard(namespace[name], Attribute(module, name))

    def _guard_all_of(self, cls: Any) -> None:
        """Guard all attributes of a class and their names, if they may be listed."""
        if not is_internal_class(cls):
            keys = types.MappingProxyType, tuple(vars(cls))
            self.world.assume(Attribute(Fixed(cls, cls.__name__), "__dict__"), "keys", keys)
            for name in vars(cls).keys() - LABELS:
                self._static(Static(cls, name))

    def _guard_bases(self, classes: list[Any], matches: bool) -> None:
        """Guard the bases of classes if they may be listed; if code `matches` objects, guard registrations with
        abstract base classes, which `match` reads unseen."""
        if not self._names.isdisjoint(_ORDERS):
            for cls in classes:
                self.world.assume(Attribute(Fixed(cls, cls.__name__), "__mro__"), "items", all_of(cls.__mro__))
        for base in classes if matches else ():
            for cls in (*classes, *_PATTERNS):
                self.is_none_of(cls, base)

    def _follow(self) -> None:
        """Add the classes and functions reachable from the known ones."""
        for cls, methods in list(self._classes.items()):
            for name, value in [item for c in cls.__mro__ for item in vars(c).items()]:
                if name in ANNOTATION_MEMBERS:
                    continue
                if name not in self._names and not name.startswith("__") and name != "_missing_":
                    continue
                if isinstance(value, type):
                    self.note(value)
                for function in functions_of(value) if methods else ():
                    if is_user_function(function):
                        self._names.add(name)
                        if not self._patches.runs(function):
                            self._add(function)

    def _add(self, function: Any) -> None:
        if function in self._functions:
            return
        self._functions[function] = None
        self._names.update(_names_in(function))
        for name in sorted(_globals_in(function) & function.__globals__.keys()):
            self._note_attribute(function.__globals__[name], ModuleGlobal(function.__globals__, name))
        for cell, name in zip(function.__closure__ or (), function.__code__.co_freevars):
            with contextlib.suppress(ValueError):
                self._note_attribute(cell.cell_contents, ClosureCell(cell, name))

    def _note_attribute(self, value: Any, source: Source) -> None:
        if is_user_function(value):
            self._add(value)
        elif isinstance(value, type):
            self.note(value)
        elif isinstance(value, types.ModuleType):
            if is_user_module(value):
                self._modules.append((value, source))
        elif function_proxies.is_user_object(value):
            decides = hook(type(value), "__getattribute__") is not None
            self.receive_unchanged(value, source) if decides else self.note(type(value))
            if not decides and hasattr(value, "__dict__"):
                self._modules.append((value, source))
        self._guard(value, source)

    def _static(self, source: Static) -> bool:
        """Guard a raw class attribute, if the class has it."""
        try:
            value = source.read()
        except AttributeError:
            return False
        if not isinstance(value, types.GetSetDescriptorType):
            self._guard(value, source)
        return True

    def _guard(self, value: Any, source: Source) -> None:
        if isinstance(value, (np.ndarray, TensorCarrier, *function_proxies.VALUES)) or tree.is_node(value):
            with contextlib.suppress(TracegradError):
                read(self.world.translate(value, source))
                return
        self.world.assume(source, "is", value)


def _names_in(function: object) -> Iterator[str]:
    """The names and strings in the code of a function."""
    for code in _codes(function):
        yield from code.co_names
        yield from [x for x in code.co_consts if isinstance(x, str)]


def _globals_in(function: object) -> set[str]:
    """The globals that the code of a function may read: the loaded ones, or any named one if the code can look names
    up."""
    names = set(_names_in(function))
    if not names.isdisjoint(_LOOKUP_NAMES):
        return names
    return {name for code in _codes(function) for name in loaded_globals(code)}


def _is_fixed(x: object) -> bool:
    """Whether a class attribute is immutable and no user object, or is guarded by its contents."""
    if function_proxies.is_user_object(x):
        return False
    return tree.is_node(x) or isinstance(x, (np.ndarray, Carrier, *function_proxies.VALUES)) or is_constant(x)


# Classes whose instances may hold user objects.
_HELD = PROXIED_CLASSES | {tuple, types.MethodType}
# Names by which code reads attributes of base classes that a class overrides.
_OF_BASES = {"super", "__mro__", "__base__", "__bases__"}
# Names by which code lists the bases of a class.
_ORDERS = {"__mro__", "__base__", "__bases__", "mro"}
# The built-in and NumPy classes that `match` may test, in addition to user classes.
_PATTERNS = (np.ndarray, np.float64, float, int, str, list, dict, tuple)
_LOOKUP_NAMES = {"globals", "f_globals", "__globals__", "__dict__", "vars", "eval", "exec", "modules", "import_module"}


def _codes(function: object) -> Iterator[types.CodeType]:
    """The code of a function, and of its nested functions; none of another object."""
    return code_objects(function.__code__) if isinstance(function, types.FunctionType) else iter(())


def _lists(code: types.CodeType) -> bool:
    """Whether the code reads `__dict__` of an object that may be a class, which excludes `self`."""
    return not owners_of(code, "__dict__") <= {"self"}


def _same(a: dict[str, object], b: dict[str, object]) -> bool:
    """Whether the names hold the same objects."""
    return a.keys() == b.keys() and all(x is b[name] for name, x in a.items())
