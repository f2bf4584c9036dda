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

from tracegrad.trace.builder.facts import LoopFact, LoopFactKind
from tracegrad.trace.bytecode.exception_regions import Namespace, handlers
from tracegrad.trace.bytecode.instructions import boolean_of, decoded
from tracegrad.trace.loops.range_counter import Counter, counter_of

__all__ = [
    "LoopJump",
    "compares_by_identity",
    "condition_jump",
    "count_jump",
    "counters_of_condition",
    "elements_read",
    "entered_jump",
    "within_loop",
]

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


class LoopJump:
    """A conditional jump in a frame, with the counters of the enclosing loops."""

    def __init__(self, frame: Any, number: int, jump: _Jump, counters: list[Counter]):
        self.frame, self.number, self.counters, self._jump = frame, number, counters, jump

    @property
    def instruction(self) -> tuple[CodeType, int]:
        """The code object and the offset of the jump."""
        return self.frame.f_code, self.number

    def fact(self, kind: LoopFactKind) -> LoopFact:
        """A fact about the loop of the jump."""
        return LoopFact(kind, self.frame.f_code, self.number)

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

    def target(self, condition: bool) -> int:
        """The instruction where the code continues, given the condition."""
        return self._jump.ends[condition]

    def leads_back(self, condition: bool) -> bool:
        """Whether the jump may be reached again within its innermost loop, given the condition."""
        return condition in self._jump.back


def condition_jump() -> LoopJump | None:
    """The jump for which traced code evaluates a condition now; None if it is not a jump in a loop, or the stack holds
    more."""
    frame = _user_frame()
    return None if frame is None else _loop_jump(frame, frame.f_lasti)


def counters_of_condition() -> list[Counter]:
    """The counters of the loops around the jump for which traced code evaluates a condition now, innermost first."""
    frame = _user_frame()
    jump = None if frame is None else _jumps(frame.f_code).asking.get(frame.f_lasti)
    result = [] if jump is None else [counter_of(frame, at) for at in reversed(jump.counted)]
    return [x for x in result if x is not None]


def entered_jump(frame: Any, number: int) -> LoopJump | None:
    """The conditional jump with this number, as if traced code had evaluated it to reach the present instruction."""
    loop_jump = _loop_jump(frame, number) if _runs_to_its_end(frame) else None
    return (
        loop_jump
        if loop_jump is not None and not (loop_jump.leads_back(True) and loop_jump.leads_back(False))
        else None
    )


def _loop_jump(frame: Any, number: int) -> LoopJump | None:
    jump = _jumps(frame.f_code).asking.get(number)
    if jump is None:
        return None
    counters = [x for at in jump.counted if (x := counter_of(frame, at)) is not None and x.shows_all]
    return LoopJump(frame, number, jump, counters) if len(counters) == len(jump.counted) else None


def count_jump() -> LoopJump | None:
    """The jump that begins the present iteration of a counted loop; None in suspended code (generators)."""
    frame = _user_frame()
    jump = None if frame is None else _jumps(frame.f_code).counting.get(frame.f_lasti)
    counter = None if jump is None else counter_of(frame, frame.f_lasti)
    return None if counter is None or jump is None else LoopJump(frame, frame.f_lasti, jump, [counter])


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
    return bool(counters_of_condition()) or condition_jump() is not None


@functools.lru_cache(maxsize=4096)
def _jumps(code: CodeType) -> _Jumps:
    """The conditional jumps in loops that test a stack value, and the instructions that begin iterations."""
    instructions = decoded(code)
    follows = {a.offset: b.offset for a, b in itertools.pairwise(instructions)}
    next_instruction = {
        a.offset: b for a, b in itertools.pairwise([x for x in instructions if x.opname != "EXTENDED_ARG"])
    }
    depth, edges = _flow(instructions, follows)
    loops = _loops([range(y, x + 1) for x, ys in edges.items() for y in ys if y <= x])
    iterations = {
        x.offset: range(_first(instructions, k), x.argval) for k, x in enumerate(instructions) if x.opname == "FOR_ITER"
    }
    live = _live(code, instructions, follows)

    def dead(offset: int) -> frozenset[str]:
        return frozenset(code.co_varnames).difference(live[offset], code.co_cellvars)

    # The loop of a comprehension is excluded, because iterations append to its list, which is on the stack too.
    bare = [at for at in iterations if depth.get(at) == sum(at in iteration for iteration in iterations.values())]
    uses_of = _uses(code, instructions)

    def jump(at: int, back: list[bool], ends: dict[bool, int], counted: tuple[int, ...], inside: range) -> _Jump:
        within = _cycle(edges, at, inside)
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
    for instruction in instructions:
        jumps = instruction if instruction.opname.startswith("POP_JUMP") else next_instruction.get(instruction.offset)
        tested = boolean_of(instruction.opname, instruction.arg or 0)
        around = [loop for loop in loops if instruction.offset in loop]
        within = tuple([at for at in iterations if instruction.offset in iterations[at]])
        if not tested or jumps is None or not around or depth.get(instruction.offset) != tested + len(within):
            continue
        if not jumps.opname.startswith("POP_JUMP") or "NONE" in jumps.opname:
            continue  # the boolean is for `not`, or a value
        if_jumps = "TRUE" in jumps.opname
        ends = {if_jumps: jumps.argval, not if_jumps: follows[jumps.offset]}
        inside = min(around, key=len)
        back = [condition for condition, start in ends.items() if instruction.offset in _reached(edges, start, inside)]
        if back:
            table[instruction.offset] = jump(instruction.offset, back, ends, within, inside)
    return _Jumps(table, counting)


def _first(instructions: Sequence[Any], k: int) -> int:
    """The start of an instruction that is a jump target, including its EXTENDED_ARG prefixes."""
    while k and instructions[k - 1].opname == "EXTENDED_ARG":
        k -= 1
    return int(instructions[k].offset)


def _flow(instructions: Sequence[Any], follows: dict[int, int]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """The stack depth at each instruction, and its successors, without exception handlers."""
    known = {instruction.offset: instruction for instruction in instructions}
    depth, edges, waiting = {0: 0}, dict[int, list[int]](), [0]
    while waiting:
        instruction = known[waiting.pop()]
        targets = _successors(instruction, follows)
        edges[instruction.offset] = [offset for offset, _ in targets]
        for offset, effect in targets:
            if offset not in depth:
                depth[offset] = depth[instruction.offset] + effect
                waiting.append(offset)
    return depth, edges


def _successors(instruction: Any, follows: dict[int, int]) -> list[tuple[int, int]]:
    """The possible successors of an instruction, each with the change of the stack depth."""
    results = []
    if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
        results.append((instruction.argval, dis.stack_effect(instruction.opcode, instruction.arg, jump=True)))
    if not instruction.opname.startswith(_ENDS):
        results.append((follows[instruction.offset], dis.stack_effect(instruction.opcode, instruction.arg, jump=False)))
    return results


# Names of functions that read local variables without an instruction that shows it.
_FRAME_READERS = frozenset({"locals", "vars", "dir", "eval", "exec", "globals", "_getframe", "currentframe", "super"})


def _live(code: CodeType, instructions: Sequence[Any], follows: dict[int, int]) -> dict[int, set[str]]:
    """The local variables that are live at each instruction, exception handlers included (liveness)."""
    if not _FRAME_READERS.isdisjoint(code.co_names):
        return {instruction.offset: set(code.co_varnames) for instruction in instructions}
    live: dict[int, set[str]] = {instruction.offset: set() for instruction in instructions}
    successors = {
        instruction.offset: [at for at, _ in _successors(instruction, follows)] for instruction in instructions
    }
    handled = handlers(code)
    changed = True
    while changed:
        changed = False
        for instruction in reversed(instructions):
            now = set().union(*[live[x] for x in successors[instruction.offset]])
            if "_FAST" in instruction.opname:
                names = {instruction.argval} if isinstance(instruction.argval, str) else set(instruction.argval)
                now = now - names if instruction.opname == "STORE_FAST" else now | names
            now = now.union(*[live[handler] for block, handler in handled if instruction.offset in block])
            if now != live[instruction.offset]:
                live[instruction.offset], changed = now, True
    return live


def _loops(cycles: list[range]) -> list[range]:
    """The loop ranges; ranges that begin together or overlap without nesting are merged."""
    results: list[range] = []
    ends = {x.start: x.stop for x in sorted(cycles, key=len)}
    for new in sorted([range(*each) for each in ends.items()], key=len):
        for old in [x for x in results if _overlap(x, new) or _overlap(new, x)]:
            results.remove(old)
            new = range(min(old.start, new.start), max(old.stop, new.stop))
        results.append(new)
    return results


def _overlap(x: range, y: range) -> bool:
    return x.start < y.start < x.stop < y.stop


def _uses(code: CodeType, instructions: Sequence[Any]) -> dict[str, dict[int, str | None]]:
    """The uses of each local variable's value by instruction: `append` is called, an element or the length is read;
    None for any other use. Empty if objects are compared by identity."""
    if not _FRAME_READERS.isdisjoint(code.co_names) or compares_by_identity(code):
        return {}
    table: dict[str, dict[int, str | None]] = {}
    for k, instruction in enumerate(instructions):
        if "_FAST" in instruction.opname:
            for name in [instruction.argval] if isinstance(instruction.argval, str) else instruction.argval:
                use = _use(instructions[k - 1 :]) if k and instruction.opname == "LOAD_FAST" else None
                table.setdefault(name, {})[instruction.offset] = use
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
    instructions, jumps = decoded(code), _jumps(code)
    loops = [x for x in (*jumps.asking.values(), *jumps.counting.values()) if x.only_read]
    table = {}
    for k, instruction in enumerate(instructions):
        at = _element(instructions[k + 1 :]) if instruction.opname == "LOAD_FAST" else None
        if at is not None and any(at in loop.within and instruction.argval in loop.only_read for loop in loops):
            table[at] = instruction.argval
    return table


@functools.lru_cache(maxsize=4096)
def compares_by_identity(code: CodeType) -> bool:
    """Whether the code may compare objects by identity, which distinguishes an element from its stand-in.

    >>> compares_by_identity((lambda x, y: x is y).__code__), compares_by_identity((lambda x, y: x is None).__code__)
    (True, False)
    """
    pairs = itertools.pairwise(decoded(code))
    return any(y.opname == "IS_OP" and x.opname != "LOAD_CONST" for x, y in pairs) or "id" in code.co_names


# The number of stack values that each instruction of an index expression pops.
_STACK_POPS = {"LOAD_FAST": 0, "LOAD_CONST": 0, "LOAD_GLOBAL": 0, "LOAD_DEREF": 0, "UNARY_NEGATIVE": 1, "BINARY_OP": 2}


def _use(instructions: Sequence[Any]) -> str | None:
    """The use of the value that the second of the instructions loads."""
    before, _, *instructions = instructions
    if before.opname == "LOAD_GLOBAL" and before.argval.removesuffix("()") == "len":
        called = [x for x in instructions[:2] if x.opname != "PRECALL"]
        return "length" if called[0].opname == "CALL" and called[0].arg == 1 else None
    if instructions[0].opname in ("LOAD_METHOD", "LOAD_ATTR"):
        return "append" if instructions[0].argval == "append" else None
    return None if _element(instructions) is None else "element"


def _element(instructions: Sequence[Any]) -> int | None:
    """The instruction that reads an element of the value on the stack, if that is its use."""
    above = 0
    for instruction in instructions:
        if above == 1 and (
            instruction.opname == "BINARY_SUBSCR" or (instruction.opname == "BINARY_OP" and instruction.argrepr == "[]")
        ):
            return int(instruction.offset)
        popped = _STACK_POPS.get(instruction.opname, above + 1)
        if popped > above or instruction.is_jump_target:
            return None
        above += 1 - popped
    return None


def _cycle(edges: dict[int, list[int]], at: int, inside: range) -> frozenset[int]:
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
