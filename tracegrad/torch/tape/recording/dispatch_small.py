"""Eager dispatch of unary, binary and parameterized ops: a generated recorder for each op and class.

Bookkeeping dominates the time of an eager op on few elements. A recorder knows its op, caches a plan for each kind of
operands, and handles the common case: floating arrays and numbers in the usual modes, without promotion, and with
broadcasting by NumPy. All other cases use the `general` path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import Op, dispatch_operand
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.recording.dispatch_nary import of_some
from tracegrad.torch.tape.recording.node import Spec, next_number
from tracegrad.torch.tape.recording.op_node import RecordingPlan, cache_plan, plan_of
from tracegrad.torch.tape.recording.saved_tensor import SavedArray, copy_saved_borrowed, save_as, save_result
from tracegrad.torch.tape.tensors import aliasing
from tracegrad.utils.errstate import QUIET, restore_traps, set_traps, traps

__all__ = ["of_form", "of_kinds", "of_one", "of_two"]

_ndarray, _asarray = np.ndarray, np.asarray
_new = object.__new__
_F64, _F32 = np.dtype(np.float64), np.dtype(np.float32)
_NONE: dict[str, Any] = {}


def of_one(op: Op, cls: Any, general: Callable[..., Any], node: str = "") -> Callable[[Any], Any]:
    """Return the recorder of a unary op on the class `cls`; `node` is the node's name, if not the op's."""
    function, plans = op.impl_unchecked, dict[Any, Any]()

    def apply(input: Any) -> Any:
        x = input
        if x.__class__ is not cls or STATE.unusual:
            return general(x)
        array = x.array
        dtype = array.dtype
        if dtype is not _F64 and dtype is not _F32:
            return general(x)
        before = traps()
        try:
            set_traps(QUIET)
            ans = function(array)
        finally:
            restore_traps(before)
        out = _new(cls)
        out.array = ans if ans.__class__ is _ndarray else _asarray(ans)
        out._counter = [0]
        if not x._requires or not STATE.enabled:
            return out
        plan: Any = plans.get(dtype)
        if plan is None:
            plan = plans[dtype] = plan_of(op, (0,), (Aval((), dtype),), node)
        record = _new(plan.cls)
        record.plan = plan
        record.params = _NONE
        record.hooks = record.shapes = None
        record.edges = (x._edge or x._source(),)
        record.number = next_number()  # after the rebuilt node of a view
        record.operands = (save_as(x, array) if plan.operands[0] else None,)
        record.saved_result = save_result(out) if plan.saves_result else None
        out._requires = True
        out._edge = record
        return out

    return apply


def of_two(op: Op, cls: Any, general: Callable[..., Any], node: str = "") -> Callable[[Any, Any], Any]:
    """Return the recorder of a binary op on two operands of the class `cls`, or one operand and a number."""
    function = op.impl_unchecked
    record = _of_two(op, node)
    cases = {(cls, cls): 0, (cls, float): 4, (cls, int): 4, (float, cls): 8, (int, cls): 8}

    def apply(x: Any, y: Any) -> Any:
        case = cases.get((x.__class__, y.__class__))
        if case is None or STATE.unusual:
            return general(x, y)
        a = x if case == 8 else x.array
        b = y if case == 4 else y.array
        dtype = b.dtype if case == 8 else a.dtype
        if (dtype is not _F64 and dtype is not _F32) or (case == 0 and b.dtype is not dtype):
            return general(x, y)
        before = traps()
        try:
            set_traps(QUIET)
            ans = function(a, b)
        except (ValueError, OverflowError):  # the error of the op is clearer than NumPy's
            ans = None
        finally:
            restore_traps(before)
        if ans is None:
            return general(x, y)
        out = _new(cls)
        out.array = ans if ans.__class__ is _ndarray else _asarray(ans)
        out._counter = [0]
        if ((case != 8 and x._requires) or (case != 4 and y._requires)) and STATE.enabled:
            record(out, x, y, a, b, case, dtype)
        return out

    return apply


def _of_two(op: Op, node: str) -> Callable[..., None]:
    """Make the recorder of a binary op. Case 0: two arrays; 4: a number on the right; 8: a number on the left."""
    plans: dict[Any, Any] = {}
    shaped = not isinstance(op, Elementwise)

    def record(out: Any, x: Any, y: Any, a: Any, b: Any, case: int, dtype: Any) -> None:
        # 1 and 2 are added to the case for a left and a right operand that require grad.
        left = right = None
        if case != 8 and x._requires:
            left = x._edge or x._source()
            case += 1
        if not case & 4 and y._requires:
            right = y._edge or y._source()
            case += 2
        key: Any = (case, dtype, a.shape, b.shape) if shaped else case if dtype is _F64 else case + 16
        plan = plans.get(key)
        if plan is None:
            plan = cache_plan(plans, key, _binary_plan(op, case, a, b, dtype, node))
        result = _new(plan.cls)
        result.plan = plan
        result.params = _NONE
        result.hooks = None
        result.edges = (plan.blank[0] if left is None else left, plan.blank[1] if right is None else right)
        result.number = next_number()  # after the rebuilt node of a view
        reads_x, reads_y = plan.operands
        of_x, of_y = plan.specs
        # Inlined `save_as`, for the time of a call.
        if reads_x:
            of_x = x
            if x is not a:
                of_x = _new(SavedArray)
                of_x.array = a
                of_x.counter = counter = x._counter
                of_x.version = counter[0] if counter.__class__ is list else copy_saved_borrowed(of_x)
        if reads_y:
            of_y = y
            if y is not b:
                of_y = _new(SavedArray)
                of_y.array = b
                of_y.counter = counter = y._counter
                of_y.version = counter[0] if counter.__class__ is list else copy_saved_borrowed(of_y)
        result.operands = (of_x, of_y)
        result.saved_result = save_result(out) if plan.saves_result else plan.spec
        result.shapes = None
        if case < 4 and not shaped and a.shape != b.shape:
            result.shapes = (Spec(a.shape, dtype), Spec(b.shape, dtype))
        out._requires = True
        out._edge = result

    return record


def _save_results(plan: RecordingPlan, outs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        [save_result(out) if k in plan.saved_results else spec for k, (out, spec) in enumerate(zip(outs, plan.spec))]
    )


def _binary_plan(op: Op, case: int, a: Any, b: Any, dtype: Any, node: str) -> Any:
    shaped = not isinstance(op, Elementwise)
    wanted = tuple([k for k in (0, 1) if case & (1, 2)[k]])
    left = 1.0 if case & 8 else Aval(a.shape if shaped else (), dtype)
    right = 1.0 if case & 4 else Aval(b.shape if shaped else (), dtype)
    return plan_of(op, wanted, (left, right), node)


# -- ops with parameters or several results ------------------------------------------------------------------------
def of_form(
    op: Op, cls: Any, general: Callable[..., Any], node: str = "", function: Any = None, fixed: bool = False
) -> Callable[..., Any]:
    """Return the recorder of a unary op that is not elementwise: a function of the operand and the parameters.

    `function(array, params)` computes the op, if not the op's own implementation. With `fixed`, the shape determines
    the parameters.
    """
    aliases, meaning = op.aliases, op.impl_unchecked
    record, wrap_results = _of_form(op, node, fixed), _of_multi_result(op, cls, node)

    def apply(operands: tuple[Any], params: dict[str, Any]) -> Any:
        (x,) = operands
        if x.__class__ is not cls or STATE.unusual:
            return general(operands, params)
        array = x.array
        dtype = array.dtype
        if dtype is not _F64 and dtype is not _F32:
            return general(operands, params)
        before = traps()
        try:
            set_traps(QUIET)
            ans = meaning(array, **params) if function is None else function(array, params)
        finally:
            restore_traps(before)
        if ans.__class__ is tuple:
            return wrap_results(x, array, params, ans)
        out = _new(cls)
        out.array = ans if ans.__class__ is _ndarray else _asarray(ans)
        out._counter = [0]
        if aliases and aliasing.shared(ans, array):
            aliasing.register(out, x, (op, params))
        if x._requires and STATE.enabled:
            record(out, x, array, params)
        return out

    return apply


def _of_form(op: Op, node: str, fixed: bool) -> Callable[..., None]:
    """Make the recorder of a unary op that is not elementwise."""
    plans: dict[Any, Any] = {}

    def planned(key: Any, out: Any, array: Any, params: dict[str, Any]) -> Any:
        wanted = (0,) if op.differentiable_in(0) and out.array.dtype.kind in "fc" else ()
        return cache_plan(plans, key, plan_of(op, wanted, (Aval(array.shape, array.dtype),), node, params))

    def record(out: Any, x: Any, array: Any, params: dict[str, Any]) -> None:
        key = (array.shape, array.dtype) if fixed else (array.shape, array.dtype, *params, *params.values())
        try:
            plan = plans[key]
        except (KeyError, TypeError):
            plan = planned(key, out, array, params)
        if plan is None:
            return
        result = _new(plan.cls)
        result.plan = plan
        result.params = params
        result.hooks = None
        result.shapes = None
        result.edges = (x._edge or x._source(),)
        result.number = next_number()
        result.operands = (save_as(x, array),) if plan.operands[0] else plan.specs
        result.saved_result = save_result(out) if plan.saves_result else plan.spec
        out._requires = True
        out._edge = result

    return record


def _of_multi_result(op: Op, cls: Any, node: str) -> Callable[..., tuple[Any, ...]]:
    """Make the recorder of a unary op with several results."""
    plans: dict[Any, Any] = {}
    aliases = op.aliases

    def record(outs: list[Any], x: Any, array: Any, params: dict[str, Any]) -> None:
        key = (array.shape, array.dtype, *params, *params.values())
        try:
            plan = plans[key]
        except (KeyError, TypeError):
            wanted = (0,) if op.differentiable_in(0) else ()
            result = plan_of(op, wanted, (Aval(array.shape, array.dtype),), node, params)
            plan = cache_plan(plans, key, result)
        if plan is None:
            return
        output = _new(plan.cls)
        output.plan, output.params, output.hooks, output.shapes = plan, params, None, None
        output.edges = (x._edge or x._source(),)
        output.number = next_number()
        output.operands = (save_as(x, array),) if plan.operands[0] else plan.specs
        output.saved_result = _save_results(plan, outs) if plan.saves_result else plan.spec
        for k in plan.floating_results:
            out = outs[k]
            out._requires = True
            out._edge = (output, k) if k else output

    def apply(x: Any, array: Any, params: dict[str, Any], results: tuple[Any, ...]) -> tuple[Any, ...]:
        outs = []
        for ans in results:
            out = _new(cls)
            out.array = ans if ans.__class__ is _ndarray else _asarray(ans)
            out._counter = [0]
            outs.append(out)
        if aliases:
            aliasing.register_all(outs, x, op, params)
        if outs and x._requires and STATE.enabled:
            record(outs, x, array, params)
        return tuple(outs)

    return apply


# -- choice of the recorder --------------------------------------------------------------------------------------------
def of_kinds(op: Op, cls: Any, kinds: tuple[Any, ...]) -> Callable[..., Any]:
    """Return the recorder of an op for operands of the classes `kinds`; `cls` is the class of the dispatch operand.

    The recorder is a function of the operands and the parameters.
    """
    general = partial(_generally, op)
    if op.piecewise_constant:
        return general
    if isinstance(op, Elementwise) and len(kinds) <= 2 and _is_smooth(op):
        if len(kinds) == 1:
            first = of_one(op, cls, lambda x: general((x,), _NONE))
            return lambda operands, params: first(operands[0])
        both = of_two(op, cls, lambda x, y: general((x, y), _NONE))
        return lambda operands, params: both(operands[0], operands[1])
    if len(kinds) == 1 and not op.variadic and not isinstance(op, Elementwise):
        return of_form(op, cls, general)
    return of_some(op, cls, kinds, general)


def _is_smooth(op: Elementwise) -> bool:
    """Whether the op of floating arrays has a floating result, and a derivative in each operand."""
    double = (_F64,) * (len(op.operands) + 1)
    smooth = all(map(op.differentiable_in, range(len(op.operands))))
    return op._floating and op.loop_dtypes(*double[:-1]) == double and smooth


def _generally(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    owner: Any = dispatch_operand(operands)
    return owner._applied(op, operands, params)
