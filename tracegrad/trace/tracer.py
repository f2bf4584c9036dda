"""Tracers: what a traced function computes with in the place of arrays and Python numbers.

A tracer is a box that holds a node of the trace's graph. NumPy's operators, methods and functions on it record nodes
(`numpy_api`); a value that Python code asks for is the value of the call being traced, and leaves a guard.

In-place updates put another node into the box, so everything that refers to the array sees them. A view (the result of
basic indexing, `reshape`, `.T`, ...) knows its base and writes through to it. Refused, with the user's line:

- updates of arrays from outside (arguments, captured arrays): the caller's array would not change;
- updates of an array while another view of it is alive: that view would not see the update.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import ShapeError, UnsupportedError, located
from tracegrad.ir import Node, Value
from tracegrad.numpy_api.methods import ArrayMethods
from tracegrad.ops.linear import broadcast_to, cast
from tracegrad.trace.builder import TraceBuilder

__all__ = ["Number", "Tracer", "make_tracer"]

_NO_VIEWS: tuple[Any, ...] = ()


class Tracer(ArrayMethods, Value):
    """An array of the call being traced."""

    __slots__ = ("__weakref__", "base", "frozen", "put", "views")
    builder: TraceBuilder
    _tracks_views = True

    def __init__(self, builder: TraceBuilder, node: Node):
        self.builder, self.node = builder, node
        self.frozen = ""
        self.base: Tracer | None = None
        self.put: Callable[[Any, Any], Any] | None = None
        self.views: Any = _NO_VIEWS

    def concrete(self, asked: str) -> np.ndarray[Any, Any]:
        """The value in the call being traced; the trace then holds only for calls with the same answer."""
        return self.builder.observe(self, asked)

    def _lift(self, x: Any) -> Any:
        return self.builder.lift(x)

    # -- views and updates in place --------------------------------------------------------------
    def _alias(self) -> Tracer:
        """The same value as another array."""
        return make_tracer(self.builder, self.node)

    def _viewed(self, result: Any, put: Callable[[Any, Any], Any]) -> Any:
        """`result` as a view of this array; `put(base, new)` is this array with `new` in the place of the view."""
        view = make_tracer(self.builder, result.node)
        view.base, view.put, view.frozen = self, put, self.frozen
        self.views = [*(r for r in self.views if r() is not None), weakref.ref(view)]
        return view

    def _assign(self, new: Any) -> None:
        """Become `new`, as an update in place makes it."""
        self._check_writable()
        if is_literal(new) or isinstance(new, np.ndarray | np.generic):
            new = self.builder.lift(np.asarray(new))
        if new.dtype != self.dtype:
            new = cast(new, dtype=self.dtype.name)
        if new.shape != self.shape:
            try:
                new = broadcast_to(new, shape=self.shape)
            except ShapeError as error:
                raise ShapeError(located(f"in-place update of an array of shape {self.shape}: {error}")) from None
        if self.base is not None and self.put is not None:
            self.base._assign_part(self, self.put(self.base, new))
        self.node = new.node

    def _assign_part(self, writer: Tracer, new: Any) -> None:
        alive = [v for r in self.views if (v := r()) is not None and v is not writer]
        if alive:
            raise UnsupportedError(located("in-place update of a view while another view of the same array is in use; copy one"))
        if self.base is not None and self.put is not None:
            self.base._assign_part(self, self.put(self.base, new))
        self.node = new.node

    def _check_writable(self) -> None:
        if self.frozen:
            raise UnsupportedError(located(f"in-place update of {self.frozen}; copy it first (x = x.copy())"))
        if any(r() is not None for r in self.views):
            raise UnsupportedError(located("in-place update of an array while a view of it is in use; copy the view"))


class Number(Tracer):
    """A Python number given as an argument: it takes the dtype of the arrays it meets, as a literal does."""

    __slots__ = ()
    weak = True

    def _weakened(self, result: Any) -> Any:
        return Number(self.builder, result.node) if isinstance(result, Tracer) else result


def make_tracer(builder: TraceBuilder, node: Node) -> Tracer:
    """An array of the trace."""
    return Tracer(builder, node)
