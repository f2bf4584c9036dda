"""Derivative rules as graphs: those of calls inside a region, which lives on when the values of its trace are gone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from tracegrad.ir import Graph, replay
from tracegrad.ir.batch import batched
from tracegrad.ops.shape.linear import zeros_like

__all__ = ["ClosedRule", "NotYet", "RuleGraph"]


class RuleGraph:
    """One direction of a rule: a graph of the cotangents (or tangents) of the floating values, the outputs, the inputs
    and some of what the call captured (`reads`); it gives those of the values at `found`."""

    def __init__(self, graph: Graph, reads: Sequence[int], found: Sequence[int]):
        self.graph, self.reads, self.found = graph, list(reads), list(found)

    def run(self, moved: Sequence[Any], like: Sequence[Any], values: Sequence[Any], captured: Any) -> dict[int, Any]:
        """By position, what becomes of the cotangents (or tangents) `moved` of the values `like`."""
        given = [zeros_like(x) if t is None else t for t, x in zip(moved, like) if x.dtype.kind in "fc"]
        return dict(zip(self.found, replay(self.graph, [*given, *values, *(captured[k] for k in self.reads)])[0]))

    def batched(self, size: int) -> RuleGraph:
        """The direction for a batch of everything."""
        every = [True] * len(self.graph.inputs), [True] * len(self.graph.outputs)
        return RuleGraph(batched(self.graph, size, *every)[0], self.reads, self.found)


class ClosedRule:
    """The rule of a call on `inputs` values and then what it captured.

    `pulled` and `pushed` are its directions, or the exceptions for which they could not be recorded; some rules can be
    pushed only when they have been pulled, and are `then`. A rule may call the function that it is the rule of, so its
    graphs may contain it.
    """

    def __init__(self, name: str, inputs: int):
        self.name, self.inputs = name, inputs
        self.pulled: Any = None
        self.pushed: Any = None
        self.then: Any = None
        self._digest = ""
        self._batched: dict[int, ClosedRule] = {}

    def settle(self) -> None:
        """All directions are known: rules that differ have different names from now on."""
        text = "".join(str(x.graph) for x in (self.pulled, self.pushed) if isinstance(x, RuleGraph))
        self._digest = " " + hashlib.sha256(text.encode()).hexdigest()[:8]

    def __repr__(self) -> str:
        return repr(self.name + self._digest)

    def pull(self, cotangents: Sequence[Any], outputs: Sequence[Any], inputs: tuple[Any, ...]) -> Sequence[Any]:
        self.pushed = self.then
        values = [*outputs, *inputs[: self.inputs]]
        found = _known(self.pulled).run(cotangents, outputs, values, inputs[self.inputs :])
        return [found.get(i) for i in range(len(inputs))]

    def push(self, tangents: Sequence[Any], outputs: Sequence[Any], inputs: tuple[Any, ...]) -> Sequence[Any]:
        own = inputs[: self.inputs]
        found = _known(self.pushed).run(tangents, own, [*outputs, *own], inputs[self.inputs :])
        return [found.get(k) for k in range(len(outputs))]

    def batched(self, size: int) -> ClosedRule:
        found = self._batched.get(size)
        if found is None:
            found = self._batched[size] = ClosedRule(self.name, self.inputs)
            for name in ("pulled", "pushed", "then"):
                one = getattr(self, name)
                setattr(found, name, one.batched(size) if isinstance(one, RuleGraph) else one)
            found.settle()
        return found


class NotYet(Exception):
    """A direction of a rule is asked for before it is known, by the other one."""


def _known(direction: Any) -> RuleGraph:
    if direction is None:
        raise NotYet
    if isinstance(direction, Exception):
        raise direction
    known: RuleGraph = direction
    return known
