"""Detect lookups keyed by a differentiated value (memoization in dicts), which would lose the derivative.

A value stored by an earlier call is a number without a derivative. The derivative of a memoizing function would be 0
from the second call on. This raises `LostDerivativeError`. A value stored by the same trace has its derivative, and a
test for membership is a value guard. Dict proxies know which items they return. Other containers are recognized
by the comparison of one of their keys with the value, after its hash was read.

A rounded key (`round(x, 6)`, `f"{x:.3f}"`) may index a table, whose derivative is 0, or memoize results. It memoizes if
the code also assigns an item of the same container by the same variable.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.cpython.frames import instruction_of, reads_item
from tracegrad.errors import lost, user_frame
from tracegrad.ir import GraphValue
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.bytecode.code_queries import assigned_items, loaded_before
from tracegrad.trace.values.text_conversions import is_rounded, numbers_in, spells
from tracegrad.trace.values.traced_value import TracedValue

_METHODS = frozenset(["get", "pop", "setdefault"])


def _is_differentiated(key: object) -> bool:
    if type(key) is tuple:
        return any(map(_is_differentiated, key))
    if isinstance(key, GraphValue):
        carried: Any = key
        return bool(carried._is_differentiated())
    if type(key) is int:
        trace = current_trace()
        return trace is not None and key in trace.text_numbers.hashes and trace.derives()
    return isinstance(key, str) and spells(key)


def _depends_on_differentiated(key: object) -> bool:
    if type(key) is tuple:
        return any(map(_depends_on_differentiated, key))
    if isinstance(key, GraphValue):
        carried: Any = key
        return bool(carried._depends_on_differentiated())
    return isinstance(key, str) and is_rounded(key)


def check_dict_item(key: object, item: object, remembers: bool = False) -> None:
    """Check an item that an outside dict returns for a key; `remembers`: a missing item would have been inserted."""
    is_differentiated = _is_differentiated(key)
    if not is_differentiated and not _depends_on_differentiated(key):
        return  # the item is not read, so its length is no guard
    if any(map(_has_numbers, tree.leaves(item))) and (is_differentiated or remembers or _remembers()):
        raise _lost()


def _has_numbers(x: object) -> bool:
    """Whether it is, or holds, numbers that could have a derivative."""
    carried: Any = x
    return carried.dtype.kind in "fc" if isinstance(x, GraphValue) else any(True for _ in numbers_in(x))


def _remembers() -> bool:
    """Whether the user code also assigns an item of the container it reads now, by the same key variable."""
    frame = user_frame()
    if frame is None:
        return False
    before = loaded_before(frame.f_code, instruction_of(frame))
    return any(container in before[-6:] and key in before[-4:] for container, key in assigned_items(frame.f_code))


def _lost() -> Exception:
    reason = "is asked for a value that is being differentiated, and has numbers without a derivative"
    instead = "say stop_gradient(x) if a constant is meant, or let functools.cache remember what was computed"
    return lost("a dict of what was computed before", reason, instead)


def _current_instruction() -> tuple[int, int, bool]:
    """The user's current instruction, and whether it returns the item of a container under a key."""
    frame = user_frame()
    if frame is None:
        return 0, 0, False
    return id(frame), instruction_of(frame), reads_item(frame, _METHODS)


def hash_of(x: object) -> int:
    """`hash`, which code may use as a key of memoized results."""
    result = hash(x)
    trace = current_trace()
    if trace is not None and trace.open and _is_differentiated(x):
        trace.text_numbers.hashes.add(result)
    return result


class TracedKey(TracedValue):
    """A traced value that may be a key."""

    __slots__ = ()

    def __hash__(self) -> int:
        if self.shape or self.is_array:
            raise TypeError("unhashable type: 'numpy.ndarray'")
        result = hash(self._plain("hash()"))
        if self.builder.open and self._is_differentiated():
            self.builder.text_numbers.hashed_at = _current_instruction()
        return result

    def __eq__(self, other: object) -> Any:
        check_key_lookup(self, other)
        return super().__eq__(other)


def check_key_lookup(x: Any, other: Any) -> None:
    """Check a comparison of a traced value with another one, which may be a lookup by a container."""
    before = x.builder.text_numbers.hashed_at
    if before is None or not before[2] or not issubclass(type(other), float | np.floating):  # tracers are neither
        return
    if before == _current_instruction() and x._is_differentiated():
        raise _lost()
