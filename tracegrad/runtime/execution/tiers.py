"""Tiers: who answers the calls of a program that has no machine code yet.

A compiler takes tens or hundreds of milliseconds, for which a function that is called once has no use. Where NumPy is
quicker (`tracegrad.runtime.execution.cost_model`), it answers the first call, op by op, and the second compiles; or it
answers all calls until another thread has compiled. What it computes is the meaning of the graph, so nothing but
rounding can tell who has answered.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.errors import CapacityError, PerformanceWarning, located
from tracegrad.ir import Graph, turns
from tracegrad.ir.interpreter import WATCHED
from tracegrad.runtime.compile.code_store import machine_code, missing, unknown
from tracegrad.runtime.execution.cost_model import (
    COMPILE,
    FIRST_TOUCH,
    SHARED,
    Effort,
    TooLong,
    alive_bytes,
    to_compile,
    to_replay,
)
from tracegrad.runtime.execution.entry_callable import MISS, kept_memory
from tracegrad.runtime.execution.numpy_executor import own_outputs
from tracegrad.runtime.memory.allocator import release_idle
from tracegrad.settings import waits_for_compiler

if TYPE_CHECKING:
    from tracegrad.runtime.execution.image import Image

__all__ = ["Answer", "Missing", "Tier", "missing_of", "tier_of"]

# A replay is worth it where it takes less than this part of what it takes to compile: so much more is what a function
# costs at most that is called again.
PART = 0.75
# A replay of so many bytes keeps the memory of what it needs no more.
LARGE = 2**24
# What a node of a graph costs a process that replays it once, beside the replay, more than a program that is there.
READ = 30_000
# What the other thread compiles between two breaks: pieces, and the seconds of a break.
TOGETHER, BREAK = 16, 1e-4


class Answer(NamedTuple):
    """The outputs as a program returns them, or `MISS` where it would fail."""

    result: Any


_NOTHING: Mapping[str, float] = {}


class Missing(NamedTuple):
    """What it costs to compile the pieces of a program that are not known, each by its key, and what else it would cost
    to do without a replay."""

    pieces: Mapping[str, float]
    beside: float = 0.0

    @property
    def price(self) -> float:
        return sum(self.pieces.values()) + self.beside if self.pieces else 0.0


def missing_of(image: Image) -> Missing:
    """What is missing of a program, with the functions that it shares with others, and the memory that it takes."""
    pieces = {key: to_compile(piece.text, regions=not piece.kernel) for key, piece in missing(image.uses).items()}
    memory = image.arena_bytes + sum([x.size * x.dtype.itemsize for x in image.outputs])
    return Missing(pieces, SHARED * len(unknown(image.functions)) + FIRST_TOUCH * memory)


# The keys of pieces that were missing where a program was replayed, and how many are kept.
_met: set[str] = set()
MOST_MET = 100_000


def tier_of(first_call: str, graph: Graph, missing: Callable[[], Missing], spent: float = 0.0) -> Tier | None:
    """How the calls of a program are answered that has to compile what is `missing`; None if it is to do so now.

    If all of the pieces were missed before, this is a second call, of the same code for another shape, or in another
    function: who calls with a new shape each time would never have them otherwise. And if other processes have `spent`
    as much on first calls as it costs to compile, this one is to be the last that does.
    """
    if first_call == "compile" or waits_for_compiler():
        return None
    found = missing()
    price = found.price
    if first_call == "background" and _compiler.busy:
        price = max(price, COMPILE)  # what is on disk can only be loaded when the other thread is done
    most = PART * price
    if not most or (cost := to_replay(graph)) > most:
        return None
    spent += cost + READ * len(graph.nodes)
    if first_call == "background":
        return Behind(most, found.pieces, spent)
    if _met.issuperset(found.pieces) or spent > price:
        return None
    if len(_met) > MOST_MET:
        _met.clear()
    _met.update(found.pieces)
    return (Turns if first_call == "turns" else Tier)(most, found.pieces, spent)


class Tier:
    """The first call is answered by a replay, the second compiles."""

    # Whether a call has been answered, and the next one that finds the program compiles it; whether memory is kept.
    begun = kept = False

    def __init__(self, most: float, missing: Mapping[str, float] = _NOTHING, spent: float = 0.0):
        self.most, self.missing, self.spent = most, missing, spent

    def answers(self, program: Any, leaves: Sequence[Any]) -> Answer | None:
        """The answer to a call; None once the program is compiled."""
        if self.begun or waits_for_compiler():
            if self.kept:
                release_idle()  # it would lie beside what the compiler needs
            program.compile()
            return None
        self.begun = True
        return self.replayed(program, leaves)

    def replayed(self, program: Any, leaves: Sequence[Any]) -> Answer | None:
        """The answer by a replay; None where that has turned out to take too long, and the program is compiled."""
        before, watch = WATCHED.by, Effort(self.most).spend
        try:
            WATCHED.by = watch
            self.kept = alive_bytes(program.graph) >= LARGE
            with kept_memory() if self.kept else nullcontext():
                outputs = own_outputs(program.graph, leaves)
        except TooLong:
            program.compile()
            return None
        except CapacityError:
            raise
        except Exception:  # who runs the function as it is meets it again
            return Answer(MISS)
        finally:
            WATCHED.by = before
        if program.checked and not outputs.pop():
            return Answer(MISS)
        return Answer(outputs[0] if program.single else tuple(outputs))


class Turns(Tier):
    """Calls are answered by replays until these have taken as long as it does to compile, in all."""

    turn: Callable[[Sequence[Any]], list[Any]] | None = None

    def answers(self, program: Any, leaves: Sequence[Any]) -> Answer | None:
        if waits_for_compiler():
            program.compile()
            return None
        if self.turn is None:
            self.turn, self.effort = turns(program.graph), Effort(self.most)
        before = WATCHED.by
        try:
            WATCHED.by = self.effort.spend
            (found,) = self.turn([np.asarray(x) for x in leaves])
        except TooLong:
            program.compile()
            return None
        finally:
            WATCHED.by = before
        return Answer(np.array(found) if found.ndim else found[()])


class Behind(Tier):
    """All calls are answered by replays until another thread has compiled."""

    def __init__(self, most: float, missing: Mapping[str, float] = _NOTHING, spent: float = 0.0):
        super().__init__(most, missing, spent)
        self.error: BaseException | None = None

    def begin(self, program: Any) -> None:
        """Let the other thread compile it, if it has not been told."""
        if not self.begun:
            self.begun = True
            _compiler.add(program)

    def answers(self, program: Any, leaves: Sequence[Any]) -> Answer | None:
        if waits_for_compiler():
            program.compile()
            return None
        self.begin(program)
        error, self.error = self.error, None
        if error is not None:
            text = f"{program.name or 'a program'} is not compiled, and runs op by op: {type(error).__name__}: {error}"
            warnings.warn(located(text), PerformanceWarning, stacklevel=2)
        return self.replayed(program, leaves)


def _compile(reference: weakref.ref[Any]) -> None:
    """Compile a program, some pieces at a time: in between, others may load theirs, and it may turn out that nobody
    waits for the rest."""
    program = reference()
    if program is None or program.tier is None:
        return
    image = program.image
    del program
    pieces, kept = [*image.uses], []
    image.define_symbols()
    for i in range(0, len(pieces), TOGETHER):
        kept.append(machine_code({x for piece in pieces[i : i + TOGETHER] for x in (*piece.needs, piece)}))
        time.sleep(BREAK)
        if reference() is None or not threading.main_thread().is_alive():
            return
    program = reference()
    if program is not None:
        program.compile()


class _Compiler:
    """The thread that compiles programs, those that are still there, one after the other. It ends when nothing is left,
    and when the interpreter does: a program that has not been begun by then is not."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[weakref.ref[Any]] = deque()
        self._thread: threading.Thread | None = None
        self._now: weakref.ref[Any] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is being compiled."""
        return self._thread is not None

    def add(self, program: Any) -> None:
        with self._lock:
            self._waiting.append(weakref.ref(program))
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="tracegrad compiler")
            try:
                self._thread.start()
                return
            except RuntimeError:  # there can be no more threads, or the interpreter is about to end
                self._thread = None
                self._waiting.clear()
        program.compile()

    def _next(self) -> weakref.ref[Any] | None:
        with self._lock:
            while self._waiting and threading.main_thread().is_alive():
                self._now = self._waiting.popleft()
                if self._now() is not None:
                    return self._now
            self._thread = self._now = None
            self._waiting.clear()
            return None

    def _run(self) -> None:
        while (reference := self._next()) is not None:
            try:
                _compile(reference)
            except BaseException as error:
                tier = getattr(reference(), "tier", None)
                if tier is not None:
                    tier.error = error.with_traceback(None)

    def forked(self) -> None:
        """In a forked child, where there is no thread but the one that forked: what waited is added when it is called
        again."""
        waiting = [*self._waiting, *([self._now] if self._now is not None else [])]
        self._begin()
        for reference in waiting:
            program = reference()
            if program is not None and program.tier is not None:
                program.tier.begun = False


_compiler = _Compiler()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _compiler.forked())
