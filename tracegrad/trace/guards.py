"""What a recorded graph depends on: arrays from outside, and the answers to questions for values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tracegrad.ir import Node

__all__ = ["Capture", "ValueGuard", "value_key"]


@dataclass(slots=True, eq=False)
class Capture:
    """An array (or Python number) from outside the trace: its value there, the node that stands for what it is when a
    call begins, and where it is read from at each call (None: `array` itself)."""

    array: Any
    value: Any
    node: Node
    source: Any = None
    number: type | None = None

    def settle(self) -> Any:
        """The array of the traced call, which is not kept when it can be read again."""
        array = self.array
        if self.source is not None:
            self.array = None
        return array


@dataclass(frozen=True, slots=True, eq=False)
class ValueGuard:
    """A value that Python code asked for and saw: the recorded path holds for calls where `node` has `key`.

    Where the result needs the node `unless_raises`, a program has no output for the guard: it fails if that fails.
    """

    node: Node
    seen: np.ndarray[Any, Any]
    key: Any
    asked: str
    location: str
    implicit: bool = False  # asked by us, of a truth that is usual: whether Python's arithmetic is that of the machine
    unless_raises: Node | None = None


def value_key(x: Any) -> Any:
    """What two values of one node must share for Python code not to tell them apart."""
    x = np.asarray(x)
    return repr(x.item()) if x.ndim == 0 else x.tobytes()
