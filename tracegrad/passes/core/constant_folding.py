"""Fold constants: arrays that hold one value everywhere (`full`) become literals of elementwise ops.

Derivatives start from constant arrays. Literals cost no memory, and the algebra of `rules` applies to them. At least
one operand of an elementwise op remains an array for each dtype it computes in (see `Elementwise`). An op on constants
alone is computed here, except if it raises (a negative power of an integer): run time raises the error then.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import LITERALS, Literal, is_literal
from tracegrad.ir import GraphValue, Value
from tracegrad.ops import Op
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.forms import FoldForm
from tracegrad.ops.elementwise.table import power
from tracegrad.ops.shape.linear import full, reduce_sum
from tracegrad.settings import disabled

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import DType


def constant(x: Value) -> Literal | None:
    """The fill value of `x`, in its own dtype; None if `x` is not known to be a fill."""
    if not isinstance(x, GraphValue) or x.node.op is not full:
        return None
    value: Literal = x.dtype.type(dict(x.node.params)["value"]).item()
    return value


def is_zero(x: GraphValue | float) -> bool:
    """Whether `x` is 0 or a fill of 0."""
    return bool((x if type(x) in LITERALS else constant(x)) == 0)


def full_like(x: GraphValue, value: Any) -> Any:
    """A fill with the shape and dtype of `x`, in the graph of `x`."""
    return _emit_full(x, x.shape, value, x.dtype)


def _emit_full(near: GraphValue, shape: tuple[int, ...], value: Operand, dtype: DType) -> Any:
    item = dtype.type(value).item()
    return near.builder.emit(full, (), {"shape": tuple(shape), "value": item, "dtype": dtype.name})


def fold(op: Elementwise, operands: tuple[Any, ...]) -> Any:
    """`op` with literals for its constant operands, or its value if all are constant; None if nothing changes."""
    if disabled("constant-folding"):
        return None
    known = [x if type(x) in LITERALS else constant(x) for x in operands]
    arrays = [i for i, x in enumerate(operands) if type(x) not in LITERALS]
    if op is power and known[1] == 0.5:  # only a literal 0.5 means sqrt, an array does not
        return None
    if [known[i] for i in arrays].count(None) == len(arrays):
        return None
    loop = op.loop_dtypes(*[type(x) if type(x) in LITERALS else x.dtype for x in operands])
    if all(x is not None for x in known):
        return _computed(op, operands[arrays[0]], known, loop)
    replaced = _replaced(operands, known, loop)
    if all(a is b for a, b in zip(replaced, operands)):
        return None
    return operands[arrays[0]].builder.emit(op, tuple(replaced), {})


def _replaced(operands: tuple[Any, ...], known: list[Any], loop: tuple[object, ...]) -> list[Any]:
    """The operands with literals in place of constants, as long as an array of their dtype remains."""
    replaced = list(operands)
    for dtype in set(loop[:-1]):
        positions = [i for i, d in enumerate(loop[:-1]) if d == dtype]
        anchored = any(known[i] is None for i in positions)
        arrays = [i for i in positions if not is_literal(operands[i])]
        for i in positions if anchored else [i for i in positions if i != arrays[0]]:
            if known[i] is not None:
                replaced[i] = known[i]
    return replaced


def _computed(op: Elementwise, near: GraphValue, known: list[object], loop: tuple[DType, ...]) -> Any:
    try:
        value = op.impl(*[dtype.type(x) for x, dtype in zip(known, loop)])
    except ValueError:
        return None
    return _emit_full(near, near.shape, value, loop[-1])


def fold_cast(x: GraphValue, *, dtype: str) -> Any:
    """Fold the `cast` of a constant."""
    value = constant(x)
    wanted = np.dtype(dtype)
    if value is None or (wanted.kind in "iu" and x.dtype.kind == "f"):
        return None
    return _emit_full(x, x.shape, np.asarray(value, x.dtype).astype(wanted).item(), wanted)


def reshaped(x: GraphValue, shape: tuple[int, ...]) -> Any:
    """The constant `x` with another shape; None if it is no constant."""
    value = constant(x)
    return None if value is None else _emit_full(x, shape, value, x.dtype)


def fold_reduction(op: Op, form: FoldForm, x: GraphValue, axes: tuple[int, ...]) -> Any:
    """Fold a reduction of a constant over `axes`, none of which is empty."""
    value = constant(x)
    if value is None or not (form.idempotent or op is reduce_sum):
        return None
    count = math.prod([x.shape[a] for a in axes])
    if not count:
        return None
    aval = op.aval(x.aval, axes=axes)
    result = np.asarray(value, x.dtype)
    if not form.idempotent:
        result = np.multiply(result, np.asarray(count).astype(x.dtype), dtype=x.dtype) + x.dtype.type(0)  # no -0.0
    return _emit_full(x, aval.shape, result, aval.dtype)
