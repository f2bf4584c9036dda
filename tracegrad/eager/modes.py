"""Whether operations are recorded: PyTorch's grad mode, one per thread."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["STATE", "enable_grad", "is_grad_enabled", "no_grad", "set_grad_enabled"]

F = TypeVar("F", bound=Callable[..., Any])


class _State(threading.local):
    """`enabled`: the grad mode; `depth`: how many eager derivatives are under way around this call."""

    enabled = True
    depth = 0


STATE = _State()


def is_grad_enabled() -> bool:
    """Whether operations on Tensors that require grad are recorded in this thread.

    >>> is_grad_enabled()
    True
    """
    return STATE.enabled


class set_grad_enabled:
    """Set the grad mode, from the call on, or as a context manager or decorator for a while.

    >>> with set_grad_enabled(False):
    ...     is_grad_enabled()
    False
    """

    def __init__(self, mode: bool):
        self.mode = mode
        self.previous = [STATE.enabled]
        STATE.enabled = mode

    def __enter__(self) -> set_grad_enabled:
        STATE.enabled = self.mode
        return self

    def __exit__(self, *_: object) -> None:
        STATE.enabled = self.previous[-1]

    def __call__(self, fn: F) -> F:
        mode, STATE.enabled = self.mode, self.previous[-1]
        return _decorated(fn, mode)


class _Mode:
    """A context manager and decorator that sets the grad mode to `mode`; may be entered again while it is active."""

    mode: bool

    def __init__(self) -> None:
        self.previous: list[bool] = []

    def __new__(cls, fn: Callable[..., Any] | None = None) -> Any:
        return super().__new__(cls) if fn is None else _decorated(fn, cls.mode)

    def __enter__(self) -> None:
        self.previous.append(STATE.enabled)
        STATE.enabled = self.mode

    def __exit__(self, *_: object) -> None:
        STATE.enabled = self.previous.pop()

    def __call__(self, fn: F) -> F:
        return _decorated(fn, self.mode)


class no_grad(_Mode):
    """Record nothing: as a context manager, or as a decorator with or without parentheses.

    >>> from tracegrad.eager import tensor
    >>> x = tensor(2.0, requires_grad=True)
    >>> with no_grad():
    ...     (x * x).requires_grad
    False
    """

    mode = False


class enable_grad(_Mode):
    """Record again, inside of `no_grad`.

    >>> with no_grad(), enable_grad():
    ...     is_grad_enabled()
    True
    """

    mode = True


def _decorated(fn: F, mode: bool) -> F:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        previous, STATE.enabled = STATE.enabled, mode
        try:
            return fn(*args, **kwargs)
        finally:
            STATE.enabled = previous

    return call  # type: ignore[return-value]
