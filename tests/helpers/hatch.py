"""Ways out of a trace that nobody sees, for tests of what becomes of traced values, and of traces that wait."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

__all__ = ["Hatch", "unseen"]


def unseen(function: Callable[..., Any]) -> Any:
    """A function that calls `function`, and passes for one of Python's own, which traces run as they are."""
    space = {"function": function}
    exec(compile("def call(*args, **kwargs):\n    return function(*args, **kwargs)", os.__file__, "exec"), space)
    return space["call"]


class Hatch:
    """What traced code puts here can be got outside."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self.put = unseen(self._kept.append)

    def get(self) -> Any:
        return self._kept.pop(0)

    def qsize(self) -> int:
        return len(self._kept)
