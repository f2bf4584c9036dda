"""Interface of lowering rules: one handler class for each op form (`tracegrad.codegen.lower.form_rules`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.codegen.loopir.kernel import Operand, Store
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.ir import Node

if TYPE_CHECKING:
    from tracegrad.codegen.lower.lower import Lowering
    from tracegrad.codegen.lower.materialize import Storage
    from tracegrad.codegen.lower.symbolic_shapes import Dims

__all__ = ["Axes", "Handler", "Index"]

Axes = tuple[int, ...]
Index = tuple[Poly, ...]


class Handler:
    """Lowering rule of an op form; the base class is for called ops, which NumPy computes from operands in memory.

    `step`: the kind of step that computes a stored result, "kernel", "matmul" or "call". `pointwise`: an element
    depends on the operands' elements at the same index. `aligned`: a kernel computes the result from the operands'
    elements at the index of its loops. `late`: the result is known only after the loops. `alone`: it needs its own
    loops. `indexed`: some index operand may be out of range.
    """

    step = "kernel"
    pointwise = False
    aligned = False
    late = False
    alone = False
    indexed = False

    def called(self, node: Node) -> bool:
        """Whether NumPy is called, because there is no code for these dtypes."""
        return True

    def axes(self, dims: Dims, node: Node, operands: list[Axes]) -> Axes | None:
        """The axes of the result: axes of operands, or new ones; None if all are new."""
        return None

    def store(self, storage: Storage, node: Node) -> None:
        """Request storage for the result, or for operands that are read whole."""

    def whole(self, node: Node) -> tuple[Node, ...]:
        """The operands that are read whole."""
        return node.operands

    def repeats(self, node: Node) -> bool:
        """Whether elements of operands are read repeatedly."""
        return False

    def space(self, node: Node) -> Node:
        """The value whose shape is the iteration space of the result."""
        return node

    def begins(self, node: Node) -> Node | None:
        """The operand that initializes the stored result, if the kernel writes only a part."""
        return None

    def cost(self, node: Node) -> int:
        """The rough cost of one element, without its operands."""
        return 0

    def root(self, lowering: Lowering, node: Node, index: Index) -> None:
        """Emit the body of the kernel that stores the result, at `index` of its iteration space."""
        value = lowering.value(node, index)
        lowering.emit(Store(lowering.buffer(node, "out"), lowering.address(node, index), value))

    def element(self, lowering: Lowering, node: Node, index: Index) -> Operand:
        """Emit the element of the result at `index`."""
        raise AssertionError(f"{node.name} is not computed by element")
