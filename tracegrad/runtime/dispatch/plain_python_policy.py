"""When calls of a traced function run as plain Python because that is quicker: what is counted of them, and measured.

Nobody counts calls on the hot path. Of others, which look their program up, it is known whether they found one, were
traced, or ran plainly. If many were looked up one by one, or were traced at a cost, a *trial* measures some calls as
they come, and then as many as plain Python. Where Python is clearly quicker the function *rests*: calls run plainly, so
long that the next trial costs little beside them. Where programs are quicker, the next trial is twice as far off.

A function whose calls run plainly for another reason rests too, for a few calls each time: to find that reason anew
costs as much as a small function.

Derivatives do not rest, for there is no plain Python that would do the same; nor do functions that say who
answers first calls: with `tiered=False` each call and each run has the same bits.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.runtime.dispatch.disabled_jit import eagerly
from tracegrad.settings import unusual
from tracegrad.trace.sources.signature import Call

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch.dispatcher import Dispatcher

__all__ = ["MOST_FOR_ONE", "MOST_UNMET", "CacheInfo", "Pace", "Unmet"]

# So many times, a function may be traced again for one reason before it is told to be slow.
MOST_FOR_ONE = 8
# After so many calls that were traced, one after the other, it is not traced any more for arguments of these kinds.
MOST_UNMET, MOST_KINDS = 64, 256
# A trial begins after so many calls, one after the other, that were traced; or more than MOST_FOR_ONE, if they took so
# many seconds of a CPU. It does after so many that found a program, but not at once, and took no longer than that each:
# to find one takes some 100 us. The seconds of a trace for arguments of another kind count in part, since programs meet
# each of the kinds that they use for a first time.
TRACED, SECONDS, LOOKED_UP, BRIEF, OTHER_KIND = 64, 3.0, 64, 1e-3, 0.25
# A trial is of so many calls of either kind, or of some that took so many seconds, the fewest of them unless these took
# far longer; the longest ones do not count. Plain Python is to take no more than this part of the time.
TRIED, LONG, FEWEST, FAR, OUTLIERS, PART = 32, 0.25, 3, 4, 0.1, 0.8
# A function rests for so many calls at least, or until these took so many times as long as those of the trial; and
# for so many, after so many calls in a row that ran plainly for another reason.
REST, TIMES, BRIEF_REST, IN_A_ROW = 1024, 4, 64, 8
MOST_DOUBLED = 16


class CacheInfo(NamedTuple):
    """How often a traced function was traced, and its calls on the slow path that found a program or did not: one that
    repeats the kind of the call before takes the fast path, which counts nothing. Traces that ended in an exception are
    not counted. For `limited` kinds of arguments calls run as plain Python; for one at least, while all calls do, as
    that was measured to be quicker.
    """

    traces: int
    retraces: int
    hits: int
    misses: int
    specializations: int
    limited: int


class Unmet:
    """How many calls that no program held for have followed each other, by the kinds of their arguments."""

    def __init__(self) -> None:
        self._counts: dict[Any, int] = {}

    def __contains__(self, call: Call) -> bool:
        """Whether they are so many that such calls are not worth tracing."""
        return bool(self._counts) and self._counts.get(call.key[1:], 0) >= MOST_UNMET

    @property
    def limited(self) -> int:
        """For how many kinds of arguments calls are not worth tracing."""
        return sum(count >= MOST_UNMET for count in self._counts.values())

    def often(self, call: Call) -> bool:
        """Whether they are worth a warning."""
        return self._counts.get(call.key[1:], 0) > MOST_FOR_ONE

    def add(self, call: Call) -> None:
        kinds = call.key[1:]  # not the structure, which objects among the arguments belong to
        self._counts[kinds] = self._counts.pop(kinds, 0) + 1
        if len(self._counts) > MOST_KINDS:
            del self._counts[next(iter(self._counts))]

    def discard(self, call: Call) -> None:
        self._counts.pop(call.key[1:], None)


class Trial:
    """How long calls took as they came, and how long others took as plain Python."""

    def __init__(self) -> None:
        self.as_they_come: list[float] = []
        self.plainly: list[float] = []
        self.turned = False  # to plain Python

    def add(self, seconds: float) -> bool:
        """Whether the trial is over, now that another call took so many seconds."""
        spent, before = self.plainly if self.turned else self.as_they_come, self.as_they_come
        spent.append(seconds)
        if self.turned:
            return len(spent) == len(before) or sum(spent) > sum(before)
        long = sum(spent) > (LONG if len(spent) >= FEWEST else FAR * LONG)
        self.turned = len(spent) == TRIED or long
        return False

    @property
    def means(self) -> tuple[float, float]:
        """The seconds of a call, as they come and as plain Python."""
        return _mean(self.as_they_come), _mean(self.plainly)

    @property
    def is_for_python(self) -> bool:
        """Whether plain Python was clearly quicker."""
        as_they_come, plainly = self.means
        return len(self.plainly) == len(self.as_they_come) and plainly < PART * as_they_come


def _mean(seconds: list[float]) -> float:
    counted = sorted(seconds)[: len(seconds) - int(OUTLIERS * len(seconds))]
    return sum(counted) / len(counted)


class Pace:
    """What is known of the calls of one function that did not take the hot path."""

    __slots__ = (
        "_again", "_doubled", "_in_a_row", "_kinds", "_looked_up", "_measured", "_seconds", "_spent", "_traced",
        "_traces", "_trial", "left", "ran_plainly", "why",
    )  # fmt: skip

    def __init__(self) -> None:
        self.left = 0  # the calls for which the function rests
        self.why = ""  # it rests
        self.ran_plainly = ""  # why the call did that has just been made
        self._trial: Trial | None = None
        self._again = 1  # how many times as many calls as the first time it takes for the next trial
        self._doubled = 0  # how often one was for Python
        self._measured = False  # whether that is why the function rests
        self._in_a_row = self._kinds = self._looked_up = self._traces = self._traced = 0
        self._seconds = self._spent = 0.0

    @property
    def rests(self) -> bool:
        """Whether calls run as plain Python since that was measured to be quicker."""
        return self.left > 0 and self._measured

    def came(self, function: Dispatcher, seconds: float) -> None:
        """A call is over that was not on the hot path, and took so many seconds of a CPU."""
        why, self.ran_plainly = self.ran_plainly, ""
        if self._trial is not None:
            _face(function, _tried)
        elif why:
            self._in_a_row += 1
            if self._in_a_row >= IN_A_ROW:
                self._rest(function, why, BRIEF_REST)
        else:
            self._in_a_row = 0
            # Who has first calls compiled wants the same bits in each call and each run; while another thread compiles,
            # calls look up what answers them, as those would that are due.
            if self._is_due(function, seconds) and function.has_plain and function.first_call == "replay":
                self._trial = Trial()
                _face(function, _tried)

    def _is_due(self, function: Dispatcher, seconds: float) -> bool:
        """Whether it is time for a trial."""
        traces, self._traces = self._traces, function._counts["misses"]
        if self._traces != traces:
            kinds, self._kinds = self._kinds, len(function._specializations)
            part = OTHER_KIND if self._kinds > kinds else 1
            self._traced, self._spent = self._traced + 1, self._spent + part * seconds
            costly = self._traced > MOST_FOR_ONE and self._spent > SECONDS * self._again
            return costly or self._traced >= TRACED * self._again
        self._traced, self._spent = 0, 0.0
        self._looked_up, self._seconds = self._looked_up + 1, self._seconds + seconds
        if self._looked_up < LOOKED_UP * self._again:
            return False
        brief = self._seconds < BRIEF * self._looked_up
        self._looked_up, self._seconds = 0, 0.0
        return brief

    def trial(self, function: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call in a trial."""
        trial = self._trial
        if trial is None:
            return function.call_slowly(args, kwargs)
        begun = _clocks()
        result = eagerly(function, args, kwargs) if trial.turned else function.call_slowly(args, kwargs)
        if trial.add(min([now - then for now, then in zip(_clocks(), begun)])):
            self._decide(function, trial)
        else:
            _face(function, _tried)
        return result

    def _decide(self, function: Dispatcher, trial: Trial) -> None:
        self._trial, self._traced, self._spent = None, 0, 0.0
        if not trial.is_for_python:
            self._again = min(2 * self._again, 2**MOST_DOUBLED)
            _face(function, None)
            return
        as_they_come, plainly = trial.means
        calls = max(REST, int(TIMES * sum(trial.as_they_come) / plainly)) << self._doubled
        self._doubled = min(self._doubled + 1, MOST_DOUBLED)
        self._rest(function, function.told.slower(function.name, as_they_come, plainly), calls, measured=True)

    def _rest(self, function: Dispatcher, why: str, calls: int, measured: bool = False) -> None:
        self.left, self.why, self._measured, self._in_a_row = calls, why, measured, IN_A_ROW - 1
        _face(function, _rested)

    def awakes(self, function: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The first call behind a rest."""
        if self._measured:
            self._trial = Trial()
            return self.trial(function, args, kwargs)
        _face(function, None)
        return function.call_slowly(args, kwargs)


def _clocks() -> tuple[float, float]:
    """Two clocks, of which a call takes what the one says that has gone less: that of the wall goes on while the
    machine does something else, and that of the process goes as many times as fast as threads compute."""
    return time.perf_counter(), time.process_time()


def _face(function: Any, call: Any) -> None:
    """Let calls of a function be made so, or as at first."""
    function.__class__ = function._plain if call is None else _faces(function._plain, call)


@functools.cache
def _faces(plain: type, call: Any) -> type:
    return type(plain.__name__, (plain,), {"__call__": call, "__slots__": (), "turn": None})


def _rested(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A call while the function rests."""
    pace = self._pace
    if unusual:
        return self.call_slowly(args, kwargs)
    if pace.left <= 0:
        return pace.awakes(self, args, kwargs)
    pace.left -= 1
    return eagerly(self, args, kwargs, pace.why)


def _tried(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A call in a trial."""
    return self.call_slowly(args, kwargs) if unusual else self._pace.trial(self, args, kwargs)
