"""Fast paths of recording elementwise operations and integer indexing, the most frequent operations of loops.

The builder caches a *plan* per combination of operand kinds: which operands are broadcast, and the aval of the result.
A later operation with the same key makes its node from the plan. Operations without a plan, which need casts or other
work, use the general path: `Elementwise.__call__`, `numpy_api.indexing`, `Tracer.bind`. Both paths record the same
nodes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.avals import LITERALS, Aval, weak_dtype
from tracegrad.errors import TracegradError
from tracegrad.ir import GraphNode
from tracegrad.numpy_api.array_methods import ArrayMethods
from tracegrad.numpy_api.complex_order import ORDERED, is_complex
from tracegrad.numpy_api.indexing import setitem
from tracegrad.numpy_api.protocols import decides
from tracegrad.numpy_api.registry import dispatch_ufunc
from tracegrad.numpy_api.ufuncs import OP_OF_UFUNC
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import dispatch_operand
from tracegrad.ops.shape.linear import broadcast_to, reshape, slice
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.recording import mark
from tracegrad.trace.values.traced_memory import TracedMemory
from tracegrad.utils.errstate import USUAL, traps

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array

_MAX_PLANS = 10_000


class _OperationPlan(NamedTuple):
    """Plan of an elementwise operation for some operand kinds: the aval of the result, and for each operand the
    parameters and the aval of a `broadcast_to`, if it needs one. Without `aval` there is no fast path. The operand
    avals, whose identities are the key, are kept alive."""

    aval: Aval | None
    broadcasts: tuple[tuple[Any, Aval] | None, ...] | None
    kinds: tuple[Any, ...]


def _make_plan(op: Elementwise, builder: TraceBuilder, key: object, operands: tuple[Any, ...]) -> _OperationPlan:
    kinds = tuple([type(x) if type(x) in LITERALS else x.node.aval for x in operands])
    if len(builder.plans) > _MAX_PLANS:
        builder.plans.clear()
    result = builder.plans[key] = _planned(op, builder, kinds, operands) or _OperationPlan(None, None, kinds)
    return result


def _planned(
    op: Elementwise, builder: TraceBuilder, kinds: tuple[Aval | type, ...], operands: tuple[Operand, ...]
) -> _OperationPlan | None:
    """The plan for operands that need only broadcasting, and literals as floats."""
    arrays = [x for x in kinds if type(x) is Aval]
    try:
        loop = op.loop_dtypes(*map(weak_dtype, operands))
        shape = op.shape_of(operands, arrays)
    except (TracegradError, TypeError):
        return None
    broadcasts: list[tuple[Any, Aval] | None] = []
    for kind, dtype in zip(kinds, loop):
        if type(kind) is not Aval:
            if dtype.kind != "f":
                return None
        elif kind.dtype != dtype:
            return None
        same = type(kind) is not Aval or kind.shape == shape
        broadcasts.append(None if same else ((("shape", shape),), builder.aval(shape, dtype)))
    if loop[-1].kind == "c" or not {x.dtype for x in arrays}.issuperset(loop[:-1]):
        return None
    return _OperationPlan(builder.aval(shape, loop[-1]), tuple(broadcasts) if any(broadcasts) else None, kinds)


def generally(op: Elementwise, operands: tuple[Operand, ...]) -> Any:
    if op in ORDERED and is_complex(*operands):
        return ORDERED[op](*operands)
    ready = op.conformed(operands)
    owner: Any = dispatch_operand(ready)
    return owner.bind(op, ready, {})


def _broadcast(builder: TraceBuilder, node: Any, broadcast: Any) -> Any:
    if broadcast is None:
        return node
    items, aval = broadcast
    return builder.known(broadcast_to, (node,), items, (broadcast_to, node, items), aval)


def _is_row_major(*xs: Any) -> bool:
    for x in xs:  # noqa: SIM110 (a loop is faster)
        if x.stand_in is not None:
            return False
    return True


def _result(weak: bool, builder: TraceBuilder, node: GraphNode, aval: Aval, layout_inputs: int) -> Any:
    if weak:
        return builder.make_number(builder, node)
    result = builder.make(builder, node)
    if traps() is not USUAL:
        builder.spring(node)
    if layout_inputs and len(aval.shape) > 1 and builder.makes_views:
        result.layout_inputs = layout_inputs
    return result


def of_one(op: Elementwise, general: Callable[..., object], weak: bool = False) -> Callable[..., Any]:
    token = object()

    def fast_path(operands: tuple[Any, ...], params: object = None) -> Any:
        (x,) = operands
        builder = x.builder
        if builder.inner is None:
            node = x.node
            key = (token, id(node.aval))
            aval, _, _ = builder.plans.get(key) or _make_plan(op, builder, key, operands)
            if aval is not None and (len(aval.shape) < 2 or x.stand_in is None):
                node = builder.known(op, (node,), (), (op, node), aval)
                return _result(weak, builder, node, aval, x.layout_inputs)
        return general(op, operands)

    return fast_path


def of_two(op: Elementwise, general: Callable[..., object], weak: bool = False) -> Callable[..., Any]:
    token = object()

    def fast_path(operands: tuple[Any, ...], params: object = None) -> Any:
        x, y = operands
        builder = x.builder
        if builder.inner is None and y.builder is builder:
            a, b = x.node, y.node
            key = (token, id(a.aval), id(b.aval))
            aval, broadcasts, _ = builder.plans.get(key) or _make_plan(op, builder, key, operands)
            if aval is not None and (len(aval.shape) < 2 or _is_row_major(x, y)):
                if broadcasts is not None:
                    a, b = _broadcast(builder, a, broadcasts[0]), _broadcast(builder, b, broadcasts[1])
                node = builder.known(op, (a, b), (), (op, a, b), aval)
                return _result(weak, builder, node, aval, x.layout_inputs | y.layout_inputs)
        return general(op, operands)

    return fast_path


def with_literal(
    op: Elementwise, second: bool, general: Callable[..., object], weak: bool = False
) -> Callable[..., Any]:
    """The fast path for an array and a literal, in either order."""
    tokens = {bool: object(), int: object(), float: object()}

    def fast_path(operands: tuple[Any, ...], params: object = None) -> Any:
        x, y = operands if second else operands[::-1]
        builder = x.builder
        if builder.inner is None:
            node = x.node
            key = (tokens[type(y)], id(node.aval))
            aval, _, _ = builder.plans.get(key) or _make_plan(op, builder, key, operands)
            if aval is not None and (len(aval.shape) < 2 or x.stand_in is None):
                y = float(y)
                inputs, m = ((node, y), mark(y)) if second else ((y, node), mark(y))
                node = builder.known(op, inputs, (), (op, node, m) if second else (op, m, node), aval)
                return _result(weak, builder, node, aval, x.layout_inputs)
        return general(op, operands)

    return fast_path


def of_three(op: Elementwise, general: Callable[..., object]) -> Callable[..., Any]:
    """The fast path for three arrays; the last or the last but one may be a literal."""
    token = object()

    def fast_path(operands: tuple[Any, ...], params: object = None) -> Any:
        arrays = [x for x in operands if type(x) not in LITERALS]
        builder = arrays[0].builder
        if builder.inner is None and all([x.builder is builder for x in arrays]):  # noqa: C419 (a list is faster)
            key = (token, *[type(x) if type(x) in LITERALS else id(x.node.aval) for x in operands])
            aval, broadcasts, _ = builder.plans.get(key) or _make_plan(op, builder, key, operands)
            if aval is not None and (len(aval.shape) < 2 or _is_row_major(*arrays)):
                inputs = [float(x) if type(x) in LITERALS else x.node for x in operands]
                if broadcasts is not None:
                    inputs = [
                        x if broadcast is None else _broadcast(builder, x, broadcast)
                        for x, broadcast in zip(inputs, broadcasts)
                    ]
                marks = [mark(x) if type(x) is float else x for x in inputs]
                node = builder.known(op, tuple(inputs), (), (op, *marks), aval)
                return _result(
                    False, builder, node, aval, functools.reduce(operator.or_, [x.layout_inputs for x in arrays])
                )
        return general(op, operands)

    return fast_path


# -- operators -----------------------------------------------------------------------------------------------
def fast_operators(op: Elementwise, name: str) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """The operator of this name on tracers, and its reflected form."""
    usual, usual_reflected = getattr(ArrayMethods, f"__{name}__"), getattr(ArrayMethods, f"__r{name}__")
    fast_paths = op.dispatch_cache

    def forward(self: TracedMemory, other: object) -> Any:
        fast_path = fast_paths.get((type(self), type(other)))
        return usual(self, other) if fast_path is None else fast_path((self, other))

    def reflected(self: TracedMemory, other: object) -> Any:
        fast_path = fast_paths.get((type(other), type(self)))
        return usual_reflected(self, other) if fast_path is None else fast_path((other, self))

    return forward, reflected


def array_ufunc(self: TracedMemory, ufunc: object, method: str, *inputs: object, **kwargs: object) -> object:
    """`Tracer.__array_ufunc__`, by the fast path of the op if it has one."""
    if not kwargs and method == "__call__":
        op = OP_OF_UFUNC.get(ufunc)
        fast_path = None if op is None else op.dispatch_cache.get(tuple(map(type, inputs)))
        if fast_path is not None:
            return fast_path(inputs, {})
    if decides("__array_ufunc__", inputs):
        return NotImplemented
    return dispatch_ufunc(ufunc, method, inputs, kwargs)


# -- x[1, 2] -------------------------------------------------------------------------------------------------
def picked(x: TracedMemory, index: tuple[Any, ...]) -> Any:
    """`x[index]`, if all indices are Python integers in range; else None."""
    builder, shape = x.builder, x.node.aval.shape
    if builder.inner is not None or not builder.makes_views or not 0 < len(index) <= len(shape):
        return None
    start, stop = [], []
    for i, n in zip(index, shape):
        if type(i) is not int or not -n <= i < n:
            return None
        i = i if i >= 0 else i + n
        start.append(i)
        stop.append(i + 1)
    node, aval = x.node, x.node.aval
    rest = shape[len(index) :]
    sizes = (1,) * len(index) + rest
    if sizes != shape:
        items = ("start", (*start, *(0,) * len(rest))), ("step", (1,) * len(shape)), ("stop", (*stop, *rest))
        node = builder.known(slice, (node,), items, (slice, node, items), builder.aval(sizes, aval.dtype))
    shaped = (("shape", rest),)
    node = builder.known(reshape, (node,), shaped, (reshape, node, shaped), builder.aval(rest, aval.dtype))
    tracer = builder.make(builder, node)
    return x._registered(tracer, partial(_with_item, index), 0, x._layout()[index]) if rest else tracer


def _with_item(index: tuple[int, ...], base: object, new: object) -> object:
    return setitem(base, index, new)
