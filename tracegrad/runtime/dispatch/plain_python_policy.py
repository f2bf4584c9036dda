"""Decide when a traced function runs as plain Python because that is faster: counters and trials.

Calls on the fast path are not counted. Each other call either found a program, was traced, or ran plainly. After many
separate lookups, or expensive traces, a *trial* times some calls as they come, and then as many as plain Python. If
Python is clearly faster the function *rests*: calls run plainly for so long that the next trial is cheap in
comparison. If programs are faster, the interval to the next trial doubles.

A function whose calls run plainly for another reason rests too, for a few calls each time, because finding that reason
again costs as much as a small function.

Derivatives do not rest, because plain Python cannot compute them. A function with an explicit tier does not rest
either: with `tiered=False` each call and each run has the same bits.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.runtime.dispatch.disabled_jit import eagerly
from tracegrad.settings import unusual
from tracegrad.target.tuning import TUNING
from tracegrad.trace.sources.signature import Call

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch.dispatcher import Dispatcher

__all__ = ["MOST_FOR_ONE", "MOST_UNMET", "CacheInfo", "Pace", "Unmet"]

MOST_FOR_ONE = TUNING.plain_python.max_retraces_for_one
MOST_UNMET = TUNING.plain_python.max_unmet
MOST_KINDS = TUNING.plain_python.max_kinds
TRACED = TUNING.plain_python.traced_calls
SECONDS = TUNING.plain_python.traced_time
LOOKED_UP = TUNING.plain_python.slow_calls
BRIEF = TUNING.plain_python.brief_time
OTHER_KIND = TUNING.plain_python.new_kind_part
TRIED = TUNING.plain_python.trial_calls
LONG = TUNING.plain_python.trial_time
FEWEST = TUNING.plain_python.min_trial_calls
FAR = TUNING.plain_python.far_factor
OUTLIERS = TUNING.plain_python.outlier_part
PART = TUNING.plain_python.max_plain_part
REST = TUNING.plain_python.min_rest
TIMES = TUNING.plain_python.rest_factor
BRIEF_REST = TUNING.plain_python.brief_rest
IN_A_ROW = TUNING.plain_python.plain_calls
MOST_DOUBLED = TUNING.plain_python.max_doublings


class CacheInfo(NamedTuple):
    """Counts of traces, and of slow-path calls that found a program or did not. A repeated kind of call takes the fast
    path, which is not counted. A trace that raised is not counted. `limited` is the number of kinds of arguments whose
    calls run as plain Python; at least one while all calls do because Python is faster."""

    traces: int
    retraces: int
    hits: int
    misses: int
    specializations: int
    limited: int


class Unmet:
    """Counts of consecutive calls without a valid program, by the kinds of their arguments."""

    def __init__(self) -> None:
        self._counts: dict[Any, int] = {}

    def __contains__(self, call: Call) -> bool:
        """Whether calls of this kind have missed too often to be traced."""
        return bool(self._counts) and self._counts.get(call.key[1:], 0) >= MOST_UNMET

    @property
    def limited(self) -> int:
        """The number of kinds of arguments whose calls are no longer traced."""
        return sum(count >= MOST_UNMET for count in self._counts.values())

    def often(self, call: Call) -> bool:
        """Whether calls of this kind have missed often enough for a warning."""
        return self._counts.get(call.key[1:], 0) > MOST_FOR_ONE

    def add(self, call: Call) -> None:
        kinds = call.key[1:]  # without the structure, which contains objects
        self._counts[kinds] = self._counts.pop(kinds, 0) + 1
        if len(self._counts) > MOST_KINDS:
            del self._counts[next(iter(self._counts))]

    def discard(self, call: Call) -> None:
        self._counts.pop(call.key[1:], None)


class Trial:
    """Times of normal calls, and of calls as plain Python."""

    def __init__(self) -> None:
        self.as_they_come: list[float] = []
        self.plainly: list[float] = []
        self.switched = False  # whether the trial has switched to plain Python

    def add(self, seconds: float) -> bool:
        """Record the time of a call; returns whether the trial is over."""
        spent, before = self.plainly if self.switched else self.as_they_come, self.as_they_come
        spent.append(seconds)
        if self.switched:
            return len(spent) == len(before) or sum(spent) > sum(before)
        long = sum(spent) > (LONG if len(spent) >= FEWEST else FAR * LONG)
        self.switched = len(spent) == TRIED or long
        return False

    @property
    def means(self) -> tuple[float, float]:
        """The mean seconds per call, normally and as plain Python."""
        return _mean(self.as_they_come), _mean(self.plainly)

    @property
    def is_for_python(self) -> bool:
        """Whether plain Python is clearly faster."""
        as_they_come, plainly = self.means
        return len(self.plainly) == len(self.as_they_come) and plainly < PART * as_they_come


def _mean(seconds: list[float]) -> float:
    counted = sorted(seconds)[: len(seconds) - int(OUTLIERS * len(seconds))]
    return sum(counted) / len(counted)


class Pace:
    """Statistics of the slow-path calls of one function."""

    __slots__ = (
        "_again", "_doubled", "_in_a_row", "_kinds", "_looked_up", "_measured", "_seconds", "_spent", "_traced",
        "_traces", "_trial", "left", "ran_plainly", "why",
    )  # fmt: skip

    def __init__(self) -> None:
        self.left = 0  # the remaining calls of the rest
        self.why = ""  # the reason of the rest
        self.ran_plainly = ""  # the reason of the last plain call
        self._trial: Trial | None = None
        self._again = 1  # factor of the number of calls before the next trial
        self._doubled = 0  # number of trials that Python won
        self._measured = False  # whether a trial caused the rest
        self._in_a_row = self._kinds = self._looked_up = self._traces = self._traced = 0
        self._seconds = self._spent = 0.0

    @property
    def rests(self) -> bool:
        """Whether calls run as plain Python because a trial found it faster."""
        return self.left > 0 and self._measured

    def came(self, function: Dispatcher, seconds: float) -> None:
        """Record a slow-path call, with its CPU time in seconds."""
        why, self.ran_plainly = self.ran_plainly, ""
        if self._trial is not None:
            _face(function, _tried)
        elif why:
            self._in_a_row += 1
            if self._in_a_row >= IN_A_ROW:
                self._rest(function, why, BRIEF_REST)
        else:
            self._in_a_row = 0
            # With first calls compiled, each call and each run must have the same bits. While another thread compiles,
            # slow-path calls are expected, and start no trial.
            if self._is_due(function, seconds) and function.has_plain and function.first_call == "replay":
                self._trial = Trial()
                _face(function, _tried)

    def _is_due(self, function: Dispatcher, seconds: float) -> bool:
        """Whether a trial is due."""
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
        """Run a call in a trial."""
        trial = self._trial
        if trial is None:
            return function.call_slowly(args, kwargs)
        begun = _clocks()
        result = eagerly(function, args, kwargs) if trial.switched else function.call_slowly(args, kwargs)
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
        """Run the first call after a rest."""
        if self._measured:
            self._trial = Trial()
            return self.trial(function, args, kwargs)
        _face(function, None)
        return function.call_slowly(args, kwargs)


def _clocks() -> tuple[float, float]:
    """Two clocks; the time of a call is the smaller difference. The wall clock also counts other processes, and the
    process clock counts every thread."""
    return time.perf_counter(), time.process_time()


def _face(function: Any, call: Any) -> None:
    """Set the class of a function, so that its calls run `call`; None restores the original class."""
    function.__class__ = function._plain if call is None else _faces(function._plain, call)


@functools.cache
def _faces(plain: type, call: Any) -> type:
    return type(plain.__name__, (plain,), {"__call__": call, "__slots__": (), "entry": None})


def _rested(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run a call while the function rests."""
    pace = self._pace
    if unusual:
        return self.call_slowly(args, kwargs)
    if pace.left <= 0:
        return pace.awakes(self, args, kwargs)
    pace.left -= 1
    return eagerly(self, args, kwargs, pace.why)


def _tried(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run a call in a trial."""
    return self.call_slowly(args, kwargs) if unusual else self._pace.trial(self, args, kwargs)
