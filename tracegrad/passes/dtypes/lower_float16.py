"""Lower float16 to float32 with rounding after each op.

NumPy computes float16 in float32 and rounds. Each op is therefore applied to float32 values that are exact in half
precision, and an elementwise op rounds its result. Ops that only move data are not followed by rounding. Sums,
products and composite ops are rounded once, at the end. In memory, float16 inputs and outputs of a graph are 16-bit
integers with the same bits; only the entry point knows their dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import LITERALS, Aval
from tracegrad.ir import Builder, Graph, GraphNode, GraphValue
from tracegrad.ir.builder import recorder, recording
from tracegrad.ir.graph import map_regions
from tracegrad.ops.core.forms import Compose, Gather, Move, Patch, Window
from tracegrad.ops.core.half import call_in_half, half_bits, half_value, in_bits, round_to_half
from tracegrad.ops.core.half_rounding import HALF, SINGLE
from tracegrad.ops.core.op import Op, ResultAvals
from tracegrad.ops.elementwise.float_representation import reinterpret
from tracegrad.ops.elementwise.table import where
from tracegrad.ops.shape.linear import cast, full
from tracegrad.ops.shape.stack_split import place, split, stack, unbind
from tracegrad.passes.dtypes.legalize import has_dtype

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


_MOVES, _MOVING = (Move, Gather, Window, Patch), frozenset({where, place, split, stack, unbind})


class _Singles(Builder):
    """Builder of a single precision graph, which knows the float16 bits of some values."""

    def __init__(self) -> None:
        super().__init__()
        self.bits: dict[GraphNode, Any] = {}

    def value_of(self, x: Any, aval: Aval) -> Any:
        """The single precision value of `x`, whose memory representation is that of `aval`."""
        return self.known(half_value(x), x) if _is_half(aval) else x

    def bits_of(self, x: Any, aval: Aval) -> Any:
        """The memory representation of `x`, the single precision value of a value of type `aval`."""
        if not _is_half(aval):
            return x
        result = self.bits.get(x.node)
        return half_bits(x) if result is None else result

    def known(self, x: Any, bits: Any) -> Any:
        """`x`, after recording its bits."""
        self.bits[x.node] = bits
        return x


def in_singles(graph: Graph) -> Graph:
    """`graph` without float16: see `without_half`."""
    builder = _Singles()
    with recording(builder):
        inputs = [builder.value_of(builder.input(in_bits(x.aval)), x.aval) for x in graph.inputs]
        outputs = _replayed(graph, inputs, builder)
        result = builder.build([builder.bits_of(y, x.aval) for x, y in zip(graph.outputs, outputs)])
    return result.named(graph.names) if graph.names else result


def _region(graph: Graph) -> Graph:
    """A region with half precision inputs and outputs converted to single precision."""
    if not has_dtype(graph, "e"):
        return graph
    builder = _Singles()
    builder.around = recorder()
    with recording(builder):
        inputs = [builder.input(Aval(x.aval.shape, SINGLE) if _is_half(x.aval) else x.aval) for x in graph.inputs]
        return builder.build(_replayed(graph, inputs, builder))


def _replayed(graph: Graph, inputs: Sequence[object], builder: _Singles) -> list[GraphValue]:
    """The outputs of `graph` for inputs in single precision."""
    env: dict[GraphNode, Any] = dict(zip(graph.inputs, inputs))
    for node in graph.nodes:
        if node.result_index is not None:
            env[node] = env[node.operands[0]][node.result_index]
            continue
        builder.location = node.location
        operands = tuple([x if type(x) in LITERALS else env[x] for x in node.inputs])
        halves = any(map(_is_half, (*[x.aval for x in node.operands], *_result_avals(node.aval))))
        assert node.op is not None
        if halves:
            rule: Callable[..., Any] = _RULES.get(node.op, _applied)
            env[node] = rule(node, operands, builder)
        else:
            env[node] = builder.emit(node.op, operands, dict(map_regions(node.params, _region)))
    return [env[x] for x in graph.outputs]


def _applied(node: GraphNode, operands: tuple[GraphValue | float, ...], builder: _Singles) -> object:
    """Apply the same op in single precision."""
    op = node.op
    assert op is not None
    if op.typed:
        if not isinstance(op.form, Compose):
            return _called(node, operands, builder)
        decomposition: Callable[..., Any] = op.form.decomposition
        return decomposition(*operands, **dict(node.params))
    params = dict(map_regions(node.params, _region))
    if params.get("dtype") == "float16":
        params["dtype"] = "float32"
    if type(params.get("value")) is float and _is_half(node.aval):
        params["value"] = _nearest(params["value"])
    result = builder.emit(op, tuple([_nearest(x) if type(x) is float else x for x in operands]), params)
    if isinstance(op.form, _MOVES) or op in _MOVING:
        return _moved(node, operands, params, result, builder)
    if op.exact or not op.form.rounds:
        return result
    avals = _result_avals(node.aval)
    if type(result) is tuple:
        return tuple([_rounded(y, aval) for y, aval in zip(result, avals)])
    return _rounded(result, avals[0])


def _moved(node: GraphNode, operands: tuple[Any, ...], params: dict[str, Any], result: Any, builder: _Singles) -> Any:
    """The moved value, after its float16 bits are moved too, if they are known."""
    if not any(x.node in builder.bits for x in operands if type(x) not in LITERALS):
        return result
    assert node.op is not None
    numbers = (float, int) if node.op is where else (float,)  # other integers are positions
    bits = [_bits_of_number(x) if type(x) in numbers else x for x in operands]
    bits = [x if type(x) in LITERALS else builder.bits_of(x, aval) for x, aval in zip(bits, _avals(node))]
    if "value" in params:
        params = params | {"value": _bits_of_number(params["value"])}
    moved = builder.emit(node.op, tuple(bits), params)
    if type(result) is tuple:
        return tuple(map(builder.known, result, moved))
    return builder.known(result, moved)


def _called(node: GraphNode, operands: tuple[Any, ...], builder: _Singles) -> Any:
    """Apply an op by a call of NumPy on float16."""
    avals = _avals(node)
    halves = tuple([aval is not None and _is_half(aval) for aval in avals])
    bits = tuple([x if aval is None else builder.bits_of(x, aval) for x, aval in zip(operands, avals)])
    assert node.op is not None
    result = builder.emit(call_in_half, bits, {"op": node.op.name, "op_params": node.params, "halves": halves})
    if type(result) is tuple:
        return tuple([builder.value_of(y, aval) for y, aval in zip(result, _result_avals(node.aval))])
    return builder.value_of(result, node.aval)


# -- ops with dtype parameters ---------------------------------------------------------------------------------------
def _cast(node: GraphNode, operands: tuple[GraphValue, ...], builder: _Singles) -> Any:
    (x,), dtype = operands, node.aval.dtype
    if dtype != HALF:
        return x if dtype == SINGLE else cast(x, dtype=dtype.name)
    if _is_half(node.operands[0].aval):
        return x
    if x.dtype.itemsize <= 2:
        single = cast(x, dtype="float32")
        return single if x.dtype.itemsize == 1 else round_to_half(single)
    # Round only once: not to single precision first.
    exact = x if x.dtype == SINGLE else cast(x, dtype="float64")
    return cast(round_to_half(exact), dtype="float32")


def _reinterpret(node: GraphNode, operands: tuple[Operand, ...], builder: _Singles) -> Operand:
    (x,), dtype, of = operands, node.aval.dtype, node.operands[0].aval
    bits = builder.bits_of(x, of) if _is_half(of) else reinterpret(x, dtype="uint16")
    return builder.value_of(bits, node.aval) if dtype == HALF else reinterpret(bits, dtype=dtype.name)


def _full(node: GraphNode, operands: tuple[object, ...], builder: _Singles) -> Operand:
    params = dict(node.params)
    return full(shape=params["shape"], value=_nearest(float(params["value"])), dtype="float32")


_RULES: dict[Op, Callable[..., Any]] = {cast: _cast, reinterpret: _reinterpret, full: _full}


# -- values ------------------------------------------------------------------------------------------------------------
def _is_half(aval: Aval) -> bool:
    return bool(aval.dtype == HALF)


def _result_avals(aval: Aval | ResultAvals) -> Sequence[Aval]:
    return aval if isinstance(aval, tuple) else (aval,)


def _avals(node: GraphNode) -> list[Any]:
    """The avals of the inputs; None for a literal."""
    operands = iter(node.operands)
    return [None if type(x) in LITERALS else next(operands).aval for x in node.inputs]


def _bits_of_number(x: float) -> int:
    with np.errstate(all="ignore"):
        return int(HALF.type(x).view(np.uint16))


def _nearest(x: float) -> float:
    """The nearest float16 of a number."""
    with np.errstate(all="ignore"):
        return float(HALF.type(x))


def _rounded(x: Operand, aval: Aval) -> Operand:
    return round_to_half(x) if _is_half(aval) else x
