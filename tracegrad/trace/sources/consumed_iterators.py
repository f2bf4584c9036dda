"""Iterators and files from outside in the trace of one call: such a trace may begin again, or be given up, and what has
been taken from an iterator is not taken twice."""

from __future__ import annotations

import io
import operator
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from tracegrad.errors import UnsupportedError, located

__all__ = ["Items", "Taken", "go_back", "is_read_up", "require_nothing_taken", "where"]


class Items:
    """What has been taken from an iterator during a call: for each step what it is, and what it gave or raised."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, Any, BaseException | None]] = []
        self.place = 0
        self.location = ""  # of the first step

    def step(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """What the step gives: what it gave before, if the call has begun again."""
        if self.place == len(self.steps):
            self.location = self.location or located("an item was taken")
            try:
                self.steps.append((name, function(*args), None))
            except BaseException as error:
                self.steps.append((name, None, error))
        known, value, raised = self.steps[self.place]
        if known != name:
            raise UnsupportedError(located("the call began again, and takes something else from an iterator"))
        self.place += 1
        if raised is not None:
            raise raised
        return value


class Taken:
    """Stands for an iterator from outside."""

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

    def __next__(self) -> Any:
        return self._items.step("next", next, self.real)

    def __length_hint__(self) -> int:
        left = len(self._items.steps) - self._items.place
        return left + operator.length_hint(self.real)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise UnsupportedError(
            located(f"a {type(self.real).__name__} from outside is copied; take a list of its items")
        )

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        if name not in ("send", "throw", "close"):
            return found
        return lambda *args: self._items.step(name, found, *args)


def is_read_up(x: Any) -> bool:
    """Whether `x` is an iterator of Python's own, or a file that is read: reading it changes it."""
    if isinstance(x, io.IOBase):
        return not x.closed and not x.writable()
    module = type(x).__module__
    return isinstance(x, Iterator) and (module in ("builtins", "itertools", "_csv"))


def where(x: Any) -> Any:
    """What brings a file back to where it is, or holds what is taken from an iterator."""
    return x.tell() if isinstance(x, io.IOBase) else Items()


def go_back(x: Any, state: Any) -> None:
    """Bring a file back to where it was; what stands for an iterator gives the same items again."""
    if type(state) is Items:
        state.place = 0
    else:
        x.seek(state)


def require_nothing_taken(call: Any, why: str) -> None:
    """UnsupportedError where a call that is to run as it stands has taken something from an iterator, while it was
    recorded."""
    for x, state in call.drawn.before.values() if call.drawn is not None else ():
        if type(state) is Items and state.steps:
            what = f"an item of a {type(x).__name__} from outside has been taken"
            raise UnsupportedError(f"{what} before the call could not be recorded ({state.location}): {why}")
