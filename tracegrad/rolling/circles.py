"""Ways around a loop, each with the answers that lead along it, and the `while_loop` that goes along any of them.

All begin and end at one question in one state of Python's. Which of them a turn takes is a tree of questions: that of
the loop itself first, whose answer is carried, then those asked on the way. The loop ends where no way is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tracegrad.control.branch import cond
from tracegrad.control.regions import run_region
from tracegrad.control.until import while_loop
from tracegrad.ir import Graph, Node, build
from tracegrad.ir.builder import sliced
from tracegrad.ops.elementwise import equal, logical_and, logical_not, logical_or, where
from tracegrad.ops.linear import full, reshape

__all__ = ["Loop", "Question", "Way"]


class Question(NamedTuple):
    """What was asked on a way, where, and the answer."""

    node: Node
    location: str
    answer: Any


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """The values of a state before and after a turn, the questions in between, that at the end, and all nodes.

    `settled` are values that were taken for constants.
    """

    before: list[Node]
    after: list[Node]
    questions: list[Question]
    last: Node
    nodes: list[Node]
    settled: list[Node]

    @property
    def answers(self) -> tuple[Any, ...]:
        return tuple([q.answer for q in self.questions])


class Loop:
    """The loop along several ways, which begins where the first one did."""

    def __init__(self, ways: Sequence[Way]):
        self.ways = list(ways)
        size = range(len(ways[0].before))
        self.moved = [k for k in size if any(way.before[k] is not way.after[k] for way in ways)]
        self.fixed = {x for k, x in enumerate(ways[0].before) if k not in self.moved}
        self._turns = [sliced(self._start(x), x.nodes, [*(x.after[k] for k in self.moved), x.last]) for x in ways]
        self._asking = [sliced(self._start(x), x.nodes, [q.node for q in x.questions[1:]]) for x in ways]
        self.outside = list(dict.fromkeys(x for g in (*self._turns, *self._asking) for x in _read(g)))

    def _start(self, way: Way) -> list[Node]:
        return [way.before[k] for k in self.moved]

    @property
    def is_possible(self) -> bool:
        """Whether the ways read nothing but the state and inputs, and part at questions that have other answers."""
        if not all(x.op is None or x in self.fixed for x in self.outside) or not _parts(self.ways, 0):
            return False
        # What is asked before it is known whether there is a turn must not fail.
        if any(x.op.form.raises for g in self._asking for x in g.nodes):  # type: ignore[union-attr]
            return False
        for way in self.ways:
            moved = set(self._start(way))
            if any(x.depends_on(moved) for x in way.settled):
                return False
            # Rules of the user's that run where a derivative is taken know the values of the turn that was recorded.
            if any(name == "rule" for x in way.nodes for name, _ in x.params):
                return False
        return True

    def raises(self, node: Node) -> bool:
        """Whether a turn computes a node, which may raise."""
        return any(node in graph.nodes for graph in self._turns)

    @property
    def ends_at_question(self) -> bool:
        """Whether the answer to the question of the loop alone ends it."""
        return len({way.answers[0] for way in self.ways}) == 1 and _knows_all(self.ways, 1)

    def emit(self, value: Any) -> tuple[dict[int, Any], Any]:
        """The values of the state behind the loop, by number, of what changes, and the question; `value` gives the
        values of nodes."""
        first, count = self.ways[0], len(self.moved)
        operands = [*map(value, self._start(first)), _truth(value(first.questions[0].node)), *map(value, self.outside)]
        avals = [x.aval for x in operands]
        turns, asking = ([self._closed(g, avals) for g in graphs] for graphs in (self._turns, self._asking))

        def chosen(args: Sequence[Any]) -> tuple[Any, Any]:
            values = {way: [args[count], *run_region(g, args)] for way, g in zip(self.ways, asking)}
            return self._chosen(self.ways, 0, values)

        def goes_on(*args: Any) -> list[Any]:
            return [chosen(args)[0]]

        def turn(*args: Any) -> list[Any]:
            one = len(turns) == 1
            found = run_region(turns[0], args) if one else cond(chosen(args)[1], *args, branches=tuple(turns))
            return [*found[:-1], _truth(found[-1])]

        found = while_loop(
            *operands, cond=build(goes_on, avals), body=build(turn, avals), carries=count + 1, capacity=0
        )
        return dict(zip(self.moved, found)), found[count]

    def _closed(self, graph: Graph, avals: Sequence[Any]) -> Graph:
        """A graph of a way as one of what changes, the question, and what does not change."""
        count = len(self.moved)
        given = Graph((*graph.inputs, *self.outside), graph.nodes, graph.outputs)
        return build(lambda *args: run_region(given, [*args[:count], *args[count + 1 :]]), avals)

    def _chosen(self, ways: Sequence[Way], level: int, values: dict[Way, list[Any]]) -> tuple[Any, Any]:
        """Whether one of these ways, with the same answers before this level, is the one to go, and its number."""
        if len(ways[0].questions) == level:
            return _constant(True, "bool"), _constant(self.ways.index(ways[0]), "int64")
        asked, known, number = values[ways[0]][level], None, None
        for answer, those in _by_answer(ways, level).items():
            agrees = _agrees(asked, answer)
            further, way = self._chosen(those, level + 1, values)
            here = logical_and(agrees, further)
            known = here if known is None else logical_or(known, here)
            number = way if number is None else where(agrees, way, number)
        if _knows_all(ways, level):
            known = _constant(True, "bool")
        return known, number


def _by_answer(ways: Sequence[Way], level: int) -> dict[Any, list[Way]]:
    found: dict[Any, list[Way]] = {}
    for way in ways:
        found.setdefault(way.answers[level], []).append(way)
    return found


def _parts(ways: Sequence[Way], level: int) -> bool:
    """Whether ways with the same answers before this level are one, or part at the same question."""
    ends = [way for way in ways if len(way.questions) == level]
    if ends:
        return len(ways) == 1
    groups = _by_answer(ways, level)
    return len({x.questions[level].location for x in ways}) == 1 and all(_parts(x, level + 1) for x in groups.values())


def _knows_all(ways: Sequence[Way], level: int) -> bool:
    """Whether there is a way for each answer from this level on."""
    if len(ways[0].questions) == level:
        return True
    groups = _by_answer(ways, level)
    return {repr(x) for x in groups} == {"True", "False"} and all(_knows_all(x, level + 1) for x in groups.values())


def _read(graph: Graph) -> list[Node]:
    """What the graph reads from outside."""
    inside = {*graph.inputs, *graph.nodes}
    return [x for x in (*(x for n in graph.nodes for x in n.operands), *graph.outputs) if x not in inside]


def _constant(x: Any, dtype: str) -> Any:
    return full(shape=(), value=x, dtype=dtype)


def _truth(x: Any) -> Any:
    """A question without axes."""
    return reshape(x, shape=()) if x.shape else x


def _agrees(x: Any, answer: Any) -> Any:
    """Whether a question has this answer."""
    x = _truth(x)
    if x.dtype.kind != "b":
        return equal(x, answer)
    return x if answer else logical_not(x)
