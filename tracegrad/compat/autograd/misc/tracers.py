"""Functions that are recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tracegrad.api import trace

__all__ = ["const_graph"]


def const_graph(fun: Callable[..., object], *args: object, **kwargs: object) -> Callable[..., Any]:
    """Compile a function of the other arguments.

    >>> print(const_graph(lambda power, x: x**power, 2)(3.0))
    9.0
    """
    return trace(partial(fun, *args, **kwargs))
