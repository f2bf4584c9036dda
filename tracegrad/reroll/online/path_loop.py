"""Build a `while_loop` from recorded control-flow paths, each with the conditions that select it.

All paths begin and end at one conditional jump in one frame state. A decision tree selects the path of an iteration:
first the loop condition, which is carried, then the conditions on the path. The loop ends if no known path matches.
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
    """A condition on a path: its node, location and value."""

    node: Node
    location: str
    answer: Any


class Count(NamedTuple):
    """Induction variable of a loop: its state node, the step, the limit, and the range if it is known."""

    node: Node
    step: int
    stop: Any
    numbers: range | None


@record(frozen=True, slots=True, eq=False)
class Way:
    """Path of one iteration: the state before and after it, the conditions, the final loop condition, and all nodes.

    `settled` are values that the trace has used as constants.
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
        """The locations and values of the conditions, which identify the path."""
        return [(q.location, q.answer) for q in self.questions]

    def moves(self, k: int, first: Node) -> bool:
        """Whether an iteration changes a state value, or reads it where it differs from `first`."""
        x = self.before[k]
        if x is first or self.after[k] is not x:
            return self.after[k] is not x
        asked = [self.last, *(q.node for q in self.questions)]
        others = [y for j, y in enumerate(self.after) if j != k]
        return x in asked or x in others or any(x in node.operands for node in self.nodes)


class Begin(NamedTuple):
    """The initial state values, and the loop condition there."""

    state: list[Node]
    question: Node


class Loop:
    """The loop of several paths, and its beginning."""

    def __init__(self, ways: Sequence[Way], begin: Begin, needed: Collection[int] | None = None):
        self.ways, self.begin = list(ways), begin
        size = range(len(begin.state)) if needed is None else sorted(needed)
        self.moved = [k for k in size if any(way.moves(k, begin.state[k]) for way in ways)]
        self.fixed = {x for k, x in enumerate(begin.state) if k not in self.moved}
        self._iterations = [sliced(self._start(x), x.nodes, [*(x.after[k] for k in self.moved), x.last]) for x in ways]
        self._asking = [sliced(self._start(x), x.nodes, [q.node for q in x.questions[1:]]) for x in ways]
        self.outside = list(dict.fromkeys(x for g in (*self._iterations, *self._asking) for x in _read(g)))

    def _start(self, way: Way) -> list[Node]:
        return [way.before[k] for k in self.moved]

    @property
    def _first(self) -> list[Node]:
        return [self.begin.state[k] for k in self.moved]

    @property
    def is_possible(self) -> bool:
        """Whether the paths read only the state and inputs, and branch at conditions with different values."""
        if not all(x.op is None or x in self.fixed for x in self.outside) or not _parts(self.ways, 0):
            return False
        for way in self.ways:
            moved = set(self._start(way))
            if any(x.depends_on(moved) for x in way.settled):
                return False
            # User-defined derivative rules know the values of the recorded iteration only.
            if any(name == "rule" for x in way.nodes for name, _ in x.params):
                return False
        return True

    def raises(self, node: Node) -> bool:
        """Whether an iteration computes a node that may raise."""
        return any(node in graph.nodes for graph in (*self._iterations, *self._asking))

    def changes(self, node: Node) -> bool:
        """Whether a node of an iteration depends on a loop-carried value."""
        return any(node.depends_on(set(self._start(way))) for way in self.ways)

    @property
    def ends_at_question(self) -> bool:
        """Whether the loop condition alone ends the loop."""
        return len({way.answers[0] for way in self.ways}) == 1 and _knows_all(self.ways, 1)

    def emit(self, value: Any) -> tuple[dict[int, Any], Any]:
        """Emit the loop. Returns the final values of changed state, by number, and the condition after it; `value`
        gives the values of nodes."""
        count = len(self.moved)
        carries = [*map(value, self._first), _boolean(value(self.begin.question))]
        if self._is_quick:
            goes_on, iteration = self._goes_on, self._iteration
        else:
            goes_on, iteration = self._went_on, self._try
            carries.append(_constant(True, "bool"))
        operands = [*carries, *map(value, self.outside)]
        result = _while(operands, goes_on, iteration, len(carries))
        return dict(zip(self.moved, result)), result[count]

    def emit_counted(self, value: Any, count: Count) -> tuple[dict[int, Any], Any]:
        """Emit the loop as `emit`, for a counted loop."""
        at = self._first.index(count.node)
        result = (
            self._counted_up(value, count, at) if count.numbers is None else self._scanned(value, count.numbers, at)
        )
        return dict(zip(self.moved, result)), _constant(False, "bool")

    def _counted_up(self, value: Any, count: Count, at: int) -> Sequence[Any]:
        """The final state of a counted loop with a traced limit, by a `while_loop`."""
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
        """The final state of a counted loop with a known range, by a `scan`."""
        first = self._first
        inits = [value(x) for k, x in enumerate(first) if k != at]
        over = arange(start=numbers.start, step=numbers.step, length=len(numbers), dtype="int64")
        consts, n = [*map(value, self.outside)], len(inits)
        avals = [*(aval_of(x) for x in inits), first[at].aval, *(x.aval for x in self.outside)]

        def turn(*args: Any) -> list[Any]:
            result = self._one([*args[:at], args[n], *args[at:n]], args[n + 1 :])
            return [x for k, x in enumerate(result) if k != at]

        loop = counted(build(turn, avals), inits, numbers)
        n, consts = len(loop.kept), [*consts, *loop.begin]
        body, rows = rows_taken(loop.body, n, consts, numbers)
        operands = [*(inits[k] for k in loop.kept), over, *rows, *consts]
        operands, body, _ = read_before(operands, body, n, 1 + len(rows))
        result = loop.all(scan(*operands, body=body, carries=n, xs=1 + len(rows), length=len(numbers), reverse=False))
        return [*result[:at], _constant(numbers.stop, "int64"), *result[at:]]

    def _one(self, state: Sequence[Any], outside: Sequence[Any]) -> list[Any]:
        """The changed state after an iteration that is known to run."""
        yes = _constant(True, "bool")
        result = self._iteration(*state, yes, *outside) if self._is_quick else self._try(*state, yes, yes, *outside)
        return result[: len(self.moved)]

    @property
    def _is_quick(self) -> bool:
        """Whether scalar arithmetic computes all conditions."""
        return all(map(_is_quick, [x for g in self._asking for x in g.nodes]))

    def behind(self, value: Any) -> Any:
        """The condition after the loop, computed with the necessary state only; `value` gives arrays."""
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

    # -- if all conditions are cheap: select the path, then run it -----------------------------------
    def _goes_on(self, *args: Any) -> list[Any]:
        return [self._way(args)[0]]

    def _iteration(self, *args: Any) -> list[Any]:
        avals = [x.aval for x in args]
        iterations = [self._closed(g, avals) for g in self._iterations]
        result = (
            run_region(iterations[0], args) if len(iterations) == 1 else merged(iterations, args, self._way(args)[1])
        )
        return [*result[:-1], _boolean(result[-1])]

    def _way(self, args: Sequence[Any]) -> tuple[Any, Any]:
        """Whether a path matches, and its number."""
        avals, question = [x.aval for x in args], args[len(self.moved)]
        values = {way: [question, *run_region(self._closed(g, avals), args)] for way, g in zip(self.ways, self._asking)}
        return self._chosen(self.ways, 0, values, self.ways)

    def _closed(self, graph: Graph, avals: Sequence[Any]) -> Graph:
        """The graph of a path as a function of the changed state, the loop condition, and loop-invariant values."""
        count = len(self.moved)
        inputs = Graph((*graph.inputs, *self.outside), graph.nodes, graph.outputs)
        return build(lambda *args: run_region(inputs, [*args[:count], *args[count + 1 :]]), avals)

    # -- else: run condition by condition, and return the state before the iteration if no path matches ---
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
        """The state after the iteration, and whether a path matches: a decision tree from this level on, for paths with
        equal earlier conditions; `before` is the state before the iteration."""
        if len(ways[0].questions) == level:
            result = _computed(ways[0], [*(ways[0].after[k] for k in self.moved), ways[0].last], env)
            return [*result[:-1], _boolean(result[-1]), _constant(True, "bool")]
        asked, agree, level = self._asked(ways, level, env)
        groups = _by_answer(ways, level)
        if len(groups) > 1 and all(self._knows_what_is_asked(way, level, env) for way in ways):
            return self._from_here(ways, level, env, before, agree)
        wanted = {x: env[x] for way in ways for x in self._needed(way, level + 1, env)}
        # The paths begin with the same values. A branch takes each value once, and computes common code once.
        options = {x.node: x for x in (*wanted.values(), *before)}
        operands, numbers = list(options.values()), {x: k for k, x in enumerate(options)}
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
        """The first condition from this level on at which the paths branch, or after which one is expensive; whether
        the earlier conditions have their recorded values; and its level."""
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
        """As `_from`, if all remaining conditions are cheap and the earlier ones `agree`: common code of the paths is
        computed once."""
        asked = {way: [q.node for q in way.questions[level:]] for way in ways}
        answers = {way: [None] * level + _computed(way, nodes, env) for way, nodes in asked.items()}
        known, number = self._chosen(ways, level, answers, ways)
        wanted = {x: env[x] for way in ways for x in self._needed(way, len(way.questions), env)}
        options = {x.node: x for x in (*wanted.values(), *before, number)}
        operands, numbers = list(options.values()), {x: k for k, x in enumerate(options)}
        avals = [x.aval for x in operands]

        def rest(way: Way) -> Graph:
            def run(*args: Any) -> list[Any]:
                env_there = {x: args[numbers[y.node]] for x, y in wanted.items()}
                return _computed(way, [*(way.after[k] for k in self.moved), way.last], env_there)

            return build(run, avals)

        def along(*args: Any) -> list[Any]:
            result = merged([rest(way) for way in ways], args, args[numbers[number.node]])
            return [*result[:-1], _boolean(result[-1]), _constant(True, "bool")]

        def back(*args: Any) -> list[Any]:
            return [*(args[numbers[x.node]] for x in before), _constant(False, "bool")]

        if _knows_all(ways, level) and not agree:
            return along(*operands)
        for each in agree:
            known = logical_and(known, each)
        which = where(known, _constant(0, "int64"), _constant(1, "int64"))
        return list(cond(which, *operands, branches=(build(along, avals), build(back, avals))))

    def _knows_what_is_asked(self, way: Way, level: int, env: dict[Node, Any]) -> bool:
        """Whether scalar arithmetic computes all conditions from this level on."""
        rest = _rest(way, [q.node for q in way.questions[level:]], env)
        return all(_is_quick(x) or (x.op is full and not x.aval.shape) for x in rest)

    def _asks_quickly(self, way: Way, level: int, env: dict[Node, Any]) -> bool:
        """Whether there is a condition at this level, and scalar arithmetic computes it."""
        more = level < len(way.questions)
        return more and all(map(_is_quick, _rest(way, [way.questions[level].node], env)))

    def _needed(self, way: Way, level: int, env: dict[Node, Any]) -> list[Node]:
        """The known values that the rest of a path depends on."""
        wanted = [*(q.node for q in way.questions[level:]), *(way.after[k] for k in self.moved), way.last]
        return [x for x in (*wanted, *(x for n in _rest(way, wanted, env) for x in n.operands)) if x in env]

    # -- the decision tree ---------------------------------------------------------------------------
    def _chosen(
        self, ways: Sequence[Way], level: int, values: dict[Way, list[Any]], among: Sequence[Way]
    ) -> tuple[Any, Any]:
        """Whether one of these paths matches from this level on, and its number among `among` (decision tree)."""
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


def _while(operands: Sequence[Any], goes_on: Any, iteration: Any, carries: int) -> Sequence[Any]:
    """The final carries; carries that an iteration passes on unchanged become loop-invariant operands."""
    avals = [aval_of(x) for x in operands]
    body, test = build(iteration, avals), build(goes_on, avals)
    moving = [k for k in range(carries) if body.outputs[k] is not body.inputs[k]]
    order = [*moving, *range(carries, len(operands)), *(k for k in range(carries) if k not in moving)]
    body = Graph(tuple([body.inputs[k] for k in order]), body.nodes, tuple([body.outputs[k] for k in moving]))
    test = Graph(tuple([test.inputs[k] for k in order]), test.nodes, test.outputs)
    args, body, asked = read_before([operands[k] for k in order], body, len(moving), cond=test)
    result = while_loop(*args, cond=asked, body=body, carries=len(moving), capacity=0)
    return [result[moving.index(k)] if k in moving else operands[k] for k in range(carries)]


def _computed(way: Way, wanted: Sequence[Node], env: dict[Node, Any]) -> list[Any]:
    """The values of nodes of a path; `env` has the known values, and gets the computed ones."""
    inside = recorder()
    for node in _rest(way, wanted, env):
        args = tuple([x if is_literal(x) else env[x] for x in node.inputs])
        if node.picks is None:
            env[node] = applied(node, args, dict(node.params), inside)
        if node.several:
            env |= {x: env[node][x.picks] for x in way.nodes if x.picks is not None and x.operands[0] is node}
    return [env[x] for x in wanted]


def _rest(way: Way, wanted: Sequence[Node], env: dict[Node, Any]) -> list[Node]:
    """The unknown nodes of a path that the wanted nodes depend on."""
    live, result = set(wanted), []
    for node in reversed(way.nodes):
        if node in live and node not in env:
            live.update(node.operands)
            result.append(node)
    return result[::-1]


def _is_quick(node: Node) -> bool:
    return not node.several and node.aval.size == 1 and isinstance(node.op, Elementwise)


def _may_raise(graph: Graph) -> bool:
    """Whether a node of the graph may raise."""
    return any(map(may_raise, graph.nodes))


def may_raise(node: Node) -> bool:
    """Whether a node may raise."""
    parts = _parts_of(node)
    return any(map(_may_raise, parts)) if parts else node.op.form.raises  # type: ignore[union-attr]


def _parts_of(node: Node) -> tuple[Graph, ...]:
    """The graphs that a node runs: its regions, or its decomposition."""
    form = node.op.form  # type: ignore[union-attr]
    if not isinstance(form, Compose):
        return node.regions

    def parts(*args: Any) -> list[Any]:
        rest = iter(args)
        result = form.parts(*[x if is_literal(x) else next(rest) for x in node.inputs], **dict(node.params))
        return list(result) if isinstance(result, tuple) else [result]

    return (build(parts, [x.aval for x in node.inputs if not is_literal(x)]),)


def _by_answer(ways: Sequence[Way], level: int) -> dict[Any, list[Way]]:
    table: dict[Any, list[Way]] = {}
    for way in ways:
        table.setdefault(way.answers[level], []).append(way)
    return table


def _parts(ways: Sequence[Way], level: int) -> bool:
    """Whether paths with equal earlier conditions are one path, or branch at the same condition."""
    ends = [way for way in ways if len(way.questions) == level]
    if ends:
        return len(ways) == 1
    groups = _by_answer(ways, level)
    return len({x.questions[level].location for x in ways}) == 1 and all(_parts(x, level + 1) for x in groups.values())


def _knows_all(ways: Sequence[Way], level: int) -> bool:
    """Whether the paths cover all condition values from this level on."""
    if len(ways[0].questions) == level:
        return True
    groups = _by_answer(ways, level)
    return {repr(x) for x in groups} == {"True", "False"} and all(_knows_all(x, level + 1) for x in groups.values())


def _read(graph: Graph) -> list[Node]:
    """The outside values that the graph reads."""
    inside = {*graph.inputs, *graph.nodes}
    return [x for x in (*(x for n in graph.nodes for x in n.operands), *graph.outputs) if x not in inside]


def _constant(x: Any, dtype: str) -> Any:
    return full(shape=(), value=x, dtype=dtype)


def _boolean(x: Any) -> Any:
    """A condition as a scalar."""
    return reshape(x, shape=()) if x.shape else x


def _agrees(x: Any, answer: Any) -> Any:
    """Whether a condition has this value."""
    x = _boolean(x)
    if x.dtype.kind != "b":
        return equal(x, answer)
    return x if answer else logical_not(x)
