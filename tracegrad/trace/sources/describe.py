"""Describe functions and their arguments in messages."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tracegrad.utils.lazy_dataclass import record


@record(frozen=True, slots=True)
class Description:
    """Lazily computed name and location of a function, for messages.

    >>> describe(len).name
    'len'
    """

    fun: Callable[..., Any]
    role: str = ""

    @property
    def _inner(self) -> object:
        inner: Any = inspect.unwrap(self.fun)
        while isinstance(inner, functools.partial):
            inner = inner.func
        return getattr(inner, "__func__", inner)

    @property
    def name(self) -> str:
        """The qualified name of the function, or of its class."""
        inner = self._inner
        name: str = getattr(inner, "__qualname__", type(inner).__qualname__)
        return name.replace("<locals>.", "")

    @property
    def location(self) -> str:
        """`file:line` of its definition, or an empty string."""
        inner = self._inner
        code = getattr(inner, "__code__", None) or getattr(vars(type(inner)).get("__call__"), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else ""

    def __str__(self) -> str:
        location = self.location
        return f"{self.role}{self.name} ({location})" if location else f"{self.role}{self.name}"

    def argument(self, i: int) -> str:
        """The name of the positional argument `i`."""
        signature = signature_of(self.fun)
        names = list(signature.parameters) if signature else []
        return names[i] if i < len(names) else f"argument {i}"


def describe(fun: Callable[..., Any], role: str = "") -> Description:
    """The description of `fun`, or of the function it wraps; `role` precedes the name."""
    return Description(fun, role)


def signature_of(fun: Callable[..., object]) -> inspect.Signature | None:
    """The signature of `fun`; None if Python cannot determine it."""
    try:
        return inspect.signature(fun)
    except (TypeError, ValueError):
        return None
