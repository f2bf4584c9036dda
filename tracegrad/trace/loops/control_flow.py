"""Analyze the control-flow graph of traced bytecode: natural loops, conditional jumps, and liveness of locals.

At a conditional jump, the stack of the frame holds only the condition and the iterators of the enclosing loops.
"""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import sys
from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple

from tracegrad.trace.bytecode.exception_regions import Namespace, handlers
from tracegrad.trace.bytecode.instructions import boolean_of, decoded
from tracegrad.trace.loops.range_counter import Counter, counter_of

__all__ = [
    "Place", "counters_of_question", "elements_read", "place_entered", "place_of_count", "place_of_question",
    "tells_apart", "within_loop",
]  # fmt: skip

_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# Instructions that never continue at the next instruction.
_ENDS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_NO_INTERRUPT", "RETURN", "RAISE", "RERAISE")


class _Jump(NamedTuple):
    """Analysis of a conditional jump: the branch outcomes that may lead back to it, with their targets; the loop heads
    of the enclosing counted loops; the dead local variables; the instructions of the innermost loop; and the local
    variables that the loop only appends to and indexes, that it indexes at all, and that it only indexes and
    measures."""

    back: frozenset[bool]
    ends: dict[bool, int]
    counted: tuple[int, ...]
    dead: frozenset[str]
    within: frozenset[int]
    appended: frozenset[str]
    read: frozenset[str]
    only_read: frozenset[str]


class _Jumps(NamedTuple):
    """The analysis of a code object, by instruction: conditional jumps, and loop heads of counted loops."""

    asking: dict[int, _Jump]
    counting: dict[int, _Jump]


class Place:
    """A conditional jump in a frame, with the counters of the enclosing loops."""

    def __init__(self, frame: Any, number: int, jump: _Jump, counters: list[Counter]):
        self.frame, self.number, self.counters, self._jump = frame, number, counters, jump

    @property
    def instruction(self) -> tuple[CodeType, int]:
        """The code object and the offset of the jump."""
        return self.frame.f_code, self.number

    @property
    def dead(self) -> frozenset[str]:
        """The local variables that are dead after the jump (liveness)."""
        return self._jump.dead

    @property
    def within(self) -> frozenset[int]:
        """The instructions of the innermost loop around the jump."""
        return self._jump.within

    @property
    def appended(self) -> frozenset[str]:
        """The local variables that this loop only appends to and reads single elements of."""
        return self._jump.appended

    @property
    def read(self) -> frozenset[str]:
        """The local variables that this loop reads elements of."""
        return self._jump.read

    @property
    def only_read(self) -> frozenset[str]:
        """The local variables that this loop only reads single elements of, or measures by `len`."""
        return self._jump.only_read

    def target(self, answer: bool) -> int:
        """The instruction where the code continues, given the condition."""
        return self._jump.ends[answer]

    def leads_back(self, answer: bool) -> bool:
        """Whether the jump may be reached again within its innermost loop, given the condition."""
        return answer in self._jump.back


def place_of_question() -> Place | None:
    """The jump for which traced code evaluates a condition now; None if it is not a jump in a loop, or the stack holds
    more."""
    frame = _user_frame()
    return None if frame is None else _place(frame, frame.f_lasti)


def counters_of_question() -> list[Counter]:
    """The counters of the loops around the jump for which traced code evaluates a condition now, innermost first."""
    frame = _user_frame()
    jump = None if frame is None else _jumps(frame.f_code).asking.get(frame.f_lasti)
    result = [] if jump is None else [counter_of(frame, at) for at in reversed(jump.counted)]
    return [x for x in result if x is not None]


def place_entered(frame: Any, number: int) -> Place | None:
    """The conditional jump with this number, as if traced code had evaluated it to reach the present instruction."""
    place = _place(frame, number) if _runs_to_its_end(frame) else None
    return place if place is not None and not (place.leads_back(True) and place.leads_back(False)) else None


def _place(frame: Any, number: int) -> Place | None:
    jump = _jumps(frame.f_code).asking.get(number)
    if jump is None:
        return None
    counters = [x for at in jump.counted if (x := counter_of(frame, at)) is not None and x.shows_all]
    return Place(frame, number, jump, counters) if len(counters) == len(jump.counted) else None


def place_of_count() -> Place | None:
    """The jump that begins the present iteration of a counted loop; None in suspended code (generators)."""
    frame = _user_frame()
    jump = None if frame is None else _jumps(frame.f_code).counting.get(frame.f_lasti)
    counter = None if jump is None else counter_of(frame, frame.f_lasti)
    return None if counter is None or jump is None else Place(frame, frame.f_lasti, jump, [counter])


def _user_frame() -> Any:
    """The calling frame of traced code, if its function is not a generator or coroutine."""
    frame: Any = sys._getframe(2)
    while frame is not None and not isinstance(frame.f_globals, Namespace):
        frame = frame.f_back
    return frame if frame is not None and _runs_to_its_end(frame) else None


def _runs_to_its_end(frame: Any) -> bool:
    flags = frame.f_code.co_flags
    return not flags & _SUSPENDED and bool(flags & inspect.CO_OPTIMIZED)


def within_loop() -> bool:
    """Whether traced code evaluates a condition inside a loop.

    >>> within_loop()  # this is no traced code
    False
    """
    return bool(counters_of_question()) or place_of_question() is not None


@functools.lru_cache(maxsize=4096)
def _jumps(code: CodeType) -> _Jumps:
    """The conditional jumps in loops that test a stack value, and the instructions that begin iterations."""
    steps = decoded(code)
    follows = {a.offset: b.offset for a, b in itertools.pairwise(steps)}
    behind = {a.offset: b for a, b in itertools.pairwise([x for x in steps if x.opname != "EXTENDED_ARG"])}
    depth, edges = _flow(steps, follows)
    loops = _loops([range(y, x + 1) for x, ys in edges.items() for y in ys if y <= x])
    iterations = {x.offset: range(_first(steps, k), x.argval) for k, x in enumerate(steps) if x.opname == "FOR_ITER"}
    live = _live(code, steps, follows)

    def dead(offset: int) -> frozenset[str]:
        return frozenset(code.co_varnames).difference(live[offset], code.co_cellvars)

    # The loop of a comprehension is excluded, because iterations append to its list, which is on the stack too.
    bare = [at for at in iterations if depth.get(at) == sum(at in iteration for iteration in iterations.values())]
    uses_of = _uses(code, steps)

    def jump(at: int, back: list[bool], ends: dict[bool, int], counted: tuple[int, ...], inside: range) -> _Jump:
        within = _circle(edges, at, inside)
        uses = {name: {use for at, use in used.items() if at in within} for name, used in uses_of.items()}
        appended = [name for name, table in uses.items() if "append" in table and table <= {"append", "element"}]
        read = [name for name, table in uses.items() if "element" in table]
        only = [name for name, table in uses.items() if "element" in table and table <= {"element", "length"}]
        return _Jump(
            frozenset(back), ends, counted, dead(at), within, frozenset(appended), frozenset(read), frozenset(only)
        )

    counting = {
        at: jump(at, [True], {True: follows[at], False: iterations[at].stop}, (at,), iterations[at]) for at in bare
    }
    table = {}
    for step in steps:
        jumps = step if step.opname.startswith("POP_JUMP") else behind.get(step.offset)
        taken = boolean_of(step.opname, step.arg or 0)
        around = [loop for loop in loops if step.offset in loop]
        within = tuple([at for at in iterations if step.offset in iterations[at]])
        if not taken or jumps is None or not around or depth.get(step.offset) != taken + len(within):
            continue
        if not jumps.opname.startswith("POP_JUMP") or "NONE" in jumps.opname:
            continue  # the boolean is for `not`, or a value
        if_jumps = "TRUE" in jumps.opname
        ends = {if_jumps: jumps.argval, not if_jumps: follows[jumps.offset]}
        inside = min(around, key=len)
        back = [answer for answer, start in ends.items() if step.offset in _reached(edges, start, inside)]
        if back:
            table[step.offset] = jump(step.offset, back, ends, within, inside)
    return _Jumps(table, counting)


def _first(steps: Sequence[Any], k: int) -> int:
    """The start of an instruction that is a jump target, including its EXTENDED_ARG prefixes."""
    while k and steps[k - 1].opname == "EXTENDED_ARG":
        k -= 1
    return int(steps[k].offset)


def _flow(steps: Sequence[Any], follows: dict[int, int]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """The stack depth at each instruction, and its successors, without exception handlers."""
    known = {step.offset: step for step in steps}
    depth, edges, waiting = {0: 0}, dict[int, list[int]](), [0]
    while waiting:
        step = known[waiting.pop()]
        targets = _ways(step, follows)
        edges[step.offset] = [offset for offset, _ in targets]
        for offset, effect in targets:
            if offset not in depth:
                depth[offset] = depth[step.offset] + effect
                waiting.append(offset)
    return depth, edges


def _ways(step: Any, follows: dict[int, int]) -> list[tuple[int, int]]:
    """The possible successors of an instruction, each with the change of the stack depth."""
    results = []
    if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
        results.append((step.argval, dis.stack_effect(step.opcode, step.arg, jump=True)))
    if not step.opname.startswith(_ENDS):
        results.append((follows[step.offset], dis.stack_effect(step.opcode, step.arg, jump=False)))
    return results


# Names of functions that read local variables without an instruction that shows it.
_LOOKS = frozenset({"locals", "vars", "dir", "eval", "exec", "globals", "_getframe", "currentframe", "super"})


def _live(code: CodeType, steps: Sequence[Any], follows: dict[int, int]) -> dict[int, set[str]]:
    """The local variables that are live at each instruction, exception handlers included (liveness)."""
    if not _LOOKS.isdisjoint(code.co_names):
        return {step.offset: set(code.co_varnames) for step in steps}
    live: dict[int, set[str]] = {step.offset: set() for step in steps}
    ways = {step.offset: [at for at, _ in _ways(step, follows)] for step in steps}
    handled = handlers(code)
    changed = True
    while changed:
        changed = False
        for step in reversed(steps):
            now = set().union(*[live[x] for x in ways[step.offset]])
            if "_FAST" in step.opname:
                names = {step.argval} if isinstance(step.argval, str) else set(step.argval)
                now = now - names if step.opname == "STORE_FAST" else now | names
            now = now.union(*[live[handler] for block, handler in handled if step.offset in block])
            if now != live[step.offset]:
                live[step.offset], changed = now, True
    return live


def _loops(circles: list[range]) -> list[range]:
    """The loop ranges; ranges that begin together or overlap without nesting are merged."""
    results: list[range] = []
    ends = {x.start: x.stop for x in sorted(circles, key=len)}
    for new in sorted([range(*each) for each in ends.items()], key=len):
        for old in [x for x in results if _overlap(x, new) or _overlap(new, x)]:
            results.remove(old)
            new = range(min(old.start, new.start), max(old.stop, new.stop))
        results.append(new)
    return results


def _overlap(x: range, y: range) -> bool:
    return x.start < y.start < x.stop < y.stop


def _uses(code: CodeType, steps: Sequence[Any]) -> dict[str, dict[int, str | None]]:
    """The uses of each local variable's value by instruction: `append` is called, an element or the length is read;
    None for any other use. Empty if objects are compared by identity."""
    if not _LOOKS.isdisjoint(code.co_names) or tells_apart(code):
        return {}
    table: dict[str, dict[int, str | None]] = {}
    for k, step in enumerate(steps):
        if "_FAST" in step.opname:
            for name in [step.argval] if isinstance(step.argval, str) else step.argval:
                use = _use(steps[k - 1 :]) if k and step.opname == "LOAD_FAST" else None
                table.setdefault(name, {})[step.offset] = use
    return {name: x for name, x in table.items() if set(x.values()) != {None} and name not in code.co_cellvars}


@functools.lru_cache(maxsize=4096)
def elements_read(code: CodeType) -> dict[int, str]:
    """The instructions that read an element of a local variable in a loop with no other use of it, each with the
    variable.

    >>> def f(x, xs, ys):
    ...     for k in range(3):
    ...         x = x + xs[k] + ys[k]
    ...         ys[k] = x
    >>> list(elements_read(f.__code__).values())
    ['xs']
    """
    steps, jumps = decoded(code), _jumps(code)
    loops = [x for x in (*jumps.asking.values(), *jumps.counting.values()) if x.only_read]
    table = {}
    for k, step in enumerate(steps):
        at = _element(steps[k + 1 :]) if step.opname == "LOAD_FAST" else None
        if at is not None and any(at in loop.within and step.argval in loop.only_read for loop in loops):
            table[at] = step.argval
    return table


@functools.lru_cache(maxsize=4096)
def tells_apart(code: CodeType) -> bool:
    """Whether the code may compare objects by identity, which distinguishes an element from its stand-in.

    >>> tells_apart((lambda x, y: x is y).__code__), tells_apart((lambda x, y: x is None).__code__)
    (True, False)
    """
    pairs = itertools.pairwise(decoded(code))
    return any(y.opname == "IS_OP" and x.opname != "LOAD_CONST" for x, y in pairs) or "id" in code.co_names


# The number of stack values that each instruction of an index expression pops.
_TAKEN = {"LOAD_FAST": 0, "LOAD_CONST": 0, "LOAD_GLOBAL": 0, "LOAD_DEREF": 0, "UNARY_NEGATIVE": 1, "BINARY_OP": 2}


def _use(steps: Sequence[Any]) -> str | None:
    """The use of the value that the second of the instructions loads."""
    before, _, *steps = steps
    if before.opname == "LOAD_GLOBAL" and before.argval.removesuffix("()") == "len":
        called = [x for x in steps[:2] if x.opname != "PRECALL"]
        return "length" if called[0].opname == "CALL" and called[0].arg == 1 else None
    if steps[0].opname in ("LOAD_METHOD", "LOAD_ATTR"):
        return "append" if steps[0].argval == "append" else None
    return None if _element(steps) is None else "element"


def _element(steps: Sequence[Any]) -> int | None:
    """The instruction that reads an element of the value on the stack, if that is its use."""
    above = 0
    for step in steps:
        if above == 1 and (step.opname == "BINARY_SUBSCR" or (step.opname == "BINARY_OP" and step.argrepr == "[]")):
            return int(step.offset)
        taken = _TAKEN.get(step.opname, above + 1)
        if taken > above or step.is_jump_target:
            return None
        above += 1 - taken
    return None


def _circle(edges: dict[int, list[int]], at: int, inside: range) -> frozenset[int]:
    """The instructions of a range that are reachable from an instruction and reach it (a cycle)."""
    reached = _reached(edges, at, inside)
    back: dict[int, list[int]] = {}
    for x in reached:
        for y in edges.get(x, ()):
            back.setdefault(y, []).append(x)
    return frozenset(_reached(back, at, inside))


def _reached(edges: dict[int, list[int]], start: int, inside: range) -> set[int]:
    """The instructions of a range that are reachable from an instruction without leaving the range."""
    result, waiting = set[int](), [start]
    while waiting:
        at = waiting.pop()
        if at in inside and at not in result:
            result.add(at)
            waiting += edges.get(at, [])
    return result
