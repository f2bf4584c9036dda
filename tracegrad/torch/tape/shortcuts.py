"""The short way: what Tensors do most, for the operands they mostly have.

An eager op on a few elements is bookkeeping, and the general way through the ops does more of it than floating arrays
of one dtype need: there is nothing to promote, NumPy broadcasts, and the node to record is known beforehand. Whatever
is not so goes the general way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.ops.declare import Elementwise
from tracegrad.ops.op import Op
from tracegrad.quiet import QUIET, reset_traps, set_traps
from tracegrad.torch.tape import views
from tracegrad.torch.tape.modes import STATE
from tracegrad.torch.tape.opnode import Plan, node_class, plan_of
from tracegrad.torch.tape.tape import Spec, next_number

__all__ = ["operator", "power", "product", "reflected", "reshaped", "total", "unary"]

Method = Callable[..., Any]

_ndarray, _asarray = np.ndarray, np.asarray
_new = object.__new__
_F64, _F32 = np.dtype(np.float64), np.dtype(np.float32)
_NONE: dict[str, Any] = {}


def _usual(cls: Any, x: Any) -> bool:
    """Whether `x` is a floating array of this class, in a mode in which nothing special is done about results."""
    if x.__class__ is not cls or STATE.unusual or x._counter is None:
        return False
    dtype = x.array.dtype
    return dtype is _F64 or dtype is _F32


def _computed(cls: Any, function: Any, *arrays: Any) -> Any:
    token = set_traps(QUIET)
    try:
        answer = function(*arrays)
    finally:
        reset_traps(token)
    out = _new(cls)
    out.array = answer if answer.__class__ is _ndarray else _asarray(answer)
    out._counter = [0]
    return out


def _noted(op: Op, plan: Plan, out: Any, edges: tuple[Any, ...], operands: tuple[Any, ...], checks: Any) -> Any:
    """Record `op` as what made `out`; `checks` are those of what is saved of the operands."""
    node = _new(plan.cls)
    node.number = next_number()
    node.op = op
    node.params = _NONE
    node.hooks = node.shapes = node.answer = None
    node.edges = edges
    node.operands = operands
    if plan.answer:
        node.answer = out.array
        checks.append((out._counter, 0, -1))
    node.checks = checks
    out._requires = True
    out._edge = node
    return node


def operator(cls: Any, op: Op, general: Method) -> Method:
    """An operator of two arrays of `cls` with one dtype, or of one and a number on the right."""
    pair, beside = _pair(cls, op, general), _beside_number(cls, op, general)

    def apply(self: Any, other: Any) -> Any:
        if not _usual(cls, self):
            return general(self, other)
        kind = other.__class__
        if kind is cls:
            return pair(self, other)
        return beside(self, other) if kind is float or kind is int else general(self, other)

    return apply


def _beside_number(cls: Any, op: Op, general: Method) -> Method:
    function = op.impl
    plan = plan_of(op, (2, 0))
    x_kept, y_kept = plan.operands

    def apply(self: Any, other: Any) -> Any:
        x = self.array
        try:
            out = _computed(cls, function, x, other)
        except OverflowError:
            return general(self, other)
        if self._requires and STATE.enabled:
            checks = [(self._counter, self._counter[0], 0)] if x_kept else [] if plan.saves else None
            edges = (self._edge or self._source(), None)
            _noted(op, plan, out, edges, (x if x_kept else None, other if y_kept else None), checks)
        return out

    return apply


def product(cls: Any, ops: dict[tuple[int, int], tuple[Op, str]], general: Method) -> Method:
    """The operator @ of two arrays of `cls` with one dtype; `ops` has the op and the node's name by their ranks."""
    ways = {ranks: _pair(cls, op, general, name) for ranks, (op, name) in ops.items()}

    def apply(self: Any, other: Any) -> Any:
        if other.__class__ is not cls or not _usual(cls, self):
            return general(self, other)
        return ways.get((self.array.ndim, other.array.ndim), general)(self, other)

    return apply


def _pair(cls: Any, op: Op, general: Method, name: str = "") -> Method:
    function = op.impl
    elementwise = isinstance(op, Elementwise)
    # By what requires grad: both, the left one, the right one.
    both, left, right = (plan_of(op, kinds) for kinds in ((2, 2), (2, 1), (1, 2)))
    if name:
        both, left, right = (plan._replace(cls=node_class(name)) for plan in (both, left, right))

    def apply(self: Any, other: Any) -> Any:
        x, y = self.array, other.array
        if y.dtype is not x.dtype or other._counter is None:
            return general(self, other)
        try:
            out = _computed(cls, function, x, y)
        except ValueError:
            return general(self, other)
        if STATE.enabled and (self._requires or other._requires):
            a = (self._edge or self._source()) if self._requires else None
            b = (other._edge or other._source()) if other._requires else None
            plan = right if a is None else left if b is None else both
            x_kept, y_kept = plan.operands
            checks: Any = [] if plan.saves else None
            if x_kept:
                checks.append((self._counter, self._counter[0], 0))
            if y_kept:
                checks.append((other._counter, other._counter[0], 1))
            node = _noted(op, plan, out, (a, b), (x if x_kept else None, y if y_kept else None), checks)
            if elementwise and x.shape != y.shape:
                node.shapes = (Spec(x.shape, x.dtype), Spec(y.shape, y.dtype))
        return out

    return apply


def reflected(cls: Any, op: Op, general: Method, name: str = "") -> Method:
    """An operator with a number on the left; its node is called `name`."""
    function = op.impl
    plan = plan_of(op, (0, 2))
    if name:
        plan = plan._replace(cls=node_class(name))
    y_kept, x_kept = plan.operands

    def apply(self: Any, other: Any) -> Any:
        kind = other.__class__
        if (kind is not float and kind is not int) or not _usual(cls, self):
            return general(self, other)
        x = self.array
        try:
            out = _computed(cls, function, other, x)
        except OverflowError:
            return general(self, other)
        if self._requires and STATE.enabled:
            checks = [(self._counter, self._counter[0], 1)] if x_kept else [] if plan.saves else None
            edges = (None, self._edge or self._source())
            _noted(op, plan, out, edges, (other if y_kept else None, x if x_kept else None), checks)
        return out

    return apply


def unary(cls: Any, op: Op, general: Method, name: str = "") -> Method:
    """A method without arguments that is one op; its node is called `name`."""
    function = op.impl
    plan: Any = None

    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal plan
        if args or kwargs or not _usual(cls, self):
            return general(self, *args, **kwargs)
        x = self.array
        out = _computed(cls, function, x)
        if self._requires and STATE.enabled:
            if plan is None:  # there are many such methods, and most are never called
                plan = plan_of(op, (2,))
                plan = plan._replace(cls=node_class(name)) if name else plan
            kept = plan.operands[0]
            checks = [(self._counter, self._counter[0], 0)] if kept else [] if plan.saves else None
            _noted(op, plan, out, (self._edge or self._source(),), (x if kept else None,), checks)
        return out

    apply.__name__, apply.__doc__ = op.name, (general.__doc__ or "").partition(">>>")[0].rstrip()
    return apply


_SCALARS = {dtype: Spec((), dtype) for dtype in (_F64, _F32)}
_ALL = [{"axes": tuple(range(n))} for n in range(33)]


def total(cls: Any, op: Op, function: Any, general: Method) -> Method:
    """A method that, without arguments, reduces all elements by `op`, whose rule reads shapes alone."""
    plan = plan_of(op, (2,))

    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or not _usual(cls, self):
            return general(self, *args, **kwargs)
        x = self.array
        out = _computed(cls, function, x, None)
        if self._requires and STATE.enabled:
            operands = (Spec(x.shape, x.dtype),)
            node = _noted(op, plan, out, (self._edge or self._source(),), operands, None)
            node.params, node.answer = _ALL[x.ndim], _SCALARS[x.dtype]
        return out

    apply.__name__, apply.__doc__ = op.name, (general.__doc__ or "").partition(">>>")[0].rstrip()
    return apply


def reshaped(cls: Any, op: Op, general: Method) -> Method:
    """A method that gives an array in row-major order another shape: sizes, of which none is left to find out."""
    plan = plan_of(op, (2,))

    def apply(self: Any, *shape: Any, **kwargs: Any) -> Any:
        x = self.array
        if kwargs or not _usual(cls, self) or not all(n.__class__ is int and n >= 0 for n in shape):
            return general(self, *shape, **kwargs)
        if math.prod(shape) != x.size or not x.flags.c_contiguous:
            return general(self, *shape)
        out = _new(cls)
        out.array = x.reshape(shape)
        params = {"shape": shape}
        views.register(out, self, functools.partial(op, **params))
        if self._requires and STATE.enabled:
            operands = (Spec(x.shape, x.dtype),)
            node = _noted(op, plan, out, (self._edge or self._source(),), operands, None)
            node.params, node.answer = params, Spec(shape, x.dtype)
        return out

    apply.__name__, apply.__doc__ = general.__name__, (general.__doc__ or "").partition(">>>")[0].rstrip()
    return apply


def power(square: Method, general: Method) -> Method:
    """`x ** y`, where the exponent 2 makes a square."""

    def apply(self: Any, other: Any) -> Any:
        return square(self) if other.__class__ is int and other == 2 else general(self, other)

    return apply
