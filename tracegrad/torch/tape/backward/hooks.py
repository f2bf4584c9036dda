"""Hooks on Tensors and nodes, in the order of registration, each removable by its handle."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

_numbers = itertools.count()


class RemovableHandle:
    """Handle of a hook: `remove()`, or the end of its `with` block, removes the hook.

    >>> hooks = {}
    >>> with RemovableHandle(hooks, print) as handle:
    ...     len(hooks)
    1
    >>> len(hooks)
    0
    """

    def __init__(self, hooks: dict[int, Callable[..., object]], hook: Callable[..., object]):
        self._hooks = hooks
        self.id = next(_numbers)
        hooks[self.id] = hook

    def remove(self) -> None:
        """Remove the hook, unless it was removed before."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Hooks:
    """Hooks of a node, and `metadata`, a dict for users' notes.

    `tensor` are the hooks on the cotangent of an output, by its number. `retained` are the Tensors that retain the
    cotangent of an output. `before` run on all cotangents before the node, `after` on its results. `accumulated` run
    after a leaf's gradient has been accumulated.
    """

    __slots__ = ("accumulated", "after", "before", "metadata", "retained", "tensor")

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.tensor: dict[int, dict[int, Callable[..., Any]]] = {}
        self.retained: dict[int, weakref.ref[Any]] = {}
        self.before: dict[int, Callable[..., Any]] = {}
        self.after: dict[int, Callable[..., Any]] = {}
        self.accumulated: dict[int, Callable[..., Any]] = {}
