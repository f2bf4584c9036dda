"""Close custom derivative rules into graphs, for calls recorded inside a region.

A region outlives the values of its trace, so its rules cannot hold them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.ir import Graph, GraphValue, replay
from tracegrad.ir.batch import batched
from tracegrad.ops.shape.linear import zeros_like

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


class RuleGraph:
    """One direction of a rule as a graph. Its inputs are the cotangents (or tangents) of the floating values, the
    outputs, the inputs, and the captured values `reads`; its outputs are the cotangents or tangents of some values,
    which are listed by position."""

    def __init__(self, graph: Graph, reads: Sequence[int], positions: Sequence[int]):
        self.graph, self.reads, self.positions = graph, list(reads), list(positions)

    def run(self, moved: Sequence[Any], like: Sequence[Any], values: Sequence[Any], captured: Any) -> dict[int, Any]:
        """The resulting cotangents (or tangents) by position, for the cotangents (or tangents) `moved` of `like`."""
        args = [zeros_like(x) if t is None else t for t, x in zip(moved, like) if x.dtype.kind in "fc"]
        return dict(zip(self.positions, replay(self.graph, [*args, *values, *(captured[k] for k in self.reads)])[0]))

    def batched(self, size: int) -> RuleGraph:
        """The direction with all values batched."""
        every = [True] * len(self.graph.inputs), [True] * len(self.graph.outputs)
        return RuleGraph(batched(self.graph, size, *every)[0], self.reads, self.positions)


class ClosedRule:
    """The rule of a call on `inputs` values followed by its captured values.

    `pulled` and `pushed` are its directions, or the exceptions that recording them raised. `then` is the push direction
    of a rule that can be pushed only after it was pulled. A rule may call its own function, so its graphs may contain
    the rule.
    """

    def __init__(self, name: str, inputs: int):
        self.name, self.inputs = name, inputs
        self.pulled: Any = None
        self.pushed: Any = None
        self.then: Any = None
        self._digest = ""
        self._batched: dict[int, ClosedRule] = {}

    def freeze(self) -> None:
        """Freeze the rule: all directions are known, and different rules have different names from now on."""
        text = "".join(str(x.graph) for x in (self.pulled, self.pushed) if isinstance(x, RuleGraph))
        self._digest = " " + hashlib.sha256(text.encode()).hexdigest()[:8]

    def __repr__(self) -> str:
        return repr(self.name + self._digest)

    def pull(
        self,
        cotangents: tuple[Array | GraphValue, ...],
        outputs: tuple[Array | GraphValue, ...],
        inputs: tuple[Array | GraphValue, ...],
    ) -> Sequence[Any]:
        self.pushed = self.then
        values = [*outputs, *inputs[: self.inputs]]
        result = _known(self.pulled).run(cotangents, outputs, values, inputs[self.inputs :])
        return [result.get(i) for i in range(len(inputs))]

    def push(self, tangents: Sequence[Any], outputs: Sequence[Any], inputs: tuple[Any, ...]) -> list[Operand | None]:
        own_inputs = inputs[: self.inputs]
        result = _known(self.pushed).run(tangents, own_inputs, [*outputs, *own_inputs], inputs[self.inputs :])
        return [result.get(k) for k in range(len(outputs))]

    def batched(self, size: int) -> ClosedRule:
        rule = self._batched.get(size)
        if rule is None:
            rule = self._batched[size] = ClosedRule(self.name, self.inputs)
            for name in ("pulled", "pushed", "then"):
                one = getattr(self, name)
                setattr(rule, name, one.batched(size) if isinstance(one, RuleGraph) else one)
            rule.freeze()
        return rule


class NotYet(Exception):
    """Raised if a direction of a rule uses the other direction before that is known."""


def _known(direction: Any) -> RuleGraph:
    if direction is None:
        raise NotYet
    if isinstance(direction, Exception):
        raise direction
    known: RuleGraph = direction
    return known
