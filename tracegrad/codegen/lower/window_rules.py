"""Lower dynamic_slice and dynamic_update_slice: windows at computed offsets.

Reading a window is arithmetic on the index. Writing one is a kernel over the window, in an array initialized with a
copy of its base. The copy is elided if the base is not read afterwards (`tracegrad.codegen.plan.in_place`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.avals import is_literal
from tracegrad.codegen.loopir.kernel import Operand, Store
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.lower.form_rule import Axes, Handler, Index
from tracegrad.ir import GraphNode

if TYPE_CHECKING:
    from tracegrad.codegen.lower.lower import Lowering
    from tracegrad.codegen.lower.materialize import Storage
    from tracegrad.codegen.lower.symbolic_shapes import Dims


def _window_index(lowering: Lowering, node: GraphNode, first: int, index: Index) -> Index:
    """The index in the array of element `index` of a window; input `first` is the first start of the window."""
    results = []
    for k, (i, step) in enumerate(zip(index, dict(node.params)["step"])):
        begin = _start(lowering, node, first + k)
        results.append(begin + i * lowering.arguments.integer((node, "step", k), step))
    return tuple(results)


def _start(lowering: Lowering, node: GraphNode, k: int) -> Poly:
    start: Any = node.inputs[k]
    if not is_literal(start):
        result = str(lowering.element(start, ()))
        if result[0] == "v":
            return Poly.symbol(result)
        start = lowering.arguments.constants[result][1] if result[0] == "c" else result
    return lowering.arguments.integer((node, "start", k), int(start))


class CheckedHandler(Handler):
    """Rule of checked starts: the kernel that stores them checks them once, not the loops over windows."""

    pointwise = aligned = True

    def called(self, node: GraphNode) -> bool:
        return False

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        return operands[0]

    def store(self, storage: Storage, node: GraphNode) -> None:
        storage.store(node, "indices, which are checked once")

    def element(self, lowering: Lowering, node: GraphNode, index: Index) -> Operand:
        length = lowering.arguments.integer((node, "length"), dict(node.params)["length"])
        return lowering.emit_index(lowering.checked(node.operands[0], index, length))


class WindowHandler(Handler):
    """Rule of dynamic_slice: each element is an element of the array."""

    def called(self, node: GraphNode) -> bool:
        return False

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        x, shape, starts = operands[0], node.operands[0].aval.shape, node.inputs[1:]
        whole = [type(a) is int and not a and n == m for a, n, m in zip(starts, shape, node.aval.shape)]
        return tuple([x[k] if along else dims.new(n) for k, (along, n) in enumerate(zip(whole, node.aval.shape))])

    def whole(self, node: GraphNode) -> tuple[GraphNode, ...]:
        return node.operands[1:]

    def repeats(self, node: GraphNode) -> bool:
        return True  # the starts may be out of range

    def element(self, lowering: Lowering, node: GraphNode, index: Index) -> Operand:
        return lowering.element(node.operands[0], _window_index(lowering, node, 1, index))


class PatchHandler(Handler):
    """Rule of dynamic_update_slice: the kernel runs over the updated elements."""

    late = True
    needs_own_loops = True

    def called(self, node: GraphNode) -> bool:
        return False

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        return operands[0]

    def store(self, storage: Storage, node: GraphNode) -> None:
        storage.store(node, "written in part")
        storage.store_base(node.operands[0], "what is written in part")

    def space(self, node: GraphNode) -> GraphNode:
        return node.operands[1]

    def initialized_from(self, node: GraphNode) -> GraphNode | None:
        return node.operands[0]

    def root(self, lowering: Lowering, node: GraphNode, index: Index) -> None:
        value = lowering.element(node.operands[1], index)
        target = _window_index(lowering, node, 2, index)
        lowering.emit(Store(lowering.buffer(node, "out"), lowering.address(node, target), value))
