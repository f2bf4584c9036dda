"""Record elementwise operations and integer indexing, the most frequent operations of loops, on a fast path.

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
from typing import Any, NamedTuple

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
from tracegrad.ops.core.op import TABLE, Op, dispatch_operand
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.shape.linear import broadcast_to, reshape, slice
from tracegrad.trace.builder.recording import mark
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.tracer import Tracer
from tracegrad.trace.values.views import set_shape
from tracegrad.utils.errstate import USUAL, traps

__all__: list[str] = []

_MAX_PLANS = 10_000


class _OperationPlan(NamedTuple):
    """Plan of an elementwise operation for some operand kinds: the aval of the result, and for each operand the
    parameters and the aval of a `broadcast_to`, if it needs one. Without `aval` there is no fast path. The operand
    avals, whose identities are the key, are kept alive."""

    aval: Aval | None
    broadcasts: tuple[tuple[Any, Aval] | None, ...] | None
    kinds: tuple[Any, ...]


def _make_plan(op: Elementwise, builder: Any, key: Any, operands: tuple[Any, ...]) -> _OperationPlan:
    kinds = tuple([type(x) if type(x) in LITERALS else x.node.aval for x in operands])
    if len(builder.plans) > _MAX_PLANS:
        builder.plans.clear()
    result = builder.plans[key] = _planned(op, builder, kinds, operands) or _OperationPlan(None, None, kinds)
    return result


def _planned(op: Elementwise, builder: Any, kinds: tuple[Any, ...], operands: tuple[Any, ...]) -> _OperationPlan | None:
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


def _generally(op: Elementwise, operands: tuple[Any, ...]) -> Any:
    if op in ORDERED and is_complex(*operands):
        return ORDERED[op](*operands)
    ready = op.conformed(operands)
    return dispatch_operand(ready).bind(op, ready, {})


def _broadcast(builder: Any, node: Any, broadcast: Any) -> Any:
    if broadcast is None:
        return node
    items, aval = broadcast
    return builder.known(broadcast_to, (node,), items, (broadcast_to, node, items), aval)


def _is_row_major(*xs: Any) -> bool:
    for x in xs:  # noqa: SIM110 (a loop is faster)
        if x.stand_in is not None:
            return False
    return True


def _result(kind: Any, builder: Any, node: GraphNode, aval: Aval, layout_inputs: int) -> Any:
    result = kind(builder, node)
    if traps() is not USUAL and kind is Tracer:
        builder.spring(node)
    if layout_inputs and len(aval.shape) > 1 and builder.makes_views:
        result.layout_inputs = layout_inputs
    return result


def _of_one(op: Elementwise, general: Callable[..., Any], kind: Any = Tracer) -> Callable[..., Any]:
    token = object()

    def fast_path(operands: tuple[Any, ...], params: Any = None) -> Any:
        (x,) = operands
        builder = x.builder
        if builder.inner is None:
            node = x.node
            key = (token, id(node.aval))
            aval, _, _ = builder.plans.get(key) or _make_plan(op, builder, key, operands)
            if aval is not None and (len(aval.shape) < 2 or x.stand_in is None):
                node = builder.known(op, (node,), (), (op, node), aval)
                return _result(kind, builder, node, aval, x.layout_inputs)
        return general(op, operands)

    return fast_path


def _of_two(op: Elementwise, general: Callable[..., Any], kind: Any = Tracer) -> Callable[..., Any]:
    token = object()

    def fast_path(operands: tuple[Any, ...], params: Any = None) -> Any:
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
                return _result(kind, builder, node, aval, x.layout_inputs | y.layout_inputs)
        return general(op, operands)

    return fast_path


def _with_literal(op: Elementwise, second: bool, general: Callable[..., Any], kind: Any = Tracer) -> Callable[..., Any]:
    """The fast path for an array and a literal, in either order."""
    tokens = {bool: object(), int: object(), float: object()}

    def fast_path(operands: tuple[Any, ...], params: Any = None) -> Any:
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
                return _result(kind, builder, node, aval, x.layout_inputs)
        return general(op, operands)

    return fast_path


def _of_three(op: Elementwise, general: Callable[..., Any]) -> Callable[..., Any]:
    """The fast path for three arrays; the last or the last but one may be a literal."""
    token = object()

    def fast_path(operands: tuple[Any, ...], params: Any = None) -> Any:
        arrays = [x for x in operands if type(x) is Tracer]
        builder = arrays[0].builder
        if builder.inner is None and all([x.builder is builder for x in arrays]):  # noqa: C419 (a list is faster)
            key = (token, *[id(x.node.aval) if type(x) is Tracer else type(x) for x in operands])
            aval, broadcasts, _ = builder.plans.get(key) or _make_plan(op, builder, key, operands)
            if aval is not None and (len(aval.shape) < 2 or _is_row_major(*arrays)):
                inputs = [x.node if type(x) is Tracer else float(x) for x in operands]
                if broadcasts is not None:
                    inputs = [
                        x if broadcast is None else _broadcast(builder, x, broadcast)
                        for x, broadcast in zip(inputs, broadcasts)
                    ]
                marks = [mark(x) if type(x) is float else x for x in inputs]
                node = builder.known(op, tuple(inputs), (), (op, *marks), aval)
                return _result(
                    Tracer, builder, node, aval, functools.reduce(operator.or_, [x.layout_inputs for x in arrays])
                )
        return general(op, operands)

    return fast_path


def _install(op: Elementwise) -> None:
    if len(op.operands) == 3:
        fast_path = _of_three(op, _generally)
        for last in ((Tracer, Tracer), *[pair for x in (bool, int, float) for pair in ((Tracer, x), (x, Tracer))]):
            op.dispatch_cache[Tracer, *last] = fast_path
        return
    if len(op.operands) == 1:
        op.dispatch_cache[Tracer,] = _of_one(op, _generally)
        op.dispatch_cache[Number,] = _of_one(op, _generally)
        return
    for one in (Tracer, Number):
        for other in (Tracer, Number):
            op.dispatch_cache[one, other] = _of_two(op, _generally)
        after, before = _with_literal(op, True, _generally), _with_literal(op, False, _generally)
        for literal in (bool, int, float):
            op.dispatch_cache[one, literal], op.dispatch_cache[literal, one] = after, before


def _by_the_first(op: Op) -> Callable[..., Any]:
    """The fast path of an op on arrays without casts; the first array dispatches."""
    return lambda operands, params: operands[0].bind(op, operands, params)


for _op in TABLE.values():
    if _op.binds_as_is and 0 < len(_op.operands) < 3 and not _op.variadic:
        _op.dispatch_cache[(Tracer,) * len(_op.operands)] = _by_the_first(_op)
    _is_usual = _op.order == "K" and not _op.aliases and not _op.form.raises
    if isinstance(_op, Elementwise) and _is_usual:
        _install(_op)


# -- operators -----------------------------------------------------------------------------------------------
def _forward(op: Elementwise, method: str) -> Any:
    usual, fast_paths = getattr(ArrayMethods, method), op.dispatch_cache

    def forward(self: Any, other: Any) -> Any:
        if type(self) is Tracer:
            fast_path = fast_paths.get((Tracer, type(other)))
            if fast_path is not None:
                return fast_path((self, other))
        return usual(self, other)

    return forward


def _reflected(op: Elementwise, method: str) -> Any:
    usual, fast_paths = getattr(ArrayMethods, method), op.dispatch_cache

    def reflected(self: Any, other: Any) -> Any:
        if type(self) is Tracer:
            fast_path = fast_paths.get((type(other), Tracer))
            if fast_path is not None:
                return fast_path((other, self))
        return usual(self, other)

    return reflected


def _of_numbers(op: Elementwise, method: str, reflected: bool = False) -> Any:
    """The operator of Python floats; other numbers compare as 64-bit values
    (`tracegrad.trace.values.python_arithmetic`)."""
    usual: Any = getattr(Number, method)

    def general(_: Any, operands: tuple[Any, ...]) -> Any:
        return usual(*(operands[::-1] if reflected else operands))

    both, one = _of_two(op, general, Number), _with_literal(op, not reflected, general, Number)

    def apply(self: Any, other: Any) -> Any:
        if type(self) is Number and self.node.aval.dtype.kind == "f":
            kind = type(other)
            if kind is float:
                return one((other, self) if reflected else (self, other))
            if kind is Number and other.node.aval.dtype.kind == "f":
                return both((other, self) if reflected else (self, other))
        return usual(self, other)

    return apply


_ARITHMETIC = {
    "add": elementwise.add,
    "sub": elementwise.subtract,
    "mul": elementwise.multiply,
    "truediv": elementwise.divide,
}
for _name, _op in _ARITHMETIC.items():
    setattr(Tracer, f"__{_name}__", _forward(_op, f"__{_name}__"))
    setattr(Tracer, f"__r{_name}__", _reflected(_op, f"__r{_name}__"))
    if _name != "truediv":
        setattr(Number, f"__{_name}__", _of_numbers(_op, f"__{_name}__"))
        setattr(Number, f"__r{_name}__", _of_numbers(_op, f"__r{_name}__", reflected=True))


def _array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    if not kwargs and method == "__call__":
        op = OP_OF_UFUNC.get(ufunc)
        fast_path = None if op is None else op.dispatch_cache.get(tuple(map(type, inputs)))
        if fast_path is not None:
            return fast_path(inputs, {})
    if decides("__array_ufunc__", inputs):
        return NotImplemented
    return dispatch_ufunc(ufunc, method, inputs, kwargs)


Tracer.__array_ufunc__ = _array_ufunc  # type: ignore[method-assign]


# -- x[1, 2] -------------------------------------------------------------------------------------------------
def _picked(x: Any, index: tuple[Any, ...]) -> Any:
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
    tracer = Tracer(builder, node)
    return x._registered(tracer, partial(_with_item, index), 0, x._layout()[index]) if rest else tracer


def _with_item(index: tuple[int, ...], base: Any, new: Any) -> Any:
    return setitem(base, index, new)


_getitem = ArrayMethods.__getitem__


def _item(self: Any, index: Any) -> Any:
    kind = type(index)
    if kind is int or kind is tuple:
        result = _picked(self, index if kind is tuple else (index,))
        if result is not None:
            return result
    return _getitem(self, index)


Tracer.__getitem__ = _item  # type: ignore[method-assign]
Tracer.shape = Tracer.shape.setter(set_shape)
