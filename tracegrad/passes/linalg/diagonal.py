"""Simplify products with diagonal matrices, and diagonals of products, to one multiplication per element.

A matrix is diagonal here if its elements off the diagonal are known to be zero. The product has the bits of NumPy, also
for nan and inf. Zero times a value that is not finite is nan. An infinite element of the other factor therefore turns
the rest of its column, or row, into nan, as it does in a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad.avals import is_literal
from tracegrad.ir import GraphValue, Value
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise.table import add, equal, greater, isfinite, logical_not, multiply, subtract, where
from tracegrad.ops.indexing.diagonal import diagonal
from tracegrad.ops.indexing.gather_scatter import gather, scatter_add
from tracegrad.ops.linalg.contraction import matmul, matrix_transpose
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, cast, full, reduce_sum, reshape, transpose
from tracegrad.passes.core.constant_folding import constant, is_zero
from tracegrad.passes.core.rewriter import operand, producer, shared, source
from tracegrad.target.tuning import TUNING
from tracegrad.typing import Array

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


SMALLEST = TUNING.passes.min_diagonal

# A function that returns the elements of a diagonal, an array of one axis.
Numbers = Callable[[], Any]


def with_diagonal(x: GraphValue, y: GraphValue) -> Any:
    """Multiply two matrices, one of which is diagonal; None if neither is a large diagonal matrix.

    >>> from tracegrad.ir import parse
    >>> from tracegrad.passes.simplify.simplify import simplify
    >>> text = '''graph(%0: f64[40], %1: f64[50,40]) {
    ...   %2 = arange() {dtype='int64', length=40, start=0, step=1} : i64[40]
    ...   %3 = scatter_add(%0, %2, %2) {axes=(0, 1), shape=(40, 40)} : f64[40,40]
    ...   %4 = matmul(%1, %3) : f64[50,40]
    ...   return %4
    ... }'''
    >>> print(simplify(parse(text)))
    graph(%0: f64[40], %1: f64[50,40]) {
      %2 = broadcast_to(%0) {shape=(50, 40)} : f64[50,40]
      %3 = multiply(%1, %2) : f64[50,40]
      %4 = add(%3, 0.0) : f64[50,40]
      %5 = isfinite(%1) : bool[50,40]
      %6 = logical_not(%5) : bool[50,40]
      %7 = cast(%6) {dtype='float64'} : f64[50,40]
      %8 = reduce_sum(%7) {axes=(1,)} : f64[50]
      %9 = reshape(%8) {shape=(50, 1)} : f64[50,1]
      %10 = broadcast_to(%9) {shape=(50, 40)} : f64[50,40]
      %11 = subtract(%10, %7) : f64[50,40]
      %12 = greater(%11, 0.0) : bool[50,40]
      %13 = where(%12, nan, %4) : f64[50,40]
      return %13
    }
    """
    aval = x.aval
    if aval.dtype.kind != "f" or len(aval.shape) != 2:
        return None
    if (numbers := _numbers(x)) is not None:
        return _scaled(y, reshape(numbers(), shape=(x.shape[0], 1)), 0)
    if (numbers := _numbers(y)) is not None:
        return _scaled(x, numbers(), 1)
    return None


def _scaled(x: GraphValue, factors: Array, axis: int) -> Any:
    """`x` times its `factors`, with nan where another element along `axis` is not finite."""
    # A sum begins with zero, so it is never -0.0.
    product = add(multiply(x, broadcast_to(factors, shape=x.shape)), 0.0)
    spoils = cast(logical_not(isfinite(x)), dtype=x.dtype.name)
    saved = tuple(1 if k == axis else n for k, n in enumerate(x.shape))
    count = broadcast_to(reshape(reduce_sum(spoils, axes=(axis,)), shape=saved), shape=x.shape)
    return where(greater(subtract(count, spoils), 0.0), float("nan"), product)


def is_diagonal(x: GraphValue) -> bool:
    """Whether `x` is a large diagonal matrix."""
    return _numbers(x) is not None


# -- detection -----------------------------------------------------------------------------------------------
def _numbers(x: GraphValue) -> Numbers | None:
    """A function that computes the diagonal of `x`, if it is a large diagonal matrix."""
    x = _below_views(x)
    rule = _OF.get(producer(x))  # type: ignore[arg-type]
    if rule is None:
        return None
    shape = x.shape
    return rule(x) if len(shape) == 2 and shape[0] == shape[1] >= SMALLEST else None


def _below_views(x: GraphValue) -> Any:
    """`x` below copies, views and transposes, because a diagonal matrix equals its transpose."""
    while (op := producer(x)) is transpose or (op is reshape and operand(x).shape == x.shape):
        x = operand(x)
    return x


def _of_scatter(x: GraphValue) -> Numbers | None:
    if len(x.node.inputs) != 3 or dict(x.node.params)["axes"] != (0, 1):
        return None
    n = x.shape[0]
    numbers, rows, columns = (operand(x, k) for k in range(3))
    return (lambda: numbers) if numbers.shape == (n,) and _counts(rows, n) and _counts(columns, n) else None


def _of_where(x: GraphValue) -> Numbers | None:
    mask, inside, outside = (operand(x, k) for k in range(3))
    if is_literal(mask) or not is_zero(outside) or not _is_eye(mask):
        return None
    return lambda: _diagonal_of(inside, x)


def _of_cast(x: Any) -> Numbers | None:
    mask = operand(x)
    return (lambda: _repeated(1.0, x)) if mask.dtype.kind == "b" and _is_eye(mask) else None


def _of_multiply(x: Any) -> Numbers | None:
    """The diagonal of the identity times a number, which must be finite: then zero times it is zero."""
    for k in range(2):
        factor, eye = operand(x, k), _below_views(operand(x, 1 - k))
        value = factor if is_literal(factor) else constant(factor)
        if value is not None and value - value == 0 and producer(eye) is cast and _of_cast(eye) is not None:
            return lambda value=value: _repeated(value, x)  # type: ignore[misc]
    return None


_OF: dict[Op, Callable[[Any], Numbers | None]] = {
    scatter_add: _of_scatter,
    where: _of_where,
    cast: _of_cast,
    multiply: _of_multiply,
}


def _is_eye(mask: Any) -> bool:
    """Whether a square mask is true exactly on its diagonal."""
    mask = _below_views(mask)
    if producer(mask) is broadcast_to:
        mask = operand(mask)
    if producer(mask) is not equal:
        return False
    axes = [counted(operand(mask, k)) for k in range(2)]
    return None not in axes and sorted(axes) == [0, 1]  # type: ignore[type-var]


def counted(x: Any) -> int | None:
    """The axis of a matrix along which its elements are 0, 1, …; they are constant along the other axis."""
    if is_literal(x) or len(x.shape) != 2:
        return None
    n = max(x.shape)
    if producer(x) is broadcast_to:
        x = operand(x)
    axis = 0 if x.shape == (n, 1) else 1 if x.shape in ((n,), (1, n)) else None
    return axis if _counts(source(x), n) else None


def _counts(x: Any, n: int) -> bool:
    """Whether `x` is 0, 1, …, n - 1."""
    while producer(x) is reshape and x.shape == (n,) == operand(x).shape:
        x = operand(x)
    if is_literal(x) or producer(x) is not arange:
        return False
    params = dict(x.node.params)
    return (params["start"], params["step"], params["length"]) == (0, 1, n)


def _diagonal_of(inside: Value, x: GraphValue) -> Any:
    """The diagonal of `inside`, a literal or an array of the shape of `x`."""
    if is_literal(inside):
        return _repeated(inside, x)
    if producer(inside) is broadcast_to and operand(inside).shape in ((x.shape[0], 1), (x.shape[0],)):
        return reshape(operand(inside), shape=x.shape[:1])
    return diagonal(inside, offset=0, axes=(0, 1))


def _repeated(value: Any, x: GraphValue) -> Any:
    return x.builder.emit(full, (), {"shape": x.shape[:1], "value": value, "dtype": x.dtype.name})


# -- diagonals of products -------------------------------------------------------------------------------------
def _of_product(x: GraphValue, *, offset: int, axes: tuple[int, int]) -> Operand | None:
    last = (len(x.shape) - 2, len(x.shape) - 1)
    return _product_diagonal(x) if offset == 0 and tuple(sorted(axes)) == last else None


def _gathered(*xs: GraphValue, axes: tuple[int, ...]) -> Operand | None:
    x, *indices = xs
    if axes != (0, 1) or len(x.shape) != 2 or not all(_counts(i, x.shape[0]) for i in indices):
        return None
    return _product_diagonal(x)


def _product_diagonal(product: GraphValue) -> Operand | None:
    """The diagonal of a product whose other elements are unused."""
    product = product if producer(product) is matmul else _below_views(product)
    if producer(product) is not matmul or shared(product) or product.shape[-1] != product.shape[-2]:
        return None
    return reduce_sum(multiply(operand(product), matrix_transpose(operand(product, 1))), axes=(len(product.shape) - 1,))


DIAGONALS: dict[Op, Callable[..., Any]] = {matmul: with_diagonal, diagonal: _of_product, gather: _gathered}
