"""A set of the objects that are still referenced, which traced code may use."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

from tracegrad.locks import new_lock

T = TypeVar("T")


class LiveObjects(Generic[T]):
    """Weak references to objects.

    A trace reads a `WeakSet` in no function that it inlines, but calls these methods as they are.

    >>> class Point:
    ...     pass
    >>> points, p = LiveObjects[Point](), Point()
    >>> points.add(p)
    >>> points.all() == [p]
    True
    """

    def __init__(self) -> None:
        self._objects: weakref.WeakSet[T] = weakref.WeakSet()
        self._lock = new_lock()

    def add(self, x: T) -> None:
        """Add an object."""
        with self._lock:
            self._objects.add(x)

    def all(self) -> list[T]:
        """Return the objects that are still referenced."""
        with self._lock:
            return list(self._objects)
