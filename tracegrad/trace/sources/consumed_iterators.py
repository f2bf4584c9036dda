"""Record items taken from outside iterators and files, so that a restarted trace does not take them twice."""

from __future__ import annotations

import io
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from tracegrad.errors import UnsupportedError, located

if TYPE_CHECKING:
    from tracegrad.trace.sources.signature import BoundCall


class Items:
    """The items taken from an iterator during a call: each step with its result or exception."""

    def __init__(self) -> None:
        self.records: list[tuple[str, Any, BaseException | None]] = []
        self.position = 0
        self.location = ""  # the user's line of the first step

    def advance(self, name: str, function: Callable[..., object], *args: object) -> object:
        """Run a step, or replay its recorded result if the call has restarted."""
        if self.position == len(self.records):
            self.location = self.location or located("an item was taken")
            try:
                self.records.append((name, function(*args), None))
            except BaseException as error:
                self.records.append((name, None, error))
        known, value, raised = self.records[self.position]
        if known != name:
            raise UnsupportedError(located("the call began again, and takes something else from an iterator"))
        self.position += 1
        if raised is not None:
            raise raised
        return value


class IteratorProxy:
    """Stand-in of an iterator from outside."""

    __slots__ = ("_items", "real")

    def __init__(self, real: Any, items: Items):
        self.real, self._items = real, items

    @property
    def __class__(self) -> Any:
        return type(self.real)

    @__class__.setter
    def __class__(self, cls: type) -> None:
        self.real.__class__ = cls

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> object:
        return self._items.advance("next", next, self.real)

    def __length_hint__(self) -> int:
        recorded = len(self._items.records) - self._items.position
        return recorded + operator.length_hint(self.real)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise UnsupportedError(
            located(f"a {type(self.real).__name__} from outside is copied; take a list of its items")
        )

    def __getattr__(self, name: str) -> Any:
        result = getattr(self.real, name)
        if name not in ("send", "throw", "close"):
            return result
        return lambda *args: self._items.advance(name, result, *args)


def is_read_up(x: object) -> bool:
    """Whether `x` is a built-in iterator, or a readable file: reading changes it."""
    if isinstance(x, io.IOBase):
        return not x.closed and not x.writable()
    module = type(x).__module__
    return isinstance(x, Iterator) and (module in ("builtins", "itertools", "_csv"))


def position_record(x: object) -> object:
    """A record that can restore a file's position, or that holds the items taken from an iterator."""
    return x.tell() if isinstance(x, io.IOBase) else Items()


def restore_position(x: Any, state: Any) -> None:
    """Restore the position of a file; the stand-in of an iterator then returns the same items again."""
    if type(state) is Items:
        state.position = 0
    else:
        x.seek(state)


def require_nothing_consumed(call: BoundCall, why: str) -> None:
    """Raise UnsupportedError if a call that must run as plain Python has taken items from an iterator during
    tracing."""
    for x, state in call.drawn.before.values() if call.drawn is not None else ():
        if type(state) is Items and state.records:
            description = f"an item of a {type(x).__name__} from outside has been taken"
            raise UnsupportedError(f"{description} before the call could not be recorded ({state.location}): {why}")
