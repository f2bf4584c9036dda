"""Eager dispatch of n-ary ops: one recorder for the operand classes, by cases of dtypes and shapes.

One lookup finds the case: whether NumPy can compute the op on the operands without conversion, and the recording plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS, Aval, is_literal
from tracegrad.errors import DTypeError
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import Op, dispatch_operand
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.recording.node import Spec, next_number
from tracegrad.torch.tape.recording.op_node import cache_plan, plan_of
from tracegrad.torch.tape.recording.saved_tensor import SavedArray, copy_saved_borrowed, save_result
from tracegrad.utils.errstate import QUIET, restore_traps, set_traps, traps

__all__ = ["is_ready", "of_some", "shapes_of"]

_ndarray, _asarray = np.ndarray, np.asarray
_new = object.__new__


def of_some(op: Op, cls: Any, kinds: tuple[Any, ...], general: Callable[..., Any]) -> Callable[..., Any]:
    """Return the recorder of an op of operands of these `kinds`: arrays of the class `cls`, and numbers.

    It is a function of the operands and the parameters.
    """
    if not all([kind is cls or kind is float or kind is int for kind in kinds]):  # noqa: C419 (a list is faster)
        return general
    function, record, mixed = op.impl, _of_some(op), _mixed_key(op, cls)
    plain = all([kind is cls for kind in kinds])  # noqa: C419
    known: dict[Any, _Case] = {}

    def apply(operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if STATE.unusual:
            return general(operands, params)
        key = (*map(_traits, operands), *params.items()) if plain else mixed(operands, params)
        try:
            case = known[key]
        except (KeyError, TypeError):
            case = cache_plan(known, key, _Case(op, operands))
        if not case.ready:
            return general(operands, params)
        arrays = [x.array for x in operands] if plain else [x.array if x.__class__ is cls else x for x in operands]
        before = traps()
        try:
            set_traps(QUIET)
            ans = function(*arrays, **params)
        except (ValueError, OverflowError):  # the error of the op is clearer than NumPy's
            ans = None
        finally:
            restore_traps(before)
        if ans is None or ans.__class__ is tuple:
            value: Any = dispatch_operand(operands)
            return value._result(op, operands, tuple(arrays), params, ans) if ans else general(operands, params)
        out = _new(cls)
        out.array = ans if ans.__class__ is _ndarray else _asarray(ans)
        out._counter = [0]
        if case.tracked and STATE.enabled:
            record(out, case, operands, arrays, params)
        return out

    return apply


_traits = attrgetter("array.dtype", "array.shape", "_requires")


def _mixed_key(op: Op, cls: Any) -> Callable[..., tuple[Any, ...]]:
    """Return the key function of cases with numbers among the operands."""
    number = _class_of if isinstance(op, Elementwise) else _known_number

    def key(operands: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
        return (*[_traits(x) if x.__class__ is cls else number(x) for x in operands], *params.items())

    return key


_class_of = attrgetter("__class__")


def _known_number(x: Any) -> Any:
    return x.__class__, x


class _Case:
    """Case of operand dtypes and shapes.

    `ready`: whether NumPy computes the op on the operands without conversion. `tracked`: whether any requires grad.
    The first record sets the plan, the positions `edge_positions` of the operands that get an edge, and the `shapes` of
    the operands of an elementwise op that broadcasts.
    """

    __slots__ = ("edge_positions", "plan", "ready", "shapes", "tracked")
    plan: Any
    edge_positions: tuple[int, ...]
    shapes: Any

    def __init__(self, op: Op, operands: tuple[Any, ...]):
        kinds = tuple([type(x) if type(x) in LITERALS else x.array.dtype for x in operands])
        self.ready = not isinstance(op, Elementwise) or is_ready(op, kinds)
        self.tracked = any([getattr(x, "_requires", False) for x in operands])  # noqa: C419
        self.plan = _UNKNOWN


_UNKNOWN: Any = object()


def is_ready(op: Elementwise, kinds: tuple[Any, ...]) -> bool:
    """Whether an elementwise op computes in these dtypes without promotion; a number needs a floating loop dtype."""
    try:
        loop = op.loop_dtypes(*kinds)
    except DTypeError:
        return False
    for kind, dtype in zip(kinds, loop):
        if isinstance(kind, type):
            if kind not in (float, int) or dtype.kind != "f":
                return False
        elif kind != dtype:
            return False
    return not all(isinstance(kind, type) for kind in kinds)


def _of_some(op: Op) -> Callable[..., None]:
    """Make the recorder of any op."""
    elementwise = isinstance(op, Elementwise)

    def set_plan(case: _Case, out: Any, operands: tuple[Any, ...], arrays: Any, params: dict[str, Any]) -> None:
        wanted = [k for k, x in enumerate(operands) if x is not arrays[k] and x._requires and op.differentiable_in(k)]
        avals = [a if x is a else Aval(() if elementwise else a.shape, a.dtype) for x, a in zip(operands, arrays)]
        smooth = out.array.dtype.kind in "fc"
        case.plan = plan_of(op, tuple(wanted), tuple(avals), params=params) if smooth else None
        case.edge_positions = tuple(wanted)
        case.shapes = shapes_of(arrays, out.array) if elementwise else None

    def record(out: Any, case: _Case, operands: tuple[Any, ...], arrays: Any, params: dict[str, Any]) -> None:
        if case.plan is _UNKNOWN:
            set_plan(case, out, operands, arrays, params)
        plan = case.plan
        if plan is None:
            return
        result = _new(plan.cls)
        result.plan, result.params, result.hooks, result.shapes = plan, params, None, case.shapes
        edges = [*plan.blank]
        for k in case.edge_positions:
            x = operands[k]
            edges[k] = x._edge or x._source()
        result.edges = tuple(edges)
        result.number = next_number()  # after the rebuilt node of a view
        result.operands = plan.specs
        if plan.saved_operands:
            saved = [*plan.specs]
            for k in plan.saved_operands:
                x, a = operands[k], arrays[k]
                if x is not a:
                    x = _new(SavedArray)
                    x.array, x.counter = a, operands[k]._counter
                    x.version = x.counter[0] if x.counter.__class__ is list else copy_saved_borrowed(x)
                saved[k] = x
            result.operands = tuple(saved)
        result.saved_result = save_result(out) if plan.saves_result else plan.spec
        out._requires = True
        out._edge = result

    return record


def shapes_of(arrays: Sequence[Any], ans: Any) -> Any:
    """Return the specs of an elementwise op's operands if one differs from the result in shape or dtype, else None."""
    shape, dtype = ans.shape, ans.dtype
    for x in arrays:
        if type(x) not in LITERALS and (x.shape != shape or x.dtype is not dtype):
            return tuple([None if is_literal(a) else Spec(a.shape, a.dtype) for a in arrays])
    return None
