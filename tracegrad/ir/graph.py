"""Nodes and graphs.

A graph is a straight line of SSA nodes, each one op applied to earlier nodes; a node is its value. Nodes are immutable
and compare by identity; numbers exist only in print. Graphs compare by what they print.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tracegrad.avals import Aval, is_literal
from tracegrad.ir.printing import to_text
from tracegrad.ops.op import Op

__all__ = ["Graph", "Node"]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """The result of one op, or (`op` None) an input of the graph. Operands are nodes and literals."""

    op: Op | None
    inputs: tuple[Any, ...]
    params: tuple[tuple[str, Any], ...]
    aval: Aval
    location: str = field(default="", repr=False)
    operands: tuple[Node, ...] = field(init=False, repr=False)  # the operands that are nodes

    def __post_init__(self) -> None:
        object.__setattr__(self, "operands", tuple([x for x in self.inputs if not is_literal(x)]))

    @property
    def name(self) -> str:
        return self.op.name if self.op else "input"

    def depends_on(self, nodes: set[Node]) -> bool:
        """Whether any of `nodes` has a part in this value."""
        seen, stack = {self}, [self]
        while stack:
            node = stack.pop()
            if node in nodes:
                return True
            fresh = set(node.operands) - seen
            seen |= fresh
            stack.extend(fresh)
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Inputs, nodes in order of computation, outputs (inputs and nodes, repeated if need be)."""

    inputs: tuple[Node, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Node, ...]

    def __str__(self) -> str:
        return to_text(self)

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def avals(self) -> tuple[Aval, ...]:
        """The abstract values of the inputs."""
        return tuple(x.aval for x in self.inputs)

    def users(self) -> dict[Node, list[Node]]:
        """The nodes that use each value, in order."""
        found: dict[Node, list[Node]] = {x: [] for x in (*self.inputs, *self.nodes)}
        for node in self.nodes:
            for x in dict.fromkeys(node.operands):
                found[x].append(node)
        return found
