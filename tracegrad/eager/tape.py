"""The tape: what an operation leaves behind so that a derivative can be taken later.

A `Node` is the record of one op: the arrays it was applied to, its answer, and the nodes that made the operands. Every
value on the tape is one ndarray object, and no two values share an object (they may share memory): the ndarray is the
identity of the value. An in-place operation therefore gives its Tensor a new ndarray, and records stay what they were.

Nodes are numbered as they are made, so descending numbers are an order in which every node comes before the nodes
that its operands came from.
"""

from __future__ import annotations

import itertools
from typing import Any

from tracegrad.ops.op import Op

__all__ = ["CLASSES", "AccumulateGrad", "Node", "node_class"]

_numbers = itertools.count()
next_number = _numbers.__next__


class Node:
    """One recorded op; `parents` has, for each operand, the node of its value, or None where nothing is recorded."""

    __slots__ = ("__weakref__", "answer", "number", "op", "operands", "params", "parents")

    def __init__(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any], answer: Any, parents: list[Any]):
        self.op, self.operands, self.params, self.answer, self.parents = op, operands, params, answer, parents
        self.number = next_number()

    def name(self) -> str:
        """The name PyTorch gives to the node of this op."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes that the operands came from, each with the number of its output."""
        return tuple((p, 0) for x, p in zip(self.operands, self.parents) if hasattr(x, "shape"))

    @property
    def released(self) -> bool:
        """Whether a backward pass without `retain_graph` has freed what was saved here."""
        return self.operands is _RELEASED

    def release(self) -> None:
        """Free what was saved."""
        self.operands = _RELEASED
        self.answer = None

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


_RELEASED: Any = ()


class AccumulateGrad:
    """The end of the tape at a leaf: cotangents that arrive here are added to `variable.grad`."""

    __slots__ = ("__weakref__", "answer", "variable")
    released = False
    next_functions: tuple[Any, ...] = ()

    def __init__(self, variable: Any, answer: Any):
        self.variable, self.answer = variable, answer

    def name(self) -> str:
        """The name PyTorch gives to it."""
        return "AccumulateGrad"

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


# -- names -----------------------------------------------------------------------------------------------------------
_STEMS = {
    "subtract": "Sub", "multiply": "Mul", "divide": "Div", "negative": "Neg", "power": "Pow", "absolute": "Abs",
    "reduce_sum": "Sum", "reduce_max": "Amax", "reduce_min": "Amin", "reduce_prod": "Prod",
    "broadcast_to": "Expand", "cast": "ToCopy", "matmul": "Bmm", "gather": "Index", "concatenate": "Cat",
    "transpose": "Permute", "fresh": "Alias", "reshape": "View", "arcsin": "Asin", "arccos": "Acos",
    "arctan": "Atan", "arctan2": "Atan2", "arcsinh": "Asinh", "arccosh": "Acosh", "arctanh": "Atanh",
    "scatter_add": "IndexPut", "pad": "ConstantPadNd",
}  # fmt: skip

CLASSES: dict[Op, type[Node]] = {}


def node_class(op: Op) -> type[Node]:
    """The class of the nodes of `op`, which carries PyTorch's name for it."""
    found = CLASSES.get(op)
    if found is None:
        stem = _STEMS.get(op.name) or "".join(part.capitalize() for part in op.name.split("_"))
        found = CLASSES[op] = type(f"{stem}Backward0", (Node,), {"__slots__": ()})
    return found
