"""Interface of lowering rules: one handler class for each op form (`tracegrad.codegen.lower.form_rules`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.codegen.loopir.kernel import Operand, Store
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.ir import GraphNode

if TYPE_CHECKING:
    from tracegrad.codegen.lower.lower import Lowering
    from tracegrad.codegen.lower.materialize import Storage
    from tracegrad.codegen.lower.symbolic_shapes import Dims

Axes = tuple[int, ...]
Index = tuple[Poly, ...]


class Handler:
    """Lowering rule of an op form; the base class is for called ops, which NumPy computes from operands in memory.

    `step_kind`: the kind of step that computes a stored result, "kernel", "matmul" or "call". `pointwise`: an element
    depends on the operands' elements at the same index. `aligned`: a kernel computes the result from the operands'
    elements at the index of its loops. `late`: the result is known only after the loops. `needs_own_loops`: it needs
    its own loops. `indexed`: some index operand may be out of range.
    """

    step_kind = "kernel"
    pointwise = False
    aligned = False
    late = False
    needs_own_loops = False
    indexed = False

    def called(self, node: GraphNode) -> bool:
        """Whether NumPy is called, because there is no code for these dtypes."""
        return True

    def axes(self, dims: Dims, node: GraphNode, operands: list[Axes]) -> Axes | None:
        """The axes of the result: axes of operands, or new ones; None if all are new."""
        return None

    def store(self, storage: Storage, node: GraphNode) -> None:
        """Request storage for the result, or for operands that are read whole."""

    def whole(self, node: GraphNode) -> tuple[GraphNode, ...]:
        """The operands that are read whole."""
        return node.operands

    def repeats(self, node: GraphNode) -> bool:
        """Whether elements of operands are read repeatedly."""
        return False

    def space(self, node: GraphNode) -> GraphNode:
        """The value whose shape is the iteration space of the result."""
        return node

    def initialized_from(self, node: GraphNode) -> GraphNode | None:
        """The operand that initializes the stored result, if the kernel writes only a part."""
        return None

    def cost(self, node: GraphNode) -> int:
        """The rough cost of one element, without its operands."""
        return 0

    def root(self, lowering: Lowering, node: GraphNode, index: Index) -> None:
        """Emit the body of the kernel that stores the result, at `index` of its iteration space."""
        value = lowering.value(node, index)
        lowering.emit(Store(lowering.buffer(node, "out"), lowering.address(node, index), value))

    def element(self, lowering: Lowering, node: GraphNode, index: Index) -> Operand:
        """Emit the element of the result at `index`."""
        raise AssertionError(f"{node.name} is not computed by element")
