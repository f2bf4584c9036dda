"""View a loop node: its regions, and the arithmetic on the numbers of its operands and results.

The operands of a loop are the initial carries, the arrays that a scan reads by rows, and constants; its body takes them
in this order. The results of the body are the next carries, then values that are stacked. The results of the node are
the same, but a `while_loop` has its trip count after the carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from tracegrad.avals import Aval
from tracegrad.ir.builder import sliced
from tracegrad.ir.graph import Graph, GraphNode, Params
from tracegrad.ops.core.forms import Repeat, While
from tracegrad.ops.core.op import Op

T = TypeVar("T")


class LoopView(NamedTuple):
    """The parameters of a `scan`, or (`cond` is a graph) of a `while_loop`.

    `length` is the number of iterations of a scan, and the capacity of a `while_loop`.
    """

    op: Op
    body: Graph
    carries: int
    xs: int = 0
    length: int = 0
    reverse: bool = False
    cond: Graph | None = None

    @staticmethod
    def of(node: GraphNode) -> LoopView:
        """The view of a loop node."""
        assert node.op is not None
        return LoopView.from_params(node.op, dict(node.params))

    @staticmethod
    def from_params(op: Op, params: dict[str, Any]) -> LoopView:
        """The view of the loop with these parameters."""
        body, carries = params["body"], params["carries"]
        if "cond" in params:
            return LoopView(op, body, carries, 0, params["capacity"], False, params["cond"])
        return LoopView(op, body, carries, params["xs"], params["length"], params["reverse"], None)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the op."""
        params: dict[str, Any] = {"body": self.body, "carries": self.carries}
        if self.cond is not None:
            return {**params, "cond": self.cond, "capacity": self.length}
        return {**params, "xs": self.xs, "length": self.length, "reverse": self.reverse}

    @property
    def items(self) -> Params:
        """The parameters of a node."""
        return tuple(sorted(self.params.items()))

    def applied(self, operands: Iterable[Any]) -> tuple[Any, ...]:
        """The results of the loop for these operands."""
        results: tuple[Any, ...] = self.op(*operands, **self.params)
        return results

    # -- operands and inputs ---------------------------------------------------------------------------------
    @property
    def varying(self) -> int:
        """The number of operands before the constants."""
        return self.carries + self.xs

    def initial(self, operands: Sequence[T]) -> Sequence[T]:
        """The initial carries among the operands, or the carries among the inputs of the body."""
        return operands[: self.carries]

    def scanned(self, operands: Sequence[T]) -> Sequence[T]:
        """The scanned arrays among the operands, or the rows among the inputs of the body."""
        return operands[self.carries : self.varying]

    def constants(self, operands: Sequence[T]) -> Sequence[T]:
        """The constants among the operands, or among the inputs of the body."""
        return operands[self.varying :]

    def input_avals(self, operands: Sequence[Aval]) -> list[Aval]:
        """The avals of the inputs of the body for operands with these avals."""
        return [row_of(a) if self.carries <= k < self.varying else a for k, a in enumerate(operands)]

    def is_unchanged(self, k: int) -> bool:
        """Whether input `k` of the body has the same value in each iteration: a constant, or an unchanged carry."""
        return k >= self.varying or (k < self.carries and self.body.outputs[k] is self.body.inputs[k])

    # -- results ---------------------------------------------------------------------------------------------
    @property
    def first_stacked(self) -> int:
        """The number of the first stacked result of the node."""
        return self.carries + (self.cond is not None)

    @property
    def is_stacking(self) -> bool:
        """Whether an iteration has results besides the carries."""
        return len(self.body.outputs) > self.carries

    def output_of(self, k: int) -> int | None:
        """The number of the output of the body that result `k` of the node carries or stacks; None for the trip count.

        >>> from tracegrad.ir import Builder
        >>> from tracegrad.ops.elementwise.table import add
        >>> scan = LoopView(add, Builder().build([]), carries=2)  # of whatever op
        >>> [scan._replace(cond=cond).output_of(k) for cond in (None, scan.body) for k in (1, 2, 3)]
        [1, 2, 3, 1, None, 2]
        """
        if k < self.carries or self.cond is None:
            return k
        return None if k == self.carries else k - 1

    def results_of(self, outputs: Iterable[int]) -> list[int]:
        """The numbers of the results of the node for these outputs of the body in order, and of the trip count."""
        outputs, shift = list(outputs), self.first_stacked - self.carries
        carried = [k for k in outputs if k < self.carries]
        return [*carried, *range(self.carries, self.carries + shift), *(k + shift for k in outputs[len(carried) :])]

    # -- other loops -----------------------------------------------------------------------------------------
    def restricted(self, inputs: Sequence[int], outputs: Sequence[int]) -> LoopView:
        """The loop with only these inputs and outputs of its body, in ascending order. The remaining outputs and the
        condition depend on no other inputs."""
        carries = sum(k < self.carries for k in outputs)
        return self._replace(
            body=restricted(self.body, inputs, outputs),
            cond=None if self.cond is None else restricted(self.cond, inputs, [0]),
            carries=carries,
            xs=sum(self.carries <= i < self.varying for i in inputs),
            length=self.length if self.cond is None or carries < len(outputs) else 0,
        )


def is_loop(node: GraphNode) -> bool:
    """Whether a node runs a body repeatedly."""
    return isinstance(node.form, Repeat | While)


def row_of(aval: Aval) -> Aval:
    """The aval of one row of an array."""
    return Aval(aval.shape[1:], aval.dtype)


def needed_inputs(graph: Graph, outputs: Iterable[int]) -> set[int]:
    """The numbers of the inputs that these outputs depend on."""
    needed = {graph.outputs[k] for k in outputs}
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.operands)
    return {i for i, x in enumerate(graph.inputs) if x in needed}


def live_values(body: Graph, results: Iterable[int], carries: int) -> tuple[list[int], set[int]]:
    """The outputs of the body of a loop that these outputs of some iteration depend on, and the inputs that they read
    (liveness)."""
    outputs = set(results)
    while True:
        inputs = needed_inputs(body, outputs) | {k for k in outputs if k < carries}
        newly_live = {i for i in inputs if i < carries} - outputs
        if not newly_live:
            return sorted(outputs), inputs
        outputs |= newly_live


def restricted(graph: Graph, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    """`graph` with only these inputs and outputs, and without dead nodes; the same graph if all remain."""
    result = sliced([graph.inputs[i] for i in inputs], graph.nodes, [graph.outputs[k] for k in outputs])
    sizes, before = [[len(x) for x in (g.inputs, g.nodes, g.outputs)] for g in (result, graph)]
    return graph if sizes == before else result
