"""Build a `while_loop` from recorded control-flow paths, each with the conditions that select it.

All paths begin and end at one conditional jump in one frame state. A decision tree selects the path of an iteration:
first the loop condition, which is carried, then the conditions on the path. The loop ends if no known path matches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.avals import aval_of, is_literal
from tracegrad.control.cond_op import cond
from tracegrad.control.hoist_invariant_reads import run_loop
from tracegrad.control.region_ops import run_region
from tracegrad.control.scan_op import scan
from tracegrad.control.while_op import while_loop
from tracegrad.ir import Graph, GraphNode, GraphValue, build, recorder
from tracegrad.ir.builder import sliced
from tracegrad.ir.interpreter import applied
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.forms import Compose
from tracegrad.ops.elementwise.table import equal, greater, less, logical_and, logical_not, logical_or, where
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import full, reshape
from tracegrad.reroll.induction import reduce_induction
from tracegrad.reroll.merge_paths import merged
from tracegrad.reroll.reads_to_xs import scan_reads
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.typing import Array


class PathCondition(NamedTuple):
    """A condition on a path: its node, location and value."""

    node: GraphNode
    location: str
    outcome: Any


class InductionVariable(NamedTuple):
    """Induction variable of a loop: its state node, the step, the limit, and the range if it is known."""

    node: GraphNode
    step: int
    stop: Any
    numbers: range | None


@record(frozen=True, slots=True, eq=False)
class LoopPath:
    """Path of one iteration: the state before and after it, the conditions, the final loop condition, and all nodes.

    `frozen` are values that the trace has used as constants.
    """

    before: list[GraphNode]
    after: list[GraphNode]
    conditions: list[PathCondition]
    last: GraphNode
    nodes: list[GraphNode]
    frozen: list[GraphNode]

    @property
    def outcomes(self) -> tuple[Any, ...]:
        return tuple([q.outcome for q in self.conditions])

    @property
    def signature(self) -> list[tuple[str, Any]]:
        """The locations and values of the conditions, which identify the path."""
        return [(q.location, q.outcome) for q in self.conditions]

    def moves(self, k: int, first: GraphNode) -> bool:
        """Whether an iteration changes a state value, or reads it where it differs from `first`."""
        x = self.before[k]
        if x is first or self.after[k] is not x:
            return self.after[k] is not x
        conditions = [self.last, *(q.node for q in self.conditions)]
        others = [y for j, y in enumerate(self.after) if j != k]
        return x in conditions or x in others or any(x in node.operands for node in self.nodes)


class Begin(NamedTuple):
    """The initial state values, and the loop condition there."""

    state: list[GraphNode]
    condition: GraphNode


class PathLoop:
    """The loop of several paths, and its beginning."""

    def __init__(self, paths: Sequence[LoopPath], begin: Begin, needed: Collection[int] | None = None):
        self.paths, self.begin = list(paths), begin
        size = range(len(begin.state)) if needed is None else sorted(needed)
        self.moved = [k for k in size if any(path.moves(k, begin.state[k]) for path in paths)]
        self.fixed = {x for k, x in enumerate(begin.state) if k not in self.moved}
        self._iterations = [sliced(self._start(x), x.nodes, [*(x.after[k] for k in self.moved), x.last]) for x in paths]
        self._condition_graphs = [sliced(self._start(x), x.nodes, [q.node for q in x.conditions[1:]]) for x in paths]
        self.outside = list(dict.fromkeys(x for g in (*self._iterations, *self._condition_graphs) for x in _read(g)))

    def _start(self, path: LoopPath) -> list[GraphNode]:
        return [path.before[k] for k in self.moved]

    @property
    def _first(self) -> list[GraphNode]:
        return [self.begin.state[k] for k in self.moved]

    @property
    def is_possible(self) -> bool:
        """Whether the paths read only the state and inputs, and branch at conditions with different values."""
        if not all(x.op is None or x in self.fixed for x in self.outside) or not _is_decision_tree(self.paths, 0):
            return False
        for path in self.paths:
            moved = set(self._start(path))
            if any(x.depends_on(moved) for x in path.frozen):
                return False
            # User-defined derivative rules know the values of the recorded iteration only.
            if any(name == "rule" for x in path.nodes for name, _ in x.params):
                return False
        return True

    def raises(self, node: GraphNode) -> bool:
        """Whether an iteration computes a node that may raise."""
        return any(node in graph.nodes for graph in (*self._iterations, *self._condition_graphs))

    def changes(self, node: GraphNode) -> bool:
        """Whether a node of an iteration depends on a loop-carried value."""
        return any(node.depends_on(set(self._start(path))) for path in self.paths)

    @property
    def ends_at_condition(self) -> bool:
        """Whether the loop condition alone ends the loop."""
        return len({path.outcomes[0] for path in self.paths}) == 1 and _is_exhaustive(self.paths, 1)

    def emit(self, value: Any) -> tuple[dict[int, Any], Any]:
        """Emit the loop. Returns the final values of changed state, by number, and the condition after it; `value`
        gives the values of nodes."""
        count = len(self.moved)
        carries = [*map(value, self._first), _boolean(value(self.begin.condition))]
        if self._is_cheap:
            predicate, iteration = self._predicate, self._iteration
        else:
            predicate, iteration = self._try_predicate, self._try
            carries.append(_constant(True, "bool"))
        operands = [*carries, *map(value, self.outside)]
        result = _while(operands, predicate, iteration, len(carries))
        return dict(zip(self.moved, result)), result[count]

    def emit_counted(self, value: Any, count: InductionVariable) -> tuple[dict[int, Any], Any]:
        """Emit the loop as `emit`, for a counted loop."""
        at = self._first.index(count.node)
        result = (
            self._counted_up(value, count, at) if count.numbers is None else self._scanned(value, count.numbers, at)
        )
        return dict(zip(self.moved, result)), _constant(False, "bool")

    def _counted_up(self, value: Any, count: InductionVariable, at: int) -> Sequence[Any]:
        """The final state of a counted loop with a traced limit, by a `while_loop`."""
        first = self._first
        operands = [*map(value, first), *map(value, self.outside)]
        stop, stop_index = count.stop, -1
        if isinstance(stop, GraphNode):
            stop_index = first.index(stop) if stop in first else len(operands)
            operands += [value(stop)] if stop_index == len(operands) else []

        def predicate(*args: Any) -> list[Any]:
            return [(less if count.step > 0 else greater)(args[at], stop if stop_index < 0 else args[stop_index])]

        def iteration(*args: Any) -> list[Any]:
            return self._one(args[: len(first)], args[len(first) : len(first) + len(self.outside)])

        return _while(operands, predicate, iteration, len(first))

    def _scanned(self, value: Any, numbers: range, at: int) -> Sequence[Any]:
        """The final state of a counted loop with a known range, by a `scan`."""
        first = self._first
        inits = [value(x) for k, x in enumerate(first) if k != at]
        over = arange(start=numbers.start, step=numbers.step, length=len(numbers), dtype="int64")
        consts, n = [*map(value, self.outside)], len(inits)
        avals = [*(aval_of(x) for x in inits), first[at].aval, *(x.aval for x in self.outside)]

        def iteration(*args: Any) -> list[Any]:
            result = self._one([*args[:at], args[n], *args[at:n]], args[n + 1 :])
            return [x for k, x in enumerate(result) if k != at]

        loop = reduce_induction(build(iteration, avals), inits, numbers)
        n, consts = len(loop.carries), [*consts, *loop.begin]
        body, rows = scan_reads(loop.body, n, consts, numbers)
        operands = [*(inits[k] for k in loop.carries), over, *rows, *consts]
        result = loop.all(run_loop(operands, LoopView(scan, body, n, 1 + len(rows), len(numbers))))
        return [*result[:at], _constant(numbers.stop, "int64"), *result[at:]]

    def _one(self, state: Sequence[Any], outside: Sequence[Any]) -> list[Any]:
        """The changed state after an iteration that is known to run."""
        yes = _constant(True, "bool")
        result = self._iteration(*state, yes, *outside) if self._is_cheap else self._try(*state, yes, yes, *outside)
        return result[: len(self.moved)]

    @property
    def _is_cheap(self) -> bool:
        """Whether scalar arithmetic computes all conditions."""
        return all(map(_is_cheap, [x for g in self._condition_graphs for x in g.nodes]))

    def condition_after(self, value: Any) -> Any:
        """The condition after the loop, computed with the necessary state only; `value` gives arrays."""
        wanted = {x for path in self.paths for x in (path.last, *(q.node for q in path.conditions[1:]))}
        needed = set[int]()
        while True:
            for path in self.paths:
                read = {*wanted, *sliced([], path.nodes, list(wanted)).nodes}
                read |= {y for x in read for y in x.operands}
                needed |= {k for k in self.moved if path.before[k] in read}
            newly_wanted = {path.after[k] for path in self.paths for k in needed} - wanted
            if not newly_wanted:
                return PathLoop(self.paths, self.begin, needed).emit(value)[1]
            wanted |= newly_wanted

    # -- if all conditions are cheap: select the path, then run it -----------------------------------
    def _predicate(self, *args: Any) -> list[Any]:
        return [self._select_path(args)[0]]

    def _iteration(self, *args: Any) -> list[Any]:
        avals = [x.aval for x in args]
        iterations = [self._closed(g, avals) for g in self._iterations]
        result = (
            run_region(iterations[0], args)
            if len(iterations) == 1
            else merged(iterations, args, self._select_path(args)[1])
        )
        return [*result[:-1], _boolean(result[-1])]

    def _select_path(self, args: Sequence[Any]) -> tuple[Any, Any]:
        """Whether a path matches, and its number."""
        avals, condition = [x.aval for x in args], args[len(self.moved)]
        values = {
            path: [condition, *run_region(self._closed(g, avals), args)]
            for path, g in zip(self.paths, self._condition_graphs)
        }
        return self._chosen(self.paths, 0, values, self.paths)

    def _closed(self, graph: Graph, avals: Sequence[Any]) -> Graph:
        """The graph of a path as a function of the changed state, the loop condition, and loop-invariant values."""
        count = len(self.moved)
        inputs = Graph((*graph.inputs, *self.outside), graph.nodes, graph.outputs)
        return build(lambda *args: run_region(inputs, [*args[:count], *args[count + 1 :]]), avals)

    # -- else: run condition by condition, and return the state before the iteration if no path matches ---
    def _try_predicate(self, *args: Any) -> list[Any]:
        condition, known = args[len(self.moved) : len(self.moved) + 2]
        outcomes = {path.outcomes[0] for path in self.paths}
        return [known if len(outcomes) > 1 else logical_and(known, _agrees(condition, *outcomes))]

    def _try(self, *args: Any) -> list[Any]:
        count = len(self.moved)
        env = dict(zip(self.outside, args[count + 2 :]))
        for path in self.paths:
            env |= dict(zip(self._start(path), args)) | {path.conditions[0].node: args[count]}
        return self._from(self.paths, 0, env, args[: count + 1])

    def _from(
        self, paths: Sequence[LoopPath], level: int, env: dict[GraphNode, Any], before: Sequence[Any]
    ) -> list[Any]:
        """The state after the iteration, and whether a path matches: a decision tree from this level on, for paths with
        equal earlier conditions; `before` is the state before the iteration."""
        if len(paths[0].conditions) == level:
            result = _computed(paths[0], [*(paths[0].after[k] for k in self.moved), paths[0].last], env)
            return [*result[:-1], _boolean(result[-1]), _constant(True, "bool")]
        condition, agree, level = self._next_branch(paths, level, env)
        groups = _by_outcome(paths, level)
        if len(groups) > 1 and all(self._rest_is_cheap(path, level, env) for path in paths):
            return self._merged_rest(paths, level, env, before, agree)
        wanted = {x: env[x] for path in paths for x in self._needed(path, level + 1, env)}
        # The paths begin with the same values. A branch takes each value once, and computes common code once.
        options = {x.node: x for x in (*wanted.values(), *before)}
        operands, numbers = list(options.values()), {x: k for k, x in enumerate(options)}
        avals = [x.aval for x in operands]

        def along(group: Sequence[LoopPath]) -> Graph:
            def run(*args: Any) -> list[Any]:
                branch_env = {x: args[numbers[y.node]] for x, y in wanted.items()}
                return self._from(group, level + 1, branch_env, [args[numbers[x.node]] for x in before])

            return build(run, avals)

        def back(*args: Any) -> list[Any]:
            return [*(args[numbers[x.node]] for x in before), _constant(False, "bool")]

        branches = [along(x) for x in groups.values()]
        if agree or len(groups) < 2 or condition.dtype.kind != "b":
            branches.append(build(back, avals))
        number = _constant(len(branches) - 1, "int64")
        for k, outcome in enumerate(groups):
            number = where(_agrees(condition, outcome), _constant(k, "int64"), number)
        for each in agree:
            number = where(each, number, _constant(len(branches) - 1, "int64"))
        return list(cond(number, *operands, branches=tuple(branches)))

    def _next_branch(
        self, paths: Sequence[LoopPath], level: int, env: dict[GraphNode, Any]
    ) -> tuple[Any, list[Any], int]:
        """The first condition from this level on at which the paths branch, or after which one is expensive; whether
        the earlier conditions have their recorded values; and its level."""
        agree: list[Any] = []
        while True:
            condition, *_ = [_computed(path, [path.conditions[level].node], env)[0] for path in paths]
            groups = _by_outcome(paths, level)
            if len(groups) > 1 or not all(self._next_is_cheap(path, level + 1, env) for path in paths):
                return condition, agree, level
            agree.append(_agrees(condition, *groups))
            level += 1

    def _merged_rest(
        self,
        paths: Sequence[LoopPath],
        level: int,
        env: dict[GraphNode, Any],
        before: Sequence[Any],
        agree: Sequence[Any],
    ) -> list[Any]:
        """As `_from`, if all remaining conditions are cheap and the earlier ones `agree`: common code of the paths is
        computed once."""
        conditions = {path: [q.node for q in path.conditions[level:]] for path in paths}
        outcomes = {path: [None] * level + _computed(path, nodes, env) for path, nodes in conditions.items()}
        known, number = self._chosen(paths, level, outcomes, paths)
        wanted = {x: env[x] for path in paths for x in self._needed(path, len(path.conditions), env)}
        options = {x.node: x for x in (*wanted.values(), *before, number)}
        operands, numbers = list(options.values()), {x: k for k, x in enumerate(options)}
        avals = [x.aval for x in operands]

        def rest(path: LoopPath) -> Graph:
            def run(*args: Any) -> list[Any]:
                branch_env = {x: args[numbers[y.node]] for x, y in wanted.items()}
                return _computed(path, [*(path.after[k] for k in self.moved), path.last], branch_env)

            return build(run, avals)

        def along(*args: Any) -> list[Any]:
            result = merged([rest(path) for path in paths], args, args[numbers[number.node]])
            return [*result[:-1], _boolean(result[-1]), _constant(True, "bool")]

        def back(*args: Any) -> list[Any]:
            return [*(args[numbers[x.node]] for x in before), _constant(False, "bool")]

        if _is_exhaustive(paths, level) and not agree:
            return along(*operands)
        for each in agree:
            known = logical_and(known, each)
        index = where(known, _constant(0, "int64"), _constant(1, "int64"))
        return list(cond(index, *operands, branches=(build(along, avals), build(back, avals))))

    def _rest_is_cheap(self, path: LoopPath, level: int, env: dict[GraphNode, Any]) -> bool:
        """Whether scalar arithmetic computes all conditions from this level on."""
        rest = _rest(path, [q.node for q in path.conditions[level:]], env)
        return all(_is_cheap(x) or (x.op is full and not x.aval.shape) for x in rest)

    def _next_is_cheap(self, path: LoopPath, level: int, env: dict[GraphNode, Any]) -> bool:
        """Whether there is a condition at this level, and scalar arithmetic computes it."""
        has_next = level < len(path.conditions)
        return has_next and all(map(_is_cheap, _rest(path, [path.conditions[level].node], env)))

    def _needed(self, path: LoopPath, level: int, env: dict[GraphNode, Any]) -> list[GraphNode]:
        """The known values that the rest of a path depends on."""
        wanted = [*(q.node for q in path.conditions[level:]), *(path.after[k] for k in self.moved), path.last]
        return [x for x in (*wanted, *(x for n in _rest(path, wanted, env) for x in n.operands)) if x in env]

    # -- the decision tree ---------------------------------------------------------------------------
    def _chosen(
        self, paths: Sequence[LoopPath], level: int, values: dict[LoopPath, list[Any]], among: Sequence[LoopPath]
    ) -> tuple[Any, Any]:
        """Whether one of these paths matches from this level on, and its number among `among` (decision tree)."""
        if len(paths[0].conditions) == level:
            return _constant(True, "bool"), _constant(among.index(paths[0]), "int64")
        condition, known, number = values[paths[0]][level], None, None
        for outcome, group in _by_outcome(paths, level).items():
            agrees = _agrees(condition, outcome)
            further, path_number = self._chosen(group, level + 1, values, among)
            matches = logical_and(agrees, further)
            known = matches if known is None else logical_or(known, matches)
            number = path_number if number is None else where(agrees, path_number, number)
        if _is_exhaustive(paths, level):
            known = _constant(True, "bool")
        return known, number


def _while(operands: Sequence[Any], predicate: Any, iteration: Any, carries: int) -> list[Array]:
    """The final carries; carries that an iteration passes on unchanged become loop-invariant operands."""
    avals = [aval_of(x) for x in operands]
    body, test = build(iteration, avals), build(predicate, avals)
    moving = [k for k in range(carries) if body.outputs[k] is not body.inputs[k]]
    order = [*moving, *range(carries, len(operands)), *(k for k in range(carries) if k not in moving)]
    body = Graph(tuple([body.inputs[k] for k in order]), body.nodes, tuple([body.outputs[k] for k in moving]))
    test = Graph(tuple([test.inputs[k] for k in order]), test.nodes, test.outputs)
    result = run_loop([operands[k] for k in order], LoopView(while_loop, body, len(moving), cond=test))
    return [result[moving.index(k)] if k in moving else operands[k] for k in range(carries)]


def _computed(path: LoopPath, wanted: Sequence[GraphNode], env: dict[GraphNode, Any]) -> list[Any]:
    """The values of nodes of a path; `env` has the known values, and gets the computed ones."""
    inside = recorder()
    for node in _rest(path, wanted, env):
        args = tuple([x if is_literal(x) else env[x] for x in node.inputs])
        if node.result_index is None:
            env[node] = applied(node, args, dict(node.params), inside)
        if node.is_multi_result:
            env |= {
                x: env[node][x.result_index] for x in path.nodes if x.result_index is not None and x.operands[0] is node
            }
    return [env[x] for x in wanted]


def _rest(path: LoopPath, wanted: Sequence[GraphNode], env: dict[GraphNode, Any]) -> list[GraphNode]:
    """The unknown nodes of a path that the wanted nodes depend on."""
    live, result = set(wanted), []
    for node in reversed(path.nodes):
        if node in live and node not in env:
            live.update(node.operands)
            result.append(node)
    return result[::-1]


def _is_cheap(node: GraphNode) -> bool:
    return not node.is_multi_result and node.aval.size == 1 and isinstance(node.op, Elementwise)


def _may_raise(graph: Graph) -> bool:
    """Whether a node of the graph may raise."""
    return any(map(may_raise, graph.nodes))


def may_raise(node: GraphNode) -> bool:
    """Whether a node may raise."""
    graphs = _graphs_of(node)
    return any(map(_may_raise, graphs)) if graphs else node.op.form.raises  # type: ignore[union-attr]


def _graphs_of(node: GraphNode) -> tuple[Graph, ...]:
    """The graphs that a node runs: its regions, or its decomposition."""
    form = node.op.form  # type: ignore[union-attr]
    if not isinstance(form, Compose):
        return node.regions

    def decomposition(*args: GraphValue) -> list[GraphValue]:
        rest = iter(args)
        result = form.decomposition(*[x if is_literal(x) else next(rest) for x in node.inputs], **dict(node.params))
        return list(result) if isinstance(result, tuple) else [result]

    return (build(decomposition, [x.aval for x in node.inputs if not is_literal(x)]),)


def _by_outcome(paths: Sequence[LoopPath], level: int) -> dict[Any, list[LoopPath]]:
    table: dict[Any, list[LoopPath]] = {}
    for path in paths:
        table.setdefault(path.outcomes[level], []).append(path)
    return table


def _is_decision_tree(paths: Sequence[LoopPath], level: int) -> bool:
    """Whether paths with equal earlier conditions are one path, or branch at the same condition."""
    ends = [path for path in paths if len(path.conditions) == level]
    if ends:
        return len(paths) == 1
    groups = _by_outcome(paths, level)
    return len({x.conditions[level].location for x in paths}) == 1 and all(
        _is_decision_tree(x, level + 1) for x in groups.values()
    )


def _is_exhaustive(paths: Sequence[LoopPath], level: int) -> bool:
    """Whether the paths cover all condition values from this level on."""
    if len(paths[0].conditions) == level:
        return True
    groups = _by_outcome(paths, level)
    return {repr(x) for x in groups} == {"True", "False"} and all(_is_exhaustive(x, level + 1) for x in groups.values())


def _read(graph: Graph) -> list[GraphNode]:
    """The outside values that the graph reads."""
    inside = {*graph.inputs, *graph.nodes}
    return [x for x in (*(x for n in graph.nodes for x in n.operands), *graph.outputs) if x not in inside]


def _constant(x: int, dtype: str) -> Any:
    return full(shape=(), value=x, dtype=dtype)


def _boolean(x: Any) -> Any:
    """A condition as a scalar."""
    return reshape(x, shape=()) if x.shape else x


def _agrees(x: Any, outcome: Any) -> Any:
    """Whether a condition has this value."""
    x = _boolean(x)
    if x.dtype.kind != "b":
        return equal(x, outcome)
    return x if outcome else logical_not(x)
