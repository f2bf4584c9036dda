"""Lower matmuls to elementwise loops where a loop beats BLAS, and combine sums of stacked products into one.

A loop is faster for small products, because it fuses with its neighbours. Integer and boolean products are always
loops, because BLAS does not compute them. A sum over a stack of products becomes one product.
"""

from __future__ import annotations

import math
from typing import Any

from tracegrad.ir import Graph, GraphValue
from tracegrad.ops import Op
from tracegrad.ops.elementwise.table import multiply
from tracegrad.ops.linalg.contraction import matmul, matrix_transpose
from tracegrad.ops.nn.im2col import patches
from tracegrad.ops.shape.linear import broadcast_to, reduce_sum, reshape, transpose
from tracegrad.passes.core.rewriter import in_loop, operand, producer, rewrite, shared, source, swaps
from tracegrad.passes.linalg.diagonal import with_diagonal
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.typing import Array
from tracegrad.utils.lazy_dataclass import record

MAX_WINDOW_SIZE = TUNING.passes.max_window


@record(frozen=True)
class Thresholds:
    """Thresholds below which a float `matmul` of (..., m, k) and (..., k, n) becomes a loop.

    `small`: when m, k and n are all at most this. `vector_elements`: when m, k or n is 1 and m * k * n is at most
    this: matrix-vector and outer products move as many numbers as they compute. `tiny`: as `small`, for stacks of at
    least `many` products, which are one call, unless a loop computes them repeatedly.
    """

    small: int = TUNING.passes.max_loop_size
    vector_elements: int = TUNING.passes.max_loop_vector
    tiny: int = TUNING.passes.max_loop_size_in_stack
    many: int = TUNING.passes.min_stack

    def unrolls(self, m: int, k: int, n: int, count: int = 1) -> bool:
        """Whether `count` products of (m, k) and (k, n) matrices become loops."""
        if max(m, k, n) <= (self.small if count < self.many else min(self.small, self.tiny)):
            return True
        return 1 in (m, k, n) and m * k * n <= self.vector_elements


_USUAL, _NONE = Thresholds(), Thresholds(0, 0, 0)


def unroll_small_contractions(graph: Graph, thresholds: Thresholds | None = None) -> Graph:
    """`graph` with small, vector and non-float `matmul`s as multiply and reduce_sum. Sums may round differently.

    Without `small-matmul` only products that BLAS has no routine for are lowered.

    >>> from tracegrad.ir import parse
    >>> text = "graph(%0: f64[9,5], %1: f64[5,1]) {\\n  %2 = matmul(%0, %1) : f64[9,1]\\n  return %2\\n}"
    >>> print(unroll_small_contractions(parse(text)))
    graph(%0: f64[9,5], %1: f64[5,1]) {
      %2 = reshape(%1) {shape=(5,)} : f64[5]
      %3 = broadcast_to(%2) {shape=(9, 5)} : f64[9,5]
      %4 = multiply(%0, %3) : f64[9,5]
      %5 = reduce_sum(%4) {axes=(1,)} : f64[9]
      %6 = reshape(%5) {shape=(9, 1)} : f64[9,1]
      return %6
    }
    """

    usual = thresholds or (_NONE if disabled("small-matmul") else _USUAL)

    def unrolled(operands: tuple[Any, ...], again: bool) -> bool:
        x, y = (x.aval for x in operands)
        if x.dtype.kind not in "fc":
            return True
        count = 1 if again else math.prod(x.shape[:-2])
        return usual.unrolls(x.shape[-2], x.shape[-1], y.shape[-1], count)

    def hook(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op is not matmul:
            return None
        if unrolled(operands, in_loop(operands[0])):
            return as_loop(*operands)
        return None if usual is _NONE else _of_windows(*operands)

    results = [x for x in graph.everywhere() if x.op is matmul or x.op is patches]
    for x in results:
        if x.op is patches or unrolled(x.inputs, True):
            return rewrite(graph, hook)
    return graph


def _of_windows(x: GraphValue, y: GraphValue) -> Any:
    """The product of small windows and few columns, or of the transposes, as a sum that does not copy the windows."""
    transposed = producer(x) is transpose and len(x.shape) == 2
    result = source(operand(x) if transposed else x)
    if producer(result) is not patches or len(x.shape) != 2:
        return None
    params, n = dict(result.node.params), y.shape[-1]
    counts, sizes = params["counts"], params["sizes"]
    m, k = math.prod(counts), math.prod(sizes)
    if x.shape != ((k, m) if transposed else (m, k)) or k > MAX_WINDOW_SIZE or max(*sizes, n) > _USUAL.small:
        return None
    rank, whole = len(counts), (*counts, *sizes, n)
    left = broadcast_to(reshape(result, shape=(*counts, *sizes, 1)), shape=whole)
    factor_shape = (*counts, *(1,) * rank, n) if transposed else (*(1,) * rank, *sizes, n)
    product = multiply(left, broadcast_to(reshape(y, shape=factor_shape), shape=whole))
    axes = range(rank) if transposed else range(rank, 2 * rank)
    return reshape(reduce_sum(product, axes=tuple(axes)), shape=(k if transposed else m, n))


def as_loop(x: Any, y: Any) -> Any:
    """The product as a sum over the contracted axis, without unit axes."""
    (*batch, m, k), n = x.shape, y.shape[-1]
    if (result := with_diagonal(x, y)) is not None:
        return result
    if k == 1:
        return multiply(broadcast_to(x, shape=(*batch, m, n)), broadcast_to(y, shape=(*batch, m, n)))
    if m == 1 and n == 1:
        return reshape(_dot(reshape(x, shape=(*batch, k)), reshape(y, shape=(*batch, k)), -1), shape=(*batch, 1, 1))
    if n == 1:
        return reshape(_matrix_vector(x, reshape(y, shape=(*batch, k))), shape=(*batch, m, 1))
    if m == 1:
        return reshape(_matrix_vector(matrix_transpose(y), reshape(x, shape=(*batch, k))), shape=(*batch, 1, n))
    if swaps(x) and swaps(y) and x.dtype.kind not in "fc":
        return matrix_transpose(as_loop(operand(y), operand(x)))  # rows of these factors are contiguous
    left = broadcast_to(reshape(x, shape=(*batch, m, 1, k)), shape=(*batch, m, n, k))
    right = broadcast_to(reshape(matrix_transpose(y), shape=(*batch, 1, n, k)), shape=(*batch, m, n, k))
    return _dot(left, right, -1)


def _matrix_vector(x: Any, v: Array) -> Any:
    """The product of (..., m, k) and (..., k) that reads the matrix in memory order: a transpose is summed by rows."""
    batch, k = v.shape[:-1], v.shape[-1]
    if swaps(x):
        stored = operand(x)
        return _dot(stored, broadcast_to(reshape(v, shape=(*batch, k, 1)), shape=stored.shape), -2)
    return _dot(x, broadcast_to(reshape(v, shape=(*batch, 1, k)) if batch else v, shape=x.shape), -1)


def _dot(x: Array, y: Array, axis: int) -> Any:
    return reduce_sum(multiply(x, y), axes=(len(x.shape) + axis,))


def long_product(x: GraphValue, *, axes: tuple[int, ...]) -> object:
    """The sum of a stack of products `x.T @ y`, as one product of long matrices, which needs no copy; None for other
    sums.

    >>> from tracegrad.ir import parse
    >>> from tracegrad.passes.simplify.simplify import simplify
    >>> text = '''graph(%0: f64[7,40,20], %1: f64[7,40,30]) {
    ...   %2 = transpose(%0) {perm=(0, 2, 1)} : f64[7,20,40]
    ...   %3 = matmul(%2, %1) : f64[7,20,30]
    ...   %4 = reduce_sum(%3) {axes=(0,)} : f64[20,30]
    ...   return %4
    ... }'''
    >>> print(simplify(parse(text)))
    graph(%0: f64[7,40,20], %1: f64[7,40,30]) {
      %2 = reshape(%0) {shape=(280, 20)} : f64[280,20]
      %3 = reshape(%1) {shape=(280, 30)} : f64[280,30]
      %4 = transpose(%2) {perm=(1, 0)} : f64[20,280]
      %5 = matmul(%4, %3) : f64[20,30]
      return %5
    }
    """
    if not axes or producer(x) is not matmul or shared(x) or axes != tuple(range(len(x.shape) - 2)):
        return None
    first, second = operand(x), operand(x, 1)
    if not swaps(first):
        return None
    long = [reshape(y, shape=(math.prod(y.shape[:-1]), y.shape[-1])) for y in (operand(first), second)]
    return matmul(matrix_transpose(long[0]), long[1])
