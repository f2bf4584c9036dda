"""Cache plans in memory by their graphs: equal graphs are optimized, scheduled and lowered once.

Functions defined anew in a loop or for other data, methods of other instances, and duplicated functions are each
traced, because they read different objects. Their graphs are often equal, and one image
(`tracegrad.runtime.execution.image`) serves all of them: it contains no address and no source line.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Any

from tracegrad.ir import Graph, GraphNode
from tracegrad.locks import new_lock
from tracegrad.ops import TABLE
from tracegrad.ops.core.result import result
from tracegrad.runtime.execution.image import ProgramImage, is_plain
from tracegrad.settings import disabled, left_out
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

MAX_BYTES = TUNING.caches.plan_bytes


@record(frozen=True, eq=False)
class Planned:
    """A cached plan: its image, and how many ops of the optimized graph may fail in a foreseen way."""

    image: ProgramImage
    foreseen: int


_lock = new_lock()
_plans: OrderedDict[bytes, tuple[Planned, int]] = OrderedDict()
_sum = 0


def key_of(
    graph: Graph,
    kinds: Sequence[str],
    single: bool,
    checked: bool,
    optimize: int,
    donated: Collection[int],
    strides: Sequence[tuple[int, ...] | None] = (),
) -> tuple[bytes, int]:
    """The key of a program, and the size of its description; an empty key if it cannot be described, or is not cached.

    >>> from tracegrad.ir import parse
    >>> texts = ["graph(%0: f64[4]) {\\n  %1 = multiply(%0, 2.0) : f64[4]\\n  return %1\\n}"] * 2
    >>> one, two = (key_of(parse(text), ["array"], True, False, 2, ()) for text in texts)
    >>> one == two
    True
    """
    if disabled("plan-cache"):
        return b"", 0
    how = tuple(kinds), single, checked, optimize, tuple(sorted(donated)), tuple(strides), tuple(sorted(left_out()))
    try:
        text = marshal.dumps((how, _described(graph)), 2)  # distinguishes 1, 1.0 and True, and 0.0 and -0.0
    except (ValueError, _Uncacheable):
        return b"", 0
    return blake2b(text, digest_size=20).digest(), len(text)


class _Uncacheable(Exception):
    """An op that is not in the table, or a parameter that is an object."""


def _described(graph: Graph) -> tuple[Any, ...]:
    """A graph as tuples of numbers and texts."""
    numbers: dict[Any, int] = {x: i for i, x in enumerate(graph.inputs)}
    lines = []
    for node in graph.nodes:
        numbers[node] = len(numbers)
        inputs = tuple([numbers[x] if type(x) is GraphNode else (x,) for x in node.inputs])
        params: tuple[Any, ...] = node.params
        if node.regions:
            params = tuple([(name, _value(x)) for name, x in params])
        else:
            for _, x in params:
                if not is_plain(x):
                    raise _Uncacheable
        number = _numbers.get(node.op)
        lines.append((_number(node.op) if number is None else number, inputs, params))
    avals = tuple([(x.aval.dtype.str, x.aval.shape) for x in graph.inputs])
    return avals, tuple(lines), tuple([numbers[x] for x in graph.outputs])


_numbers: dict[Any, int] = {}


def _number(op: object) -> int:
    """The number of an op in the table."""
    number = _numbers.get(op)
    if number is None:
        for each in (*TABLE.values(), result):
            _numbers.setdefault(each, len(_numbers))
        number = _numbers.get(op)
        if number is None:
            raise _Uncacheable
    return number


def _value(x: object) -> Any:
    if type(x) is Graph:
        return _described(x)
    if type(x) is tuple and x and type(x[0]) is Graph:
        return tuple(map(_described, x))
    if not is_plain(x):
        raise _Uncacheable
    return x


def known(key: bytes) -> Planned | None:
    """The cached plan for this key, or None."""
    with _lock:
        result = _plans.get(key)
        if result is None:
            return None
        _plans.move_to_end(key)
        return result[0]


def note(key: bytes, size: int, planned: Planned) -> None:
    """Cache a plan, and evict the least recently used ones."""
    global _sum
    if not key or size > MAX_BYTES:
        return
    with _lock:
        _, before = _plans.pop(key, (None, 0))
        _plans[key] = planned, size
        _sum += size - before
        while _sum > MAX_BYTES:
            _, (_, evicted_size) = _plans.popitem(last=False)
            _sum -= evicted_size


def forget() -> None:
    """Clear the cache."""
    global _sum
    with _lock:
        _plans.clear()
        _sum = 0
