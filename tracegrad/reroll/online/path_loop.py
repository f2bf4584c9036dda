"""Ways around a loop, each with the answers that lead along it, and the `while_loop` that goes along any of them.

All begin and end at one question in one state of Python's. Which of them a turn takes is a tree of questions: that of
the loop itself first, whose answer is carried, then those asked on the way. The loop ends where no way is known.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from tracegrad.avals import aval_of, is_literal
from tracegrad.control.cond_op import cond
from tracegrad.control.hoist_invariant_reads import read_before
from tracegrad.control.region_ops import run_region
from tracegrad.control.scan_op import scan
from tracegrad.control.while_op import while_loop
from tracegrad.ir import Graph, Node, build, recorder
from tracegrad.ir.builder import sliced
from tracegrad.ir.interpreter import applied
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.forms import Compose
from tracegrad.ops.elementwise.table import equal, greater, less, logical_and, logical_not, logical_or, where
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import full, reshape
from tracegrad.reroll.induction import counted
from tracegrad.reroll.merge_paths import merged
from tracegrad.reroll.reads_to_xs import rows_taken
from tracegrad.utils.lazy_dataclass import record

__all__ = ["Begin", "Count", "Loop", "Question", "Way", "may_raise"]


class Question(NamedTuple):
    """What was asked on a way, where, and the answer."""

    node: Node
    location: str
    answer: Any


class Count(NamedTuple):
    """What a loop counts: the value of the state that it is, the step, where it stops, and the numbers, if they are
    known."""

    node: Node
    step: int
    stop: Any
    numbers: range | None


@record(frozen=True, slots=True, eq=False)
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

    @property
    def asked(self) -> list[tuple[str, Any]]:
        """Where what was asked, and the answers: what tells it from others."""
        return [(q.location, q.answer) for q in self.questions]

    def moves(self, k: int, first: Node) -> bool:
        """Whether a turn changes a value of the state, or reads it where it is not `first`."""
        x = self.before[k]
        if x is first or self.after[k] is not x:
            return self.after[k] is not x
        asked = [self.last, *(q.node for q in self.questions)]
        others = [y for j, y in enumerate(self.after) if j != k]
        return x in asked or x in others or any(x in node.operands for node in self.nodes)


class Begin(NamedTuple):
    """The values of a state, and the question there."""

    state: list[Node]
    question: Node


class Loop:
    """The loop along several ways, and where it begins."""

    def __init__(self, ways: Sequence[Way], begin: Begin, needed: Collection[int] | None = None):
        self.ways, self.begin = list(ways), begin
        size = range(len(begin.state)) if needed is None else sorted(needed)
        self.moved = [k for k in size if any(way.moves(k, begin.state[k]) for way in ways)]
        self.fixed = {x for k, x in enumerate(begin.state) if k not in self.moved}
        self._turns = [sliced(self._start(x), x.nodes, [*(x.after[k] for k in self.moved), x.last]) for x in ways]
        self._asking = [sliced(self._start(x), x.nodes, [q.node for q in x.questions[1:]]) for x in ways]
        self.outside = list(dict.fromkeys(x for g in (*self._turns, *self._asking) for x in _read(g)))

    def _start(self, way: Way) -> list[Node]:
        return [way.before[k] for k in self.moved]

    @property
    def _first(self) -> list[Node]:
        return [self.begin.state[k] for k in self.moved]

    @property
    def is_possible(self) -> bool:
        """Whether the ways read nothing but the state and inputs, and part at questions that have other answers."""
        if not all(x.op is None or x in self.fixed for x in self.outside) or not _parts(self.ways, 0):
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
        return any(node in graph.nodes for graph in (*self._turns, *self._asking))

    def changes(self, node: Node) -> bool:
        """Whether a node of a turn is computed from what changes from turn to turn."""
        return any(node.depends_on(set(self._start(way))) for way in self.ways)

    @property
    def ends_at_question(self) -> bool:
        """Whether the answer to the question of the loop alone ends it."""
        return len({way.answers[0] for way in self.ways}) == 1 and _knows_all(self.ways, 1)

    def emit(self, value: Any) -> tuple[dict[int, Any], Any]:
        """The values of the state behind the loop, by number, of what changes, and the question; `value` gives the
        values of nodes."""
        count = len(self.moved)
        carries = [*map(value, self._first), _truth(value(self.begin.question))]
        if self._is_quick:
            goes_on, turn = self._goes_on, self._turn
        else:
            goes_on, turn = self._went_on, self._try
            carries.append(_constant(True, "bool"))
        operands = [*carries, *map(value, self.outside)]
        found = _while(operands, goes_on, turn, len(carries))
        return dict(zip(self.moved, found)), found[count]

    def emit_counted(self, value: Any, count: Count) -> tuple[dict[int, Any], Any]:
        """As `emit`, of a loop that ends where it has counted to the end."""
        at = self._first.index(count.node)
        found = self._counted_up(value, count, at) if count.numbers is None else self._scanned(value, count.numbers, at)
        return dict(zip(self.moved, found)), _constant(False, "bool")

    def _counted_up(self, value: Any, count: Count, at: int) -> Sequence[Any]:
        """The last state, if where the loop stops is a number of the trace."""
        first = self._first
        operands = [*map(value, first), *map(value, self.outside)]
        stop, place = count.stop, -1
        if isinstance(stop, Node):
            place = first.index(stop) if stop in first else len(operands)
            operands += [value(stop)] if place == len(operands) else []

        def goes_on(*args: Any) -> list[Any]:
            return [(less if count.step > 0 else greater)(args[at], stop if place < 0 else args[place])]

        def turn(*args: Any) -> list[Any]:
            return self._one(args[: len(first)], args[len(first) : len(first) + len(self.outside)])

        return _while(operands, goes_on, turn, len(first))

    def _scanned(self, value: Any, numbers: range, at: int) -> Sequence[Any]:
        """The last state, if all that is counted is known."""
        first = self._first
        inits = [value(x) for k, x in enumerate(first) if k != at]
        over = arange(start=numbers.start, step=numbers.step, length=len(numbers), dtype="int64")
        consts, n = [*map(value, self.outside)], len(inits)
        avals = [*(aval_of(x) for x in inits), first[at].aval, *(x.aval for x in self.outside)]

        def turn(*args: Any) -> list[Any]:
            found = self._one([*args[:at], args[n], *args[at:n]], args[n + 1 :])
            return [x for k, x in enumerate(found) if k != at]

        loop = counted(build(turn, avals), inits, numbers)
        n, consts = len(loop.kept), [*consts, *loop.begin]
        body, rows = rows_taken(loop.body, n, consts, numbers)
        operands = [*(inits[k] for k in loop.kept), over, *rows, *consts]
        operands, body, _ = read_before(operands, body, n, 1 + len(rows))
        found = loop.all(scan(*operands, body=body, carries=n, xs=1 + len(rows), length=len(numbers), reverse=False))
        return [*found[:at], _constant(numbers.stop, "int64"), *found[at:]]

    def _one(self, state: Sequence[Any], outside: Sequence[Any]) -> list[Any]:
        """What changes, after a turn that is known to be one."""
        yes = _constant(True, "bool")
        found = self._turn(*state, yes, *outside) if self._is_quick else self._try(*state, yes, yes, *outside)
        return found[: len(self.moved)]

    @property
    def _is_quick(self) -> bool:
        """Whether all that is asked is found by arithmetic of numbers."""
        return all(map(_is_quick, [x for g in self._asking for x in g.nodes]))

    def behind(self, value: Any) -> Any:
        """The question behind the loop, computed with no more of the state than it needs; `value` gives arrays."""
        wanted = {x for way in self.ways for x in (way.last, *(q.node for q in way.questions[1:]))}
        needed = set[int]()
        while True:
            for way in self.ways:
                read = {*wanted, *sliced([], way.nodes, list(wanted)).nodes}
                read |= {y for x in read for y in x.operands}
                needed |= {k for k in self.moved if way.before[k] in read}
            more = {way.after[k] for way in self.ways for k in needed} - wanted
            if not more:
                return Loop(self.ways, self.begin, needed).emit(value)[1]
            wanted |= more

    # -- if what is asked is found quickly: the way is known before it is gone -----------------------
    def _goes_on(self, *args: Any) -> list[Any]:
        return [self._way(args)[0]]

    def _turn(self, *args: Any) -> list[Any]:
        avals = [x.aval for x in args]
        turns = [self._closed(g, avals) for g in self._turns]
        found = run_region(turns[0], args) if len(turns) == 1 else merged(turns, args, self._way(args)[1])
        return [*found[:-1], _truth(found[-1])]

    def _way(self, args: Sequence[Any]) -> tuple[Any, Any]:
        """Whether a way is known, and its number."""
        avals, question = [x.aval for x in args], args[len(self.moved)]
        values = {way: [question, *run_region(self._closed(g, avals), args)] for way, g in zip(self.ways, self._asking)}
        return self._chosen(self.ways, 0, values, self.ways)

    def _closed(self, graph: Graph, avals: Sequence[Any]) -> Graph:
        """A graph of a way as one of what changes, the question, and what does not change."""
        count = len(self.moved)
        given = Graph((*graph.inputs, *self.outside), graph.nodes, graph.outputs)
        return build(lambda *args: run_region(given, [*args[:count], *args[count + 1 :]]), avals)

    # -- if it is not: the way is gone from question to question, and nothing has happened if it ends ------
    def _went_on(self, *args: Any) -> list[Any]:
        question, known = args[len(self.moved) : len(self.moved) + 2]
        answers = {way.answers[0] for way in self.ways}
        return [known if len(answers) > 1 else logical_and(known, _agrees(question, *answers))]

    def _try(self, *args: Any) -> list[Any]:
        count = len(self.moved)
        env = dict(zip(self.outside, args[count + 2 :]))
        for way in self.ways:
            env |= dict(zip(self._start(way), args)) | {way.questions[0].node: args[count]}
        return self._from(self.ways, 0, env, args[: count + 1])

    def _from(self, ways: Sequence[Way], level: int, env: dict[Node, Any], before: Sequence[Any]) -> list[Any]:
        """What is behind the turn, and whether there is a way: from the question at this level on, to which these ways
        lead; `before` is what was there before the turn."""
        if len(ways[0].questions) == level:
            found = _computed(ways[0], [*(ways[0].after[k] for k in self.moved), ways[0].last], env)
            return [*found[:-1], _truth(found[-1]), _constant(True, "bool")]
        asked, agree, level = self._asked(ways, level, env)
        groups = _by_answer(ways, level)
        if len(groups) > 1 and all(self._knows_what_is_asked(way, level, env) for way in ways):
            return self._from_here(ways, level, env, before, agree)
        wanted = {x: env[x] for way in ways for x in self._needed(way, level + 1, env)}
        # The ways begin with the same values: a branch is given each of them once, and computes once what is the same.
        given = {x.node: x for x in (*wanted.values(), *before)}
        operands, numbers = list(given.values()), {x: k for k, x in enumerate(given)}
        avals = [x.aval for x in operands]

        def along(those: Sequence[Way]) -> Graph:
            def run(*args: Any) -> list[Any]:
                env_there = {x: args[numbers[y.node]] for x, y in wanted.items()}
                return self._from(those, level + 1, env_there, [args[numbers[x.node]] for x in before])

            return build(run, avals)

        def back(*args: Any) -> list[Any]:
            return [*(args[numbers[x.node]] for x in before), _constant(False, "bool")]

        branches = [along(x) for x in groups.values()]
        if agree or len(groups) < 2 or asked.dtype.kind != "b":
            branches.append(build(back, avals))
        number = _constant(len(branches) - 1, "int64")
        for k, answer in enumerate(groups):
            number = where(_agrees(asked, answer), _constant(k, "int64"), number)
        for each in agree:
            number = where(each, number, _constant(len(branches) - 1, "int64"))
        return list(cond(number, *operands, branches=tuple(branches)))

    def _asked(self, ways: Sequence[Way], level: int, env: dict[Node, Any]) -> tuple[Any, list[Any], int]:
        """The first question from this level on at which the ways part, or behind which one is not found quickly;
        whether those before it are answered as on the ways; and its level."""
        agree: list[Any] = []
        while True:
            asked, *_ = [_computed(way, [way.questions[level].node], env)[0] for way in ways]
            groups = _by_answer(ways, level)
            if len(groups) > 1 or not all(self._asks_quickly(way, level + 1, env) for way in ways):
                return asked, agree, level
            agree.append(_agrees(asked, *groups))
            level += 1

    def _from_here(
        self, ways: Sequence[Way], level: int, env: dict[Node, Any], before: Sequence[Any], agree: Sequence[Any]
    ) -> list[Any]:
        """As `_from`, if the answers to all that is still asked are found quickly, and those before `agree`: what the
        ways do alike is done once."""
        asked = {way: [q.node for q in way.questions[level:]] for way in ways}
        answers = {way: [None] * level + _computed(way, nodes, env) for way, nodes in asked.items()}
        known, number = self._chosen(ways, level, answers, ways)
        wanted = {x: env[x] for way in ways for x in self._needed(way, len(way.questions), env)}
        given = {x.node: x for x in (*wanted.values(), *before, number)}
        operands, numbers = list(given.values()), {x: k for k, x in enumerate(given)}
        avals = [x.aval for x in operands]

        def rest(way: Way) -> Graph:
            def run(*args: Any) -> list[Any]:
                env_there = {x: args[numbers[y.node]] for x, y in wanted.items()}
                return _computed(way, [*(way.after[k] for k in self.moved), way.last], env_there)

            return build(run, avals)

        def along(*args: Any) -> list[Any]:
            found = merged([rest(way) for way in ways], args, args[numbers[number.node]])
            return [*found[:-1], _truth(found[-1]), _constant(True, "bool")]

        def back(*args: Any) -> list[Any]:
            return [*(args[numbers[x.node]] for x in before), _constant(False, "bool")]

        if _knows_all(ways, level) and not agree:
            return along(*operands)
        for each in agree:
            known = logical_and(known, each)
        which = where(known, _constant(0, "int64"), _constant(1, "int64"))
        return list(cond(which, *operands, branches=(build(along, avals), build(back, avals))))

    def _knows_what_is_asked(self, way: Way, level: int, env: dict[Node, Any]) -> bool:
        """Whether the answers to all questions from this level on are found by arithmetic of numbers."""
        rest = _rest(way, [q.node for q in way.questions[level:]], env)
        return all(_is_quick(x) or (x.op is full and not x.aval.shape) for x in rest)

    def _asks_quickly(self, way: Way, level: int, env: dict[Node, Any]) -> bool:
        """Whether there is another question at this level, and the answer is found by arithmetic of numbers."""
        more = level < len(way.questions)
        return more and all(map(_is_quick, _rest(way, [way.questions[level].node], env)))

    def _needed(self, way: Way, level: int, env: dict[Node, Any]) -> list[Node]:
        """What is known of what the rest of a way is computed from."""
        wanted = [*(q.node for q in way.questions[level:]), *(way.after[k] for k in self.moved), way.last]
        return [x for x in (*wanted, *(x for n in _rest(way, wanted, env) for x in n.operands)) if x in env]

    # -- the tree of questions -----------------------------------------------------------------------
    def _chosen(
        self, ways: Sequence[Way], level: int, values: dict[Way, list[Any]], among: Sequence[Way]
    ) -> tuple[Any, Any]:
        """Whether one of these ways, with the same answers before this level, is the one to go, and its number among
        others."""
        if len(ways[0].questions) == level:
            return _constant(True, "bool"), _constant(among.index(ways[0]), "int64")
        asked, known, number = values[ways[0]][level], None, None
        for answer, those in _by_answer(ways, level).items():
            agrees = _agrees(asked, answer)
            further, way = self._chosen(those, level + 1, values, among)
            here = logical_and(agrees, further)
            known = here if known is None else logical_or(known, here)
            number = way if number is None else where(agrees, way, number)
        if _knows_all(ways, level):
            known = _constant(True, "bool")
        return known, number


def _while(operands: Sequence[Any], goes_on: Any, turn: Any, carries: int) -> Sequence[Any]:
    """The last carries. What a turn hands on as it is is given to all as it was."""
    avals = [aval_of(x) for x in operands]
    body, test = build(turn, avals), build(goes_on, avals)
    moving = [k for k in range(carries) if body.outputs[k] is not body.inputs[k]]
    order = [*moving, *range(carries, len(operands)), *(k for k in range(carries) if k not in moving)]
    body = Graph(tuple([body.inputs[k] for k in order]), body.nodes, tuple([body.outputs[k] for k in moving]))
    test = Graph(tuple([test.inputs[k] for k in order]), test.nodes, test.outputs)
    given, body, asked = read_before([operands[k] for k in order], body, len(moving), cond=test)
    found = while_loop(*given, cond=asked, body=body, carries=len(moving), capacity=0)
    return [found[moving.index(k)] if k in moving else operands[k] for k in range(carries)]


def _computed(way: Way, wanted: Sequence[Node], env: dict[Node, Any]) -> list[Any]:
    """The values of nodes of a way; `env` has those that are known, and gets those that are computed."""
    inside = recorder()
    for node in _rest(way, wanted, env):
        given = tuple([x if is_literal(x) else env[x] for x in node.inputs])
        if node.picks is None:
            env[node] = applied(node, given, dict(node.params), inside)
        if node.several:
            env |= {x: env[node][x.picks] for x in way.nodes if x.picks is not None and x.operands[0] is node}
    return [env[x] for x in wanted]


def _rest(way: Way, wanted: Sequence[Node], env: dict[Node, Any]) -> list[Node]:
    """The nodes of a way that are needed for those wanted, and are not known."""
    live, found = set(wanted), []
    for node in reversed(way.nodes):
        if node in live and node not in env:
            live.update(node.operands)
            found.append(node)
    return found[::-1]


def _is_quick(node: Node) -> bool:
    return not node.several and node.aval.size == 1 and isinstance(node.op, Elementwise)


def _may_raise(graph: Graph) -> bool:
    """Whether something in the graph may have no answer but an exception."""
    return any(map(may_raise, graph.nodes))


def may_raise(node: Node) -> bool:
    """Whether a node may have no answer but an exception."""
    parts = _parts_of(node)
    return any(map(_may_raise, parts)) if parts else node.op.form.raises  # type: ignore[union-attr]


def _parts_of(node: Node) -> tuple[Graph, ...]:
    """The graphs that a node runs: its regions, or what it is made of."""
    form = node.op.form  # type: ignore[union-attr]
    if not isinstance(form, Compose):
        return node.regions

    def parts(*args: Any) -> list[Any]:
        rest = iter(args)
        found = form.parts(*[x if is_literal(x) else next(rest) for x in node.inputs], **dict(node.params))
        return list(found) if isinstance(found, tuple) else [found]

    return (build(parts, [x.aval for x in node.inputs if not is_literal(x)]),)


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
