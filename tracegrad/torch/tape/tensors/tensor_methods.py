"""Assembly of Tensor methods: a table of methods that are one op, and the loop that adds them to both classes.

A row has the method's name, its op, PyTorch's node name if it differs from the op's, and a function that makes the
method: it maps arguments of the method to arguments of the op. Other arguments use the general path, the method that
the class had before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.numpy_api.registry import dispatch_ufunc
from tracegrad.ops import TABLE
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.linalg import contraction
from tracegrad.ops.reduce import reductions
from tracegrad.ops.shape import linear
from tracegrad.torch.functions.core.registry import FUNCTIONS, METHODS, ONE_OP
from tracegrad.torch.tape.recording.eager_dispatch import of_form, of_one, of_two
from tracegrad.torch.tape.tensors.tape_array import TapeArray
from tracegrad.torch.tape.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracegrad.torch.tape.recording.recorded_array import Recorded
    from tracegrad.torch.tape.tensors.traced_tensor import TracedTensor
    from tracegrad.typing import NDArray


Method = Callable[..., Any]


# -- from arguments of a method to arguments of an op -------------------------------------------------------------
def one(op: Op, cls: type, general: Method, node: str) -> Method:
    """`x.method()`"""
    return of_one(op, cls, general, node)


def two(op: Op, cls: type, general: Method, node: str) -> Method:
    """`x.method(y)`: the op of x and y"""
    return of_two(op, cls, general, node)


def swapped(op: Op, cls: type, general: Method, node: str) -> Method:
    """`x.method(y)`: the op of y and x"""
    recorder = of_two(op, cls, lambda y, x: general(x, y), node)

    def apply(x: Tensor, y: float) -> Any:
        return recorder(y, x)

    return apply


def inverted(op: Op, cls: type, general: Method, node: str) -> Method:
    """`x.method(y)`: the quotient y / x; of a Tensor 1 / x is the reciprocal, which saves no operand"""
    if cls is not Tensor:
        return swapped(op, cls, general, node)
    recorder = of_two(op, cls, lambda y, x: general(x, y), node)

    def apply(x: Tensor, y: float) -> Any:
        return general(x, y) if y == 1 and (type(y) is int or type(y) is float) else recorder(y, x)

    return apply


def squared(op: Op, cls: type, general: Method, node: str) -> Method:
    """`x.method(2)`"""
    recorder = of_one(op, cls, lambda x: general(x, 2), node)

    def apply(x: Recorded, y: Tensor | float) -> Any:
        return recorder(x) if type(y) is int and y == 2 else general(x, y)

    return apply


def total(op: Op, cls: Any, general: Method, node: str) -> Method:
    """`x.method()`: over all axes; `x.method(dim)`: over one axis, with the node name `node`"""
    recorder = of_form(op, cls, lambda operands, params: general(*operands), function=_TOTALS[op], fixed=True)
    along = of_form(op, cls, lambda operands, params: general(*operands, *params["axes"]), node)
    name = "dim" if cls is Tensor else "axis"

    def apply(input: Any, *args: Any, **kwargs: Any) -> Any:
        if input.__class__ is not cls:
            return general(input, *args, **kwargs)
        rank = input.array.ndim
        if not args and not kwargs:
            return recorder((input,), _ALL[rank])
        if len(args) + len(kwargs) == 1:
            dim = args[0] if args else kwargs.get(name)
            if type(dim) is int and -rank <= dim < rank:
                return along((input,), {"axes": (dim % rank,)})
        return general(input, *args, **kwargs)

    return apply


_TOTALS: dict[Op, Callable[..., Any]] = {
    linear.reduce_sum: lambda x, params: linear.sum_over(x, None),
    reductions.mean: lambda x, params: linear.sum_over(x, None) / x.size,
}
_ALL = [{"axes": tuple(range(n))} for n in range(65)]


def copied(op: Op, cls: type, general: Method, node: str) -> Method:
    """`x.method()`: a copy"""
    recorder = of_form(op, cls, lambda operands, params: general(*operands), node, lambda x, params: x.copy())

    def apply(x: Tensor, **kwargs: object) -> Any:
        return general(x, **kwargs) if kwargs else recorder((x,), _FIRST)

    return apply


_FIRST = {"tag": 0}


def sized(op: Op, cls: type, general: Method, node: str) -> Method:
    """`x.method(*shape)`: sizes without -1, for a contiguous array"""
    recorder = of_form(op, cls, lambda operands, params: general(*operands, *params["shape"]), node, _reshaped)

    def apply(x: Tensor, *shape: Any, **kwargs: object) -> Any:
        if kwargs or x.__class__ is not cls:
            return general(x, *shape, **kwargs)
        for n in shape:
            if n.__class__ is not int or n < 0:
                return general(x, *shape)
        array = x.array
        if math.prod(shape) != array.size or not array.flags.c_contiguous:
            return general(x, *shape)
        return recorder((x,), {"shape": shape})

    return apply


def _reshaped(x: NDArray, params: Mapping[str, object]) -> NDArray:
    return x.reshape(params["shape"])


def product(op: Op, cls: type, general: Method, node: str) -> Method:
    """`x @ y` of matrices and vectors"""
    recorders = {
        ranks: of_two(known, cls, general, name)
        for ranks, known, name in (
            ((2, 2), contraction.matmul, "MmBackward0"),
            ((2, 1), contraction.matvec, "MvBackward0"),
            ((1, 1), contraction.inner, "DotBackward0"),
        )
    }

    def apply(x: Tensor, y: Tensor) -> Any:
        if y.__class__ is not cls:
            return general(x, y)
        return recorders.get((x.array.ndim, y.array.ndim), general)(x, y)

    return apply


ROWS: tuple[tuple[str, Op, str, Callable[[Op, Any, Method, str], Method]], ...] = (
    ("__add__", ops.add, "", two),
    ("__radd__", ops.add, "", two),
    ("__sub__", ops.subtract, "", two),
    ("__rsub__", ops.subtract, "RsubBackward1", swapped),
    ("__mul__", ops.multiply, "", two),
    ("__rmul__", ops.multiply, "", two),
    ("__truediv__", ops.divide, "", two),
    ("__rtruediv__", ops.divide, "", inverted),
    ("__pow__", ops.square, "", squared),
    ("__neg__", ops.negative, "", one),
    ("__abs__", ops.absolute, "", one),
    ("sum", linear.reduce_sum, "SumBackward1", total),
    ("mean", reductions.mean, "MeanBackward1", total),
)
# Methods that only Tensor has.
OF_TENSOR = (
    ("__matmul__", contraction.matmul, "", product),
    ("clone", linear.fresh, "CloneBackward0", copied),
    ("reshape", linear.reshape, "", sized),
    ("view", linear.reshape, "", sized),
    *((name, op, node, one) for name, (op, node) in ONE_OP.items()),
)


def _by_dispatch(ufunc: object, x: TracedTensor) -> Any:
    return dispatch_ufunc(ufunc, "__call__", (x,), {})


# NumPy's unary ufuncs that are one differentiable elementwise op.
UFUNCS: dict[Any, Op] = {
    getattr(np, op.name): op
    for op in TABLE.values()
    if isinstance(op, Elementwise)
    and len(op.operands) == 1
    and op.differentiable
    and isinstance(getattr(np, op.name, None), np.ufunc)
}


def assemble(cls: type, rows: Any) -> None:
    """Add the methods of the rows to `cls`."""
    for name, op, node, how in rows:
        general = getattr(cls, name)
        method = how(op, cls, general, node)
        method.__name__ = name
        method.__qualname__ = f"{cls.__name__}.{name}"
        method.__doc__ = (general.__doc__ or "").partition(">>>")[0].rstrip()
        setattr(cls, name, method)


for _cls in (Tensor, TapeArray):
    _cls._of_ufunc = {ufunc: of_one(op, _cls, partial(_by_dispatch, ufunc)) for ufunc, op in UFUNCS.items()}
    assemble(_cls, ROWS)
assemble(Tensor, OF_TENSOR)


def _as_function(name: str, op: Op, node: str, how: Callable[[Op, Any, Method, str], Method]) -> None:
    """Replace the function of the package that has the name of a row's method by one with the same fast path."""
    general = FUNCTIONS[name]
    FUNCTIONS[name] = wraps(general)(how(op, Tensor, general, node))


for _name, _op, _node, _how in (*ROWS, *OF_TENSOR):
    if METHODS.get(_name, ROWS) is FUNCTIONS.get(_name) and _how in (one, total):
        _as_function(_name, _op, _node, _how)
