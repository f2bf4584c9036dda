"""Record an iteration (state RECORD): where paths begin, and what is known of loops and frames."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType, FrameType
from typing import NamedTuple

from tracegrad.cpython.frames import frame_at
from tracegrad.ir import GraphNode, GraphValue
from tracegrad.reroll.online.frame_state import FrameState
from tracegrad.reroll.online.loop_states import TRANSITIONS, LoopState
from tracegrad.reroll.online.path_loop import Begin, InductionVariable, LoopPath, PathLoop
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.loops.appended_list import restore_lists
from tracegrad.trace.loops.control_flow import LoopJump
from tracegrad.trace.loops.range_counter import Counter
from tracegrad.trace.loops.separate_views import restore_views
from tracegrad.utils.log import enabled, log

# Limits: states taken at a jump before a loop is closed there, and paths of a loop.
MAX_CLOSE_ATTEMPTS, MAX_LOOP_PATHS = 8, 6
# Limit: how often another path is added to a loop.
MAX_PATH_CHANGES = 2 * MAX_LOOP_PATHS


class PathStart:
    """A possible start of a path: the state and the condition there, and the recording position."""

    def __init__(
        self,
        builder: TraceBuilder,
        state: FrameState,
        condition: GraphNode,
        loop: ClosedLoop | None,
        counter: Counter | None,
    ):
        self.state, self.condition, self.loop, self.counts = state, condition, loop, counter is not None
        self.count = None if counter is None else _induction_variable(counter)
        self.nodes, self.guards, self.inner = len(builder.nodes), len(builder.guards), 0
        self.n_frozen, self.location = len(builder.loops.constant_nodes), builder.locate()
        self.bounds, self.appended = dict(builder.bounds), len(builder.loops.elements.appended)
        self.outcome = False
        self.enters = False  # whether this is a loop entry, without a condition
        # Whether a counted loop is at its first iteration.
        self.is_first_iteration = counter is not None and not counter.iterations


def _induction_variable(counter: Counter) -> InductionVariable:
    """The induction variable of a loop from here on."""
    numbers = None
    if counter.length is not None and not counter.looped:
        first = counter.start + counter.step * counter.iterations
        numbers = range(first, counter.start + counter.step * counter.length, counter.step)
    stop = counter.stop.node if isinstance(counter.stop, GraphValue) else counter.stop
    return InductionVariable(counter.at.node, counter.step, stop, numbers)


class _UnguardedCondition(NamedTuple):
    """A condition of a folded loop that no guard holds, and the recording positions of it and of the loop. `nodes` are
    the nodes it depends on if the loop begins anew; `sure`: it has the same result for all their values."""

    at: int
    condition: GraphNode
    loop_start: int
    nodes: list[GraphNode]
    sure: bool


class ClosedLoop:
    """A closed loop, and its start."""

    def __init__(self, start: PathStart, paths: list[LoopPath], begin: Begin):
        self.start, self.paths, self.begin, self.changes = start, paths, begin, 0

    @property
    def loop(self) -> PathLoop:
        return PathLoop(self.paths, self.begin)

    def with_path(self, path: LoopPath) -> ClosedLoop:
        """The loop with another path, which replaces an equal path through inner loops with fewer paths."""
        closed = ClosedLoop(self.start, [*(x for x in self.paths if x.signature != path.signature), path], self.begin)
        closed.changes = self.changes + 1
        return closed

    @property
    def has_room(self) -> bool:
        """Whether the loop has no more paths than it may have."""
        return len(self.paths) <= MAX_LOOP_PATHS and self.changes <= MAX_PATH_CHANGES

    @property
    def is_possible(self) -> bool:
        """Whether this loop can be built."""
        return self.has_room and self.loop.is_possible


class FrameRecord:
    """What is known of a frame; the reference to the frame makes its id unique."""

    def __init__(self, frame: FrameType):
        self.frame = frame
        self.starts: dict[int, PathStart] = {}
        self.attempts: dict[int, int] = {}
        self.exit_jumps: set[int] = set()  # jumps with a branch that does not lead back
        self.entered: dict[int, int] = {}  # jumps of entered loops, with the instruction of the entry
        self.differed: dict[int, int] = {}  # number of iterations with a different end state, by jump

    def around(self, number: int) -> list[int]:
        """The innermost entered loop that contains this jump."""
        return sorted(x for x, at in self.entered.items() if at < number <= x)[:1]


class LoopMachine:
    """The state of loop capture in one trace, and what is known of its frames and loops."""

    def __init__(self, builder: TraceBuilder):
        self.builder, self.state = builder, LoopState.RECORD
        self.frames: dict[int, FrameRecord] = {}
        self.has_traced_values = False  # whether tracers replace values that Python would know
        self.jump: LoopJump | None = None
        self.start: PathStart | None = None
        self.unguarded: list[_UnguardedCondition] = []
        # The closed loops, by the jump and by whether it is within a `try`.
        self.loops: dict[tuple[tuple[CodeType, int], bool], ClosedLoop] = {}

    def move(self, to: LoopState, why: str = "") -> None:
        """Enter another state; the log tells why."""
        usual = TRANSITIONS[self.state, to]
        if enabled("loops"):
            log("loops", "%s: %s -> %s: %s", self.builder.locate(), self.state.value, to.value, why or usual)
        self.state = to

    def restart(self, why: str) -> None:
        """Note that the trace restarts, for any reason."""
        if self.state is not LoopState.RESTART:
            self.move(LoopState.RESTART, why)

    def report(self, why: str, attempts: int = MAX_CLOSE_ATTEMPTS) -> None:
        """Record why the loop at the present jump stays unrolled, after the last attempt."""
        if attempts == MAX_CLOSE_ATTEMPTS and self.jump is not None:
            code, line = self.jump.frame.f_code, self.jump.frame.f_lineno
            self.builder.loops.unrolled.setdefault(f"{code.co_filename}:{line}", f"it asks for values, and {why}")

    def frame_of(self, jump: LoopJump) -> FrameRecord:
        """What is known of the frame of a jump; the records of finished frames are dropped."""
        alive, frame = set[int](), frame_at(1)
        while frame is not None:
            alive.add(id(frame))
            frame = frame.f_back  # type: ignore[assignment]
        self.frames = {key: x for key, x in self.frames.items() if key in alive}
        return self.frames.setdefault(id(jump.frame), FrameRecord(jump.frame))

    def forget_later(self, start: PathStart) -> None:
        """Drop starts later than the start of a closed loop."""
        for frame in self.frames.values():
            frame.starts = {k: x for k, x in frame.starts.items() if x.nodes < start.nodes}


def begin_path(machine: LoopMachine, outcome: bool) -> None:
    """Begin a path at the present jump, whose condition has this value, if the value leads back to the jump."""
    start, jump = machine.start, machine.jump
    if start is None or jump is None or not jump.leads_back(outcome):
        return
    start.outcome, start.inner = outcome, len(machine.builder.guards)
    start.state.forget()
    machine.builder.reset_numbering()
    frame = machine.frame_of(jump)
    frame.starts[jump.number] = start
    if not jump.leads_back(not outcome):
        frame.exit_jumps.add(jump.number)


def leave_or_stay(machine: LoopMachine, jump: LoopJump, outcome: bool) -> None:
    """Follow the branch that traced code takes at a jump: variables whose loop ends have lists and views again."""
    restore_lists(machine.builder, jump, outcome)
    if not jump.leads_back(outcome):
        machine.start = None  # it holds references to the values of the state
        restore_views(machine.builder, jump, outcome)


def read_condition(machine: LoopMachine, condition: GraphNode, counter: Counter) -> bool:
    """The value of the condition of a folded loop. A guard holds it unless it is the same for all known limits."""
    builder, guards = machine.builder, len(machine.builder.guards)
    outcome = builder.has_next_iteration(condition)
    if len(builder.guards) == guards:
        nodes: Sequence[GraphNode] = [condition] if counter.looped else counter.span[1]
        machine.unguarded.append(
            _UnguardedCondition(len(builder.nodes), condition, counter.first_node, list(nodes), counter.is_sure)
        )
    return outcome
