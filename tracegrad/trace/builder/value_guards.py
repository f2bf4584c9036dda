"""Records of captured arrays and value guards, the dependencies of a recorded graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.ir import GraphNode
from tracegrad.ops.elementwise.table import not_equal
from tracegrad.ops.shape.linear import cast
from tracegrad.trace.builder.facts import Fact
from tracegrad.typing import Array, NDArray
from tracegrad.utils.lazy_dataclass import record

IMPLICIT = "whether Python's arithmetic is that of the machine"
# The reads whose value is a number to compute with, not a boolean or an index.
NUMBERS = frozenset({"float()", "complex()", "item()", "tolist()", "as_integer_ratio()"})


@record(slots=True, eq=False)
class Capture:
    """An array (or Python number) from outside the trace.

    The fields are its value, the node of its value at the beginning of a call, and the source that each call reads
    (None: `array` itself)."""

    array: Any
    value: Any
    node: GraphNode
    source: Any = None
    number: type | None = None

    def release_array(self) -> Any:
        """The array of the traced call; it is released if it can be read again."""
        array = self.array
        if self.source is not None:
            self.array = None
        return array


@record(frozen=True, slots=True, eq=False)
class ValueGuard:
    """A value that Python code has read: the recorded path is valid for calls in which `node` has `key`.

    If the result depends on the node `unless_raises`, a program has no output for the guard: the node raises if the
    guard fails.
    """

    node: GraphNode
    value: NDArray
    key: Any
    query: str
    location: str
    implicit: bool = False  # recorded by the tracer: the usual value of a boolean, such as whether integers fit 64 bits
    unless_raises: GraphNode | None = None
    number: int = 0  # the position among all values read during tracing


class GuardLog(list[ValueGuard]):
    """The guards of a trace, in order.

    `script` has the values of all reads, also of those without a guard. A call that is traced again knows the first of
    them: they are `prescribed`.
    """

    def __init__(self, prescribed: Sequence[NDArray] = ()) -> None:
        super().__init__()
        self.script: list[NDArray] = []
        self.known: dict[GraphNode, NDArray] = {}  # the values of nodes that have a guard
        self._prescribed = prescribed

    def next_value(self) -> NDArray | None:
        """The prescribed value of the next read, if there is one."""
        number = len(self.script)
        return np.asarray(self._prescribed[number]) if number < len(self._prescribed) else None

    def add(
        self, node: GraphNode, value: NDArray, query: str, location: str, unless_raises: GraphNode | None = None
    ) -> None:
        """Record the value of a read, with a guard on it."""
        implicit, number = query is IMPLICIT, len(self.script)
        self.append(ValueGuard(node, value, value_key(value), query, location, implicit, unless_raises, number))
        self.script.append(value)

    def retract(self, first: int) -> None:
        """Remove the guards from this one on; a repeated read records a new guard."""
        for guard in self[first:]:
            self.known.pop(guard.node, None)
        del self[first:]


class TextNumbers(set[float]):
    """Numbers in text made from differentiated values (see `tracegrad.trace.values.text_conversions`); also rounded
    text and hashes, which may be keys of memoized results."""

    def __init__(self) -> None:
        super().__init__()
        self.rounded: set[str] = set()
        self.hashes: set[int] = set()
        # The instruction that last hashed such a value, with its frame, and whether it looks up an item.
        self.hashed_at: tuple[int, int, bool] | None = None


class GuardValues(NamedTuple):
    """The values of the first guards, computed by a program that was traced with these facts; with other facts
    the guards may differ."""

    values: tuple[Any, ...] = ()
    facts: frozenset[Fact] = frozenset()

    @property
    def keys(self) -> tuple[Any, ...]:
        """The guard key of each value."""
        return tuple(map(value_key, self.values))


def value_key(x: object) -> object:
    """A key that is equal for two values of a node that Python code cannot distinguish."""
    x = np.asarray(x)
    return repr(x.item()) if x.ndim == 0 else x.tobytes()


def guarded_value(x: Array, query: str, value: NDArray) -> Any:
    """The value that decides the guard: for `bool(x)` whether x is zero, for `int(x)` the whole part."""
    if query.startswith("bool") and x.dtype.kind != "b":
        return not_equal(x, 0)
    if query.startswith("int") and x.dtype.kind == "f" and np.all(np.abs(value) < 2.0**62):
        return cast(x, dtype="int64")
    return x
