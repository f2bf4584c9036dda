"""The jumps of traced code that ask for a truth within a loop, as its instructions have them, and where the turns of
loops begin that count.

Where a truth is asked for, nothing but it is on the stack, and what the loops around it count with.
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
from tracegrad.trace.bytecode.instructions import decoded, truth_of
from tracegrad.trace.loops.range_counter import Counter, counter_of

__all__ = [
    "Place", "counters_of_question", "elements_read", "place_entered", "place_of_count", "place_of_question",
    "tells_apart", "within_loop",
]  # fmt: skip

_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# After these does not come the next instruction.
_ENDS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_NO_INTERRUPT", "RETURN", "RAISE", "RERAISE")


class _Jump(NamedTuple):
    """The answers that may lead back to a jump, and where each leads; where the turns begin of the counted loops around
    it; the local variables that nothing reads behind it before they are given other values; the instructions that are
    reached from it and lead back; and the local variables of which these do nothing but call `append` and read single
    elements, those of which they read any, and those of which they do nothing else but ask for the length."""

    back: frozenset[bool]
    ends: dict[bool, int]
    counted: tuple[int, ...]
    dead: frozenset[str]
    within: frozenset[int]
    appended: frozenset[str]
    read: frozenset[str]
    only_read: frozenset[str]


class _Jumps(NamedTuple):
    """Those of a code, by instruction: where a truth is asked for, and where turns begin."""

    asking: dict[int, _Jump]
    counting: dict[int, _Jump]


class Place:
    """A jump of the code of a frame, and what the loops around it count with."""

    def __init__(self, frame: Any, number: int, jump: _Jump, counters: list[Counter]):
        self.frame, self.number, self.counters, self._jump = frame, number, counters, jump

    @property
    def instruction(self) -> tuple[CodeType, int]:
        """The code and where in it the jump is."""
        return self.frame.f_code, self.number

    @property
    def dead(self) -> frozenset[str]:
        """The local variables whose values do not matter any more."""
        return self._jump.dead

    @property
    def within(self) -> frozenset[int]:
        """The instructions of the innermost loop around the jump."""
        return self._jump.within

    @property
    def appended(self) -> frozenset[str]:
        """The local variables of which that loop does nothing but call `append` and read single elements."""
        return self._jump.appended

    @property
    def read(self) -> frozenset[str]:
        """The local variables of which that loop reads elements."""
        return self._jump.read

    @property
    def only_read(self) -> frozenset[str]:
        """The local variables of which that loop does nothing but read single elements, and ask for the length."""
        return self._jump.only_read

    def target(self, answer: bool) -> int:
        """The instruction that the code goes on with, if the truth is this."""
        return self._jump.ends[answer]

    def leads_back(self, answer: bool) -> bool:
        """Whether the jump may be reached again, within the innermost loop around it, if the truth is this."""
        return answer in self._jump.back


def place_of_question() -> Place | None:
    """Where traced code asks for a truth now; None if that is not a jump within a loop, or more is on the stack."""
    frame = _user_frame()
    return None if frame is None else _place(frame, frame.f_lasti)


def counters_of_question() -> list[Counter]:
    """What the loops count with around a jump where traced code asks for a truth now, the innermost first."""
    frame = _user_frame()
    jump = None if frame is None else _jumps(frame.f_code).asking.get(frame.f_lasti)
    found = [] if jump is None else [counter_of(frame, at) for at in reversed(jump.counted)]
    return [x for x in found if x is not None]


def place_entered(frame: Any, number: int) -> Place | None:
    """The place of the question with this number, which traced code would have asked to come where it is now."""
    place = _place(frame, number) if _runs_to_its_end(frame) else None
    return place if place is not None and not (place.leads_back(True) and place.leads_back(False)) else None


def _place(frame: Any, number: int) -> Place | None:
    jump = _jumps(frame.f_code).asking.get(number)
    if jump is None:
        return None
    counters = [x for at in jump.counted if (x := counter_of(frame, at)) is not None and x.shows_all]
    return Place(frame, number, jump, counters) if len(counters) == len(jump.counted) else None


def place_of_count() -> Place | None:
    """Where traced code begins a turn now of a loop that counts; None if that is in code that is suspended."""
    frame = _user_frame()
    jump = None if frame is None else _jumps(frame.f_code).counting.get(frame.f_lasti)
    counter = None if jump is None else counter_of(frame, frame.f_lasti)
    return None if counter is None or jump is None else Place(frame, frame.f_lasti, jump, [counter])


def _user_frame() -> Any:
    """The frame of traced code that has called, if it is that of a function which runs to its end."""
    frame: Any = sys._getframe(2)
    while frame is not None and not isinstance(frame.f_globals, Namespace):
        frame = frame.f_back
    return frame if frame is not None and _runs_to_its_end(frame) else None


def _runs_to_its_end(frame: Any) -> bool:
    flags = frame.f_code.co_flags
    return not flags & _SUSPENDED and bool(flags & inspect.CO_OPTIMIZED)


def within_loop() -> bool:
    """Whether traced code asks at such a place.

    >>> within_loop()  # this is no traced code
    False
    """
    return bool(counters_of_question()) or place_of_question() is not None


@functools.lru_cache(maxsize=4096)
def _jumps(code: CodeType) -> _Jumps:
    """The instructions within loops that ask for the truth of a value on the stack, and those that begin turns."""
    steps = decoded(code)
    follows = {a.offset: b.offset for a, b in itertools.pairwise(steps)}
    behind = {a.offset: b for a, b in itertools.pairwise([x for x in steps if x.opname != "EXTENDED_ARG"])}
    depth, edges = _flow(steps, follows)
    loops = _loops([range(y, x + 1) for x, ys in edges.items() for y in ys if y <= x])
    turns = {x.offset: range(_first(steps, k), x.argval) for k, x in enumerate(steps) if x.opname == "FOR_ITER"}
    live = _live(code, steps, follows)

    def dead(offset: int) -> frozenset[str]:
        return frozenset(code.co_varnames).difference(live[offset], code.co_cellvars)

    # Where a comprehension has its list below what the loops count with, turns add to that.
    bare = [at for at in turns if depth.get(at) == sum(at in turn for turn in turns.values())]
    uses_of = _uses(code, steps)

    def jump(at: int, back: list[bool], ends: dict[bool, int], counted: tuple[int, ...], inside: range) -> _Jump:
        within = _circle(edges, at, inside)
        uses = {name: {use for at, use in used.items() if at in within} for name, used in uses_of.items()}
        appended = [name for name, found in uses.items() if "append" in found and found <= {"append", "element"}]
        read = [name for name, found in uses.items() if "element" in found]
        only = [name for name, found in uses.items() if "element" in found and found <= {"element", "length"}]
        return _Jump(
            frozenset(back), ends, counted, dead(at), within, frozenset(appended), frozenset(read), frozenset(only)
        )

    counting = {at: jump(at, [True], {True: follows[at], False: turns[at].stop}, (at,), turns[at]) for at in bare}
    found = {}
    for step in steps:
        jumps = step if step.opname.startswith("POP_JUMP") else behind.get(step.offset)
        taken = truth_of(step.opname, step.arg or 0)
        around = [loop for loop in loops if step.offset in loop]
        within = tuple([at for at in turns if step.offset in turns[at]])
        if not taken or jumps is None or not around or depth.get(step.offset) != taken + len(within):
            continue
        if not jumps.opname.startswith("POP_JUMP") or "NONE" in jumps.opname:
            continue  # the truth is for `not`, or a value
        if_jumps = "TRUE" in jumps.opname
        ends = {if_jumps: jumps.argval, not if_jumps: follows[jumps.offset]}
        inside = min(around, key=len)
        back = [answer for answer, start in ends.items() if step.offset in _reached(edges, start, inside)]
        if back:
            found[step.offset] = jump(step.offset, back, ends, within, inside)
    return _Jumps(found, counting)


def _first(steps: Sequence[Any], k: int) -> int:
    """Where an instruction begins that jumps lead back to: with what extends its argument."""
    while k and steps[k - 1].opname == "EXTENDED_ARG":
        k -= 1
    return int(steps[k].offset)


def _flow(steps: Sequence[Any], follows: dict[int, int]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """How many values lie on the stack at each instruction, and where it leads; but for handlers of exceptions."""
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
    """The instructions that may be next, each with how many values more lie on the stack there."""
    found = []
    if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
        found.append((step.argval, dis.stack_effect(step.opcode, step.arg, jump=True)))
    if not step.opname.startswith(_ENDS):
        found.append((follows[step.offset], dis.stack_effect(step.opcode, step.arg, jump=False)))
    return found


# What reads local variables in ways that no instruction shows.
_LOOKS = frozenset({"locals", "vars", "dir", "eval", "exec", "globals", "_getframe", "currentframe", "super"})


def _live(code: CodeType, steps: Sequence[Any], follows: dict[int, int]) -> dict[int, set[str]]:
    """The local variables that may be read from each instruction on, in handlers of exceptions too."""
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
    """The ranges with those as one that begin together, or overlap, neither within the other."""
    found: list[range] = []
    ends = {x.start: x.stop for x in sorted(circles, key=len)}
    for new in sorted([range(*each) for each in ends.items()], key=len):
        for old in [x for x in found if _overlap(x, new) or _overlap(new, x)]:
            found.remove(old)
            new = range(min(old.start, new.start), max(old.stop, new.stop))
        found.append(new)
    return found


def _overlap(x: range, y: range) -> bool:
    return x.start < y.start < x.stop < y.stop


def _uses(code: CodeType, steps: Sequence[Any]) -> dict[str, dict[int, str | None]]:
    """By local variable that no instruction hides, what is done with its value, by where that is: `append` of it is
    called, an element of it is read, or its length; None for all else. None of them, if objects are told apart."""
    if not _LOOKS.isdisjoint(code.co_names) or tells_apart(code):
        return {}
    found: dict[str, dict[int, str | None]] = {}
    for k, step in enumerate(steps):
        if "_FAST" in step.opname:
            for name in [step.argval] if isinstance(step.argval, str) else step.argval:
                use = _use(steps[k - 1 :]) if k and step.opname == "LOAD_FAST" else None
                found.setdefault(name, {})[step.offset] = use
    return {name: x for name, x in found.items() if set(x.values()) != {None} and name not in code.co_cellvars}


@functools.lru_cache(maxsize=4096)
def elements_read(code: CodeType) -> dict[int, str]:
    """The instructions within loops that read an element of a local variable, of which there is a loop around them that
    does nothing else with it; and the variable.

    >>> def f(x, xs, ys):
    ...     for k in range(3):
    ...         x = x + xs[k] + ys[k]
    ...         ys[k] = x
    >>> list(elements_read(f.__code__).values())
    ['xs']
    """
    steps, jumps = decoded(code), _jumps(code)
    loops = [x for x in (*jumps.asking.values(), *jumps.counting.values()) if x.only_read]
    found = {}
    for k, step in enumerate(steps):
        at = _element(steps[k + 1 :]) if step.opname == "LOAD_FAST" else None
        if at is not None and any(at in loop.within and step.argval in loop.only_read for loop in loops):
            found[at] = step.argval
    return found


@functools.lru_cache(maxsize=4096)
def tells_apart(code: CodeType) -> bool:
    """Whether it is asked if two values are one object, which an element and what stands for it are not.

    >>> tells_apart((lambda x, y: x is y).__code__), tells_apart((lambda x, y: x is None).__code__)
    (True, False)
    """
    pairs = itertools.pairwise(decoded(code))
    return any(y.opname == "IS_OP" and x.opname != "LOAD_CONST" for x, y in pairs) or "id" in code.co_names


# How many values the parts of an index take from the stack.
_TAKEN = {"LOAD_FAST": 0, "LOAD_CONST": 0, "LOAD_GLOBAL": 0, "LOAD_DEREF": 0, "UNARY_NEGATIVE": 1, "BINARY_OP": 2}


def _use(steps: Sequence[Any]) -> str | None:
    """What is done with the value that the second one of the instructions loads."""
    before, _, *steps = steps
    if before.opname == "LOAD_GLOBAL" and before.argval.removesuffix("()") == "len":
        called = [x for x in steps[:2] if x.opname != "PRECALL"]
        return "length" if called[0].opname == "CALL" and called[0].arg == 1 else None
    if steps[0].opname in ("LOAD_METHOD", "LOAD_ATTR"):
        return "append" if steps[0].argval == "append" else None
    return None if _element(steps) is None else "element"


def _element(steps: Sequence[Any]) -> int | None:
    """The instruction that reads an element of the value on the stack, if that is what is done with it."""
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
    """The instructions of a range that are reached from one of them, and from which this is."""
    reached = _reached(edges, at, inside)
    back: dict[int, list[int]] = {}
    for x in reached:
        for y in edges.get(x, ()):
            back.setdefault(y, []).append(x)
    return frozenset(_reached(back, at, inside))


def _reached(edges: dict[int, list[int]], start: int, inside: range) -> set[int]:
    """The instructions of a range that are reached from one without leaving it."""
    found, waiting = set[int](), [start]
    while waiting:
        at = waiting.pop()
        if at in inside and at not in found:
            found.add(at)
            waiting += edges.get(at, [])
    return found
