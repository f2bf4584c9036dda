"""What the compiler asks of an op: the class of handlers, one for each form (`tracegrad.codegen.lower.form_rules`)."""

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
    """Of ops that are called: NumPy computes the answer, from operands in memory.

    `step`: what computes a stored answer, "kernel", "matmul" or "call". `pointwise`: an element is made of the elements
    of the operands at the same index. `aligned`: a kernel computes the answer from the elements of the operands at the
    index of its loops. `late`: the answer is known only when the loops have run. `alone`: it needs loops of its own.
    `indexed`: some index among its operands may be out of range.
    """

    step = "kernel"
    pointwise = False
    aligned = False
    late = False
    alone = False
    indexed = False

    def called(self, node: Node) -> bool:
        """Whether NumPy is called, there being no code for these dtypes."""
        return True

    def axes(self, dims: Dims, node: Node, operands: list[Axes]) -> Axes | None:
        """The axes of the answer, of which some are those of the operands; None for new ones."""
        return None

    def store(self, storage: Storage, node: Node) -> None:
        """Have stored what must be: the answer, or operands that are read as a whole."""

    def whole(self, node: Node) -> tuple[Node, ...]:
        """The operands of which every element is read."""
        return node.operands

    def repeats(self, node: Node) -> bool:
        """Whether elements of operands are read more than once."""
        return False

    def space(self, node: Node) -> Node:
        """The value whose shape the loops run over that compute the answer."""
        return node

    def begins(self, node: Node) -> Node | None:
        """The operand whose elements the stored answer has wherever the kernel writes none."""
        return None

    def cost(self, node: Node) -> int:
        """The rough cost of one element, operands apart."""
        return 0

    def root(self, lowering: Lowering, node: Node, index: Index) -> None:
        """Write down what the kernel that stores the answer does at `index` of its iteration space."""
        value = lowering.value(node, index)
        lowering.emit(Store(lowering.buffer(node, "out"), lowering.address(node, index), value))

    def element(self, lowering: Lowering, node: Node, index: Index) -> Operand:
        """The element of the answer at `index`."""
        raise AssertionError(f"{node.name} is not computed by element")
