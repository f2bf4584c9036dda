"""Batch the matmuls of all iterations of a loop into one (loop fission), because BLAS needs many rows.

- A product of scanned rows and a loop-invariant matrix, as `x[t] @ w`, is computed for all rows before the loop. Each
  iteration reads its rows of the result.
- Accumulated products, as the matrix cotangent `dw += x[t].T @ dz[t]`, become one product after the loop. Its factors
  are the stacked factors of all iterations.

User sums are not reordered; sums of cotangents (`accumulate`) have no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.control.scan_op import scan
from tracegrad.ir import Graph, GraphNode, GraphValue
from tracegrad.ir.loop_view import LoopView
from tracegrad.ir.rebuild import below, new_input, with_operands
from tracegrad.ops import Op
from tracegrad.ops.elementwise.table import accumulate
from tracegrad.ops.linalg.contraction import matmul, matrix_transpose
from tracegrad.ops.shape.linear import reshape, transpose
from tracegrad.passes.core.constant_folding import is_zero
from tracegrad.passes.core.rewriter import rewrite
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


MIN_BATCHED_ITERATIONS = TUNING.passes.min_batched_iterations
MAX_BATCHED_ROWS = TUNING.passes.max_batched_rows
LEAST = TUNING.passes.min_batched_work
ROOM = TUNING.passes.max_batched_bytes


def join_products_of_iterations(graph: Graph) -> Graph:
    """`graph` with the loops' products batched over all iterations. Sums may round differently.

    >>> from tracegrad.ir import parse
    >>> print(join_products_of_iterations(parse('''
    ... graph(%0: f64[40], %1: f64[100,8,60], %2: f64[60,40]) {
    ...   %3, _ = scan(%0, %1, %2) {carries=1, length=100, reverse=False, xs=1} : f64[40], f64[100,8,40]
    ...     body(%0: f64[40], %1: f64[8,60], %2: f64[60,40]) {
    ...       %3 = matmul(%1, %2) : f64[8,40]
    ...       %4 = reduce_sum(%3) {axes=(0,)} : f64[40]
    ...       %5 = add(%0, %4) : f64[40]
    ...       return %5, %3
    ...     }
    ...   return %3
    ... }''')))
    graph(%0: f64[40], %1: f64[100,8,60], %2: f64[60,40]) {
      %3 = reshape(%1) {shape=(800, 60)} : f64[800,60]
      %4 = matmul(%3, %2) : f64[800,40]
      %5 = reshape(%4) {shape=(100, 8, 40)} : f64[100,8,40]
      %6, _ = scan(%0, %1, %5, %2) {carries=1, length=100, reverse=False, xs=2} : f64[40], f64[100,8,40]
        body(%0: f64[40], %1: f64[8,60], %2: f64[8,40], %3: f64[60,40]) {
          %4 = reduce_sum(%2) {axes=(0,)} : f64[40]
          %5 = add(%0, %4) : f64[40]
          return %5, %2
        }
      return %6
    }
    """
    if graph.has_regions and scan in [node.op for node in graph.everywhere()]:
        return rewrite(graph, _hook)
    return graph


def _hook(op: Op, operands: tuple[object, ...], params: dict[str, Any]) -> tuple[GraphValue, ...] | None:
    if op is not scan or params["length"] < MIN_BATCHED_ITERATIONS:
        return None
    loop = _MatmulLoop(operands, LoopView.from_params(op, params))
    hoisted, sunk = loop.invariant_products(), loop.accumulated_products()
    return loop.joined(hoisted, sunk) if hoisted or sunk else None


class _MatmulLoop:
    """A loop, and the matmuls of its body."""

    def __init__(self, operands: Sequence[Any], loop: LoopView):
        self.operands, self.loop, self.body = operands, loop, loop.body
        self.outer = dict(zip(loop.body.inputs, operands))
        self.scanned = set(loop.scanned(loop.body.inputs))
        self.constants = set(loop.constants(loop.body.inputs))
        self.users = loop.body.users()

    # -- analysis ----------------------------------------------------------------------------------------
    def invariant_products(self) -> list[GraphNode]:
        """The products of scanned rows and a loop-invariant matrix."""
        results = [
            x
            for x in self.body.nodes
            if x.op is matmul
            and _is_profitable(x, x.inputs[0].aval.shape[0])
            and below(x.inputs[0]) in self.scanned
            and below(x.inputs[1], transpose) in self.constants
        ]
        return [x for x in results if self._has_room(x)]

    def accumulated_products(self) -> dict[int, tuple[GraphNode, GraphNode]]:
        """By carry, the factors of a product that is only added to the carry."""
        outputs = self.body.outputs
        table = {}
        for i, carry in enumerate(self.loop.initial(self.body.inputs)):
            total = outputs[i]
            if total.op is not accumulate or carry not in total.inputs or outputs.count(total) > 1:
                continue
            product = total.inputs[1 - total.inputs.index(carry)]
            if not isinstance(product, GraphNode) or product is carry or carry in outputs or self.users[total]:
                continue
            if self.users[carry] != [total] or product.op is not matmul:
                continue
            x, y = product.inputs
            if _is_profitable(product, x.aval.shape[-1]) and self._has_room(x) and self._has_room(y):
                table[i] = (x, y)
        return table

    def _has_room(self, x: GraphNode) -> bool:
        return self.loop.length * x.aval.nbytes <= ROOM

    # -- rewriting ---------------------------------------------------------------------------------------
    def joined(self, hoisted: list[GraphNode], sunk: dict[int, tuple[GraphNode, GraphNode]]) -> tuple[Any, ...]:
        """The results of the loop, with the batched products computed outside of it."""
        row_inputs = {x: new_input(x) for x in hoisted}
        products = [self._batched_product(x) for x in hoisted]
        new, nodes = self._replaced(row_inputs, [self.body.outputs[i] for i in sunk])
        factors: list[GraphNode] = []  # further results of the loop
        for x, y in sunk.values():
            for factor in (_transposed(x, nodes, new), new.get(y, y)):
                if below(factor) not in self.scanned and factor not in factors:
                    factors.append(factor)
        inputs, outputs = self.body.inputs, [new.get(x, x) for x in self.body.outputs]
        loop = self.loop
        remaining = [i for i in range(loop.varying) if i not in sunk]
        body = Graph(
            (*(inputs[i] for i in remaining), *row_inputs.values(), *loop.constants(inputs)),
            tuple(nodes),
            (*(x for i, x in enumerate(outputs) if i not in sunk), *factors),
        )
        operands = (*(self.operands[i] for i in remaining), *products, *loop.constants(self.operands))
        smaller = loop._replace(body=body, carries=loop.carries - len(sunk), xs=loop.xs + len(row_inputs))
        result = self.operands[0].builder.emit(loop.op, operands, smaller.params)
        n_results = len(body.outputs) - len(factors)
        stacked = dict(zip(factors, result[n_results:]))
        carried = dict(zip(remaining, result))
        for i, (x, y) in sunk.items():
            sides = [self._stacked(side, stacked) for side in (_transposed(x, nodes, new), new.get(y, y))]
            total, start = matmul(matrix_transpose(sides[0]), sides[1]), self.operands[i]
            carried[i] = total if is_zero(start) else accumulate(start, total)
        return (*(carried[i] for i in range(loop.carries)), *result[smaller.carries : n_results])

    def _batched_product(self, product: GraphNode) -> Any:
        """The product of all rows, before the loop."""
        x, y = product.inputs
        m, k = x.aval.shape
        rows = reshape(self.outer[below(x)], shape=(self.loop.length * m, k))
        return reshape(matmul(rows, self._outside(y)), shape=(self.loop.length, *product.aval.shape))

    def _outside(self, y: GraphNode) -> Any:
        """The loop-invariant value of a view of a constant."""
        if y in self.outer:
            return self.outer[y]
        assert y.op is not None
        return y.op(self._outside(y.inputs[0]), **dict(y.params))

    def _stacked(self, factor: GraphNode, stacked: dict[GraphNode, Operand]) -> Any:
        """The values of a factor in all iterations, stacked along rows."""
        k, m = factor.aval.shape
        result = stacked[factor] if factor in stacked else self.outer[below(factor)]
        return reshape(result, shape=(self.loop.length * k, m))

    def _replaced(
        self, row_inputs: dict[GraphNode, GraphNode], removed: list[GraphNode]
    ) -> tuple[dict[GraphNode, GraphNode], list[GraphNode]]:
        """The replacements of body nodes whose products are now scanned rows, and the remaining nodes."""
        new, nodes = dict(row_inputs), []
        for node in self.body.nodes:
            if node in row_inputs or node in removed:
                continue
            copy = with_operands(node, new)
            if copy is not node:
                new[node] = copy
            nodes.append(copy)
        return new, nodes


def _is_profitable(product: GraphNode, rows: int) -> bool:
    """Whether BLAS computes the product, with too few rows per iteration to be efficient."""
    (*batch, m, k), n = product.inputs[0].aval.shape, product.aval.shape[-1]
    kinds = {x.aval.dtype.kind for x in product.operands}
    return not batch and kinds == {"f"} and rows <= MAX_BATCHED_ROWS and m * k * n >= LEAST


def _transposed(x: GraphNode, nodes: list[GraphNode], new: dict[GraphNode, GraphNode]) -> GraphNode:
    """The transpose of `x` in the body; appended to `nodes` if there is none."""
    x = new.get(x, x)
    if x.op is transpose:
        return x.operands[0]
    for node in nodes:
        if node.op is transpose and node.inputs == (x,):
            return node
    nodes.append(GraphNode(transpose, (x,), (("perm", (1, 0)),), transpose.aval(x.aval, perm=(1, 0))))
    return nodes[-1]
