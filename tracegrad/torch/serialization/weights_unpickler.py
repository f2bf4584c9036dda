"""Interpreter of pickles that runs no code of the file (`weights_only`).

It knows the opcodes that build containers, numbers and texts. A call is of a function of the table in `rebuild.py`, or
of what the user has named as safe. UnpicklingError for everything else.
"""

from __future__ import annotations

import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tracegrad.errors import located
from tracegrad.torch.serialization.rebuild import CALLABLES, VALUES
from tracegrad.torch.serialization.safe_globals import by_name

_MARK = object()


def loads(data: bytes, persistent_load: Callable[[Any], Any]) -> Any:
    """Return the object of a pickle; `persistent_load` finds its storages."""
    try:
        return _PickleMachine(persistent_load).run(data)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise pickle.UnpicklingError(located(f"Weights only load failed: {error}")) from error


class _PickleMachine:
    """Stack and memo of one pickle. Each method is the opcode of its name, with its argument."""

    def __init__(self, persistent_load: Callable[[Any], Any]):
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.persistent_load = persistent_load
        self.safe = by_name()
        self.callables: list[Any] = []

    def run(self, data: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(data):
            name = opcode.name
            if name in _IGNORED:
                continue
            if name == "STOP":
                return self.stack.pop()
            if name in _PUSHED:
                self.stack.append(argument)
            elif name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name]())
            elif name in _STEPS:
                _STEPS[name](self, argument)
            else:
                raise pickle.UnpicklingError(located(f"Weights only load failed: opcode {name} is not supported"))
        raise pickle.UnpicklingError(located("Weights only load failed: the pickle has no end"))

    def since_mark(self) -> list[object]:
        """Take what is on the stack since the last mark."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def take(self, count: int) -> tuple[Any, ...]:
        items = tuple(self.stack[len(self.stack) - count :])
        if len(items) != count or any(each is _MARK for each in items):
            raise IndexError("the stack has too few values")
        del self.stack[len(self.stack) - count :]
        return items

    # -- containers ----------------------------------------------------------------------------------------------------
    def append(self, items: list[object]) -> None:
        _checked(self.stack[-1], list).extend(items)

    def add(self, items: list[object]) -> None:
        _checked(self.stack[-1], set).update(items)

    def set_items(self, items: list[object]) -> None:
        target = _checked(self.stack[-1], dict)
        for key, value in zip(items[::2], items[1::2]):
            target[key] = value

    # -- names and calls -----------------------------------------------------------------------------------------------
    def name(self, text: str) -> None:
        if text in VALUES:
            self.stack.append(VALUES[text])
            return
        value = CALLABLES.get(text, self.safe.get(text))
        if value is None:
            raise pickle.UnpicklingError(located(_REFUSED.format(text=text, name=text.rpartition(".")[2])))
        self.callables.append(value)
        self.stack.append(value)

    def stack_name(self) -> None:
        module, name = self.take(2)
        self.name(f"{_checked(module, str)}.{_checked(name, str)}")

    def call(self, new: bool) -> None:
        function, arguments = self.take(2)
        self.require(function)
        _checked(arguments, tuple)
        self.stack.append(function.__new__(function, *arguments) if new else function(*arguments))

    def require(self, function: object) -> None:
        if not any(function is each for each in self.callables):
            text = f"Weights only load failed: {function!r} is called, which is not an allowed function"
            raise pickle.UnpicklingError(located(text))

    def build(self) -> None:
        (state,) = self.take(1)
        target = self.stack[-1]
        if type(target) is OrderedDict:
            vars(target).update(_checked(state, dict))
        elif any(type(target) is each for each in self.safe.values()):
            _set_state(target, state)
        else:
            kind = type(target).__name__
            text = f"Weights only load failed: a state is set on a {kind}, which is not an allowed class"
            raise pickle.UnpicklingError(located(text))


_REFUSED = (
    "Weights only load failed. Unsupported global: GLOBAL {text} was not an allowed global by default. Please use "
    "`torch.serialization.add_safe_globals([{name}])` or the `torch.serialization.safe_globals([{name}])` context "
    "manager to allowlist this global if you trust this class/function. With weights_only=False the file can run any "
    "code"
)


def _checked(x: object, kind: type) -> Any:
    """Return a value of the stack; TypeError if a container is of another type than the opcode is for."""
    if not isinstance(x, kind):
        raise TypeError(f"a {kind.__name__} is expected, got a {type(x).__name__}")
    return x


def _set_state(target: Any, state: object) -> None:
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    for each in (attributes, slots):
        for name, value in (each or {}).items():
            object.__setattr__(target, name, value)


def _dict_of(items: list[object]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2]))


_IGNORED = {"PROTO", "FRAME"}
_VALUES = {"int", "int_or_bool", "float", "bytes_or_str", "bytes", "bytearray", "str"}
# Opcodes whose argument is a number or a text.
_PUSHED = {op.name for op in pickletools.opcodes if op.arg and [x.name for x in op.stack_after if x.name in _VALUES]}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
    "MARK": lambda: _MARK,
}
Step = Callable[[_PickleMachine, Any], Any]
_STEPS: dict[str, Step] = {
    "APPEND": lambda machine, _: machine.append(list(machine.take(1))),
    "APPENDS": lambda machine, _: machine.append(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.set_items(list(machine.take(2))),
    "SETITEMS": lambda machine, _: machine.set_items(machine.since_mark()),
    "ADDITEMS": lambda machine, _: machine.add(machine.since_mark()),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.since_mark())),
    "LIST": lambda machine, _: machine.stack.append(machine.since_mark()),
    "DICT": lambda machine, _: machine.stack.append(_dict_of(machine.since_mark())),
    "FROZENSET": lambda machine, _: machine.stack.append(frozenset(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.stack.append(machine.take(1)),
    "TUPLE2": lambda machine, _: machine.stack.append(machine.take(2)),
    "TUPLE3": lambda machine, _: machine.stack.append(machine.take(3)),
    "POP": lambda machine, _: machine.stack.pop(),
    "POP_MARK": lambda machine, _: machine.since_mark(),
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "GLOBAL": lambda machine, argument: machine.name(argument.replace(" ", ".")),
    "STACK_GLOBAL": lambda machine, _: machine.stack_name(),
    "REDUCE": lambda machine, _: machine.call(new=False),
    "NEWOBJ": lambda machine, _: machine.call(new=True),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.stack.append(machine.persistent_load(machine.take(1)[0])),
    **{name: lambda machine, at: machine.stack.append(machine.memo[at]) for name in ("GET", "BINGET", "LONG_BINGET")},
    **{
        name: lambda machine, at: machine.memo.__setitem__(at, machine.stack[-1])
        for name in ("PUT", "BINPUT", "LONG_BINPUT")
    },
    "MEMOIZE": lambda machine, _: machine.memo.__setitem__(len(machine.memo), machine.stack[-1]),
}
