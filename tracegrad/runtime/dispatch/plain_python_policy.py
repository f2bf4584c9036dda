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

from tracegrad.runtime.dispatch.call_class import class_with_call, switch_class
from tracegrad.runtime.dispatch.disabled_jit import eagerly
from tracegrad.settings import unusual
from tracegrad.target.tuning import TUNING
from tracegrad.trace.sources.signature import BoundCall

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch.dispatcher import Dispatcher

MAX_RETRACES_FOR_ONE = TUNING.plain_python.max_retraces_for_one
MAX_UNMET = TUNING.plain_python.max_unmet
MAX_KINDS = TUNING.plain_python.max_kinds
TRACED = TUNING.plain_python.traced_calls
SECONDS = TUNING.plain_python.traced_time
LOOKED_UP = TUNING.plain_python.slow_calls
BRIEF = TUNING.plain_python.brief_time
OTHER_KIND = TUNING.plain_python.new_kind_fraction
TRIED = TUNING.plain_python.trial_calls
LONG = TUNING.plain_python.trial_time
MIN_TRIAL_CALLS = TUNING.plain_python.min_trial_calls
FAR = TUNING.plain_python.far_factor
OUTLIERS = TUNING.plain_python.outlier_fraction
MAX_PLAIN_RATIO = TUNING.plain_python.max_plain_ratio
REST = TUNING.plain_python.min_rest
TIMES = TUNING.plain_python.rest_factor
BRIEF_REST = TUNING.plain_python.brief_rest
MAX_PLAIN_STREAK = TUNING.plain_python.plain_calls
MAX_DOUBLINGS = TUNING.plain_python.max_doublings


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

    def __contains__(self, call: BoundCall) -> bool:
        """Whether calls of this kind have missed too often to be traced."""
        return bool(self._counts) and self._counts.get(call.key[1:], 0) >= MAX_UNMET

    @property
    def limited(self) -> int:
        """The number of kinds of arguments whose calls are no longer traced."""
        return sum([count >= MAX_UNMET for count in [*self._counts.values()]])

    def often(self, call: BoundCall) -> bool:
        """Whether calls of this kind have missed often enough for a warning."""
        return self._counts.get(call.key[1:], 0) > MAX_RETRACES_FOR_ONE

    def add(self, call: BoundCall) -> None:
        kinds = call.key[1:]  # without the structure, which contains objects
        self._counts[kinds] = self._counts.pop(kinds, 0) + 1
        if len(self._counts) > MAX_KINDS:
            self._counts.pop(next(iter([*self._counts])), None)  # other threads remove kinds, too

    def discard(self, call: BoundCall) -> None:
        self._counts.pop(call.key[1:], None)


class Trial:
    """Times of normal calls, and of calls as plain Python."""

    def __init__(self) -> None:
        self.normal_times: list[float] = []
        self.plain_times: list[float] = []
        self.switched = False  # whether the trial has switched to plain Python

    def add(self, seconds: float) -> bool:
        """Record the time of a call; returns whether the trial is over."""
        spent, before = self.plain_times if self.switched else self.normal_times, self.normal_times
        spent.append(seconds)
        if self.switched:
            return len(spent) == len(before) or sum(spent) > sum(before)
        long = sum(spent) > (LONG if len(spent) >= MIN_TRIAL_CALLS else FAR * LONG)
        self.switched = len(spent) == TRIED or long
        return False

    @property
    def means(self) -> tuple[float, float]:
        """The mean seconds per call, normally and as plain Python."""
        return _mean(self.normal_times), _mean(self.plain_times)

    @property
    def is_for_python(self) -> bool:
        """Whether plain Python is clearly faster."""
        normal_mean, plain_mean = self.means
        return len(self.plain_times) == len(self.normal_times) and plain_mean < MAX_PLAIN_RATIO * normal_mean


def _mean(seconds: list[float]) -> float:
    counted = sorted(seconds)[: len(seconds) - int(OUTLIERS * len(seconds))]
    return sum(counted) / len(counted)


class Pace:
    """Statistics of the slow-path calls of one function."""

    __slots__ = (
        "_again",
        "_doubled",
        "_kinds",
        "_looked_up",
        "_measured",
        "_plain_streak",
        "_seconds",
        "_spent",
        "_traced",
        "_traces",
        "_trial",
        "calls_left",
        "ran_plainly",
        "why",
    )

    def __init__(self) -> None:
        self.calls_left = 0  # the remaining calls of the rest
        self.why = ""  # the reason of the rest
        self.ran_plainly = ""  # the reason of the last plain call
        self._trial: Trial | None = None
        self._again = 1  # factor of the number of calls before the next trial
        self._doubled = 0  # number of trials that Python won
        self._measured = False  # whether a trial caused the rest
        self._plain_streak = self._kinds = self._looked_up = self._traces = self._traced = 0
        self._seconds = self._spent = 0.0

    @property
    def rests(self) -> bool:
        """Whether calls run as plain Python because a trial found it faster."""
        return self.calls_left > 0 and self._measured

    def record_call(self, function: Dispatcher, seconds: float) -> None:
        """Record a slow-path call, with its CPU time in seconds."""
        why, self.ran_plainly = self.ran_plainly, ""
        if self._trial is not None:
            _set_call(function, _tried)
        elif why:
            self._plain_streak += 1
            if self._plain_streak >= MAX_PLAIN_STREAK:
                self._rest(function, why, BRIEF_REST)
        else:
            self._plain_streak = 0
            # With first calls compiled, each call and each run must have the same bits. While another thread compiles,
            # slow-path calls are expected, and start no trial.
            if self._is_due(function, seconds) and function.has_plain and function.first_call == "replay":
                self._trial = Trial()
                _set_call(function, _tried)

    def _is_due(self, function: Dispatcher, seconds: float) -> bool:
        """Whether a trial is due."""
        traces, self._traces = self._traces, function._counts["misses"]
        if self._traces != traces:
            kinds, self._kinds = self._kinds, len(function._specializations)
            weight = OTHER_KIND if self._kinds > kinds else 1
            self._traced, self._spent = self._traced + 1, self._spent + weight * seconds
            costly = self._traced > MAX_RETRACES_FOR_ONE and self._spent > SECONDS * self._again
            return costly or self._traced >= TRACED * self._again
        self._traced, self._spent = 0, 0.0
        self._looked_up, self._seconds = self._looked_up + 1, self._seconds + seconds
        if self._looked_up < LOOKED_UP * self._again:
            return False
        brief = self._seconds < BRIEF * self._looked_up
        self._looked_up, self._seconds = 0, 0.0
        return brief

    def trial(self, function: Dispatcher, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Run a call in a trial."""
        trial = self._trial
        if trial is None:
            return function.call_slowly(args, kwargs)
        start = _clocks()
        result = eagerly(function, args, kwargs) if trial.switched else function.call_slowly(args, kwargs)
        if trial.add(min([now - then for now, then in zip(_clocks(), start)])):
            self._decide(function, trial)
        else:
            _set_call(function, _tried)
        return result

    def _decide(self, function: Dispatcher, trial: Trial) -> None:
        self._trial, self._traced, self._spent = None, 0, 0.0
        if not trial.is_for_python:
            self._again = min(2 * self._again, 2**MAX_DOUBLINGS)
            _set_call(function, None)
            return
        normal_mean, plain_mean = trial.means
        num_calls = max(REST, int(TIMES * sum(trial.normal_times) / plain_mean)) << self._doubled
        self._doubled = min(self._doubled + 1, MAX_DOUBLINGS)
        self._rest(
            function, function.retrace_warnings.slower(function.name, normal_mean, plain_mean), num_calls, measured=True
        )

    def _rest(self, function: Dispatcher, why: str, num_calls: int, measured: bool = False) -> None:
        self.calls_left, self.why, self._measured, self._plain_streak = num_calls, why, measured, MAX_PLAIN_STREAK - 1
        _set_call(function, _rested)

    def awakes(self, function: Dispatcher, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Run the first call after a rest."""
        if self._measured:
            self._trial = Trial()
            return self.trial(function, args, kwargs)
        _set_call(function, None)
        return function.call_slowly(args, kwargs)


def _clocks() -> tuple[float, float]:
    """Two clocks; the time of a call is the smaller difference. The wall clock also counts other processes, and the
    process clock counts every thread."""
    return time.perf_counter(), time.process_time()


def _set_call(function: Any, call: Any) -> None:
    """Set the class of a function, so that its calls run `call`; None restores the original class."""
    switch_class(function, function._plain if call is None else _class_with_call(function._plain, call))


_class_with_call = functools.cache(class_with_call)


def _rested(self: Any, /, *args: Any, **kwargs: Any) -> object:
    """Run a call while the function rests."""
    pace = self._pace
    if unusual:
        return self.call_slowly(args, kwargs)
    if pace.calls_left <= 0:
        return pace.awakes(self, args, kwargs)
    pace.calls_left -= 1
    return eagerly(self, args, kwargs, pace.why)


def _tried(self: Any, /, *args: Any, **kwargs: Any) -> object:
    """Run a call in a trial."""
    return self.call_slowly(args, kwargs) if unusual else self._pace.trial(self, args, kwargs)
