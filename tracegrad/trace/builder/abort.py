"""Define the exceptions that abort or restart a trace, and the keys of retrace facts.

The exceptions derive from `BaseException`, so an `except Exception` in user code does not catch them.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Any

from tracegrad.target.tuning import TUNING

__all__ = [
    "ARRAYS",
    "BASED",
    "BOOLEANS",
    "COMPUTED",
    "ENTERED",
    "FOLDED",
    "GROWS",
    "ITERATION_BY_ITERATION",
    "KINDS",
    "LISTS",
    "NO_STREAMS",
    "PEELED",
    "STEPS",
    "STREAMS",
    "TABLES",
    "VIEWS",
    "WITHIN",
    "Attempts",
    "Restarts",
    "RunsPlainly",
]

# Facts in `varying`, in addition to the keys of number sources. The key of a fact may include a loop or a source.
# BOOLEANS: booleans are read at once. ITERATION_BY_ITERATION: all loops, or one loop, are recorded iteration by
# iteration. FOLDED: a loop is folded from its first iteration. WITHIN: it is folded if an enclosing loop is folded.
# ARRAYS: an array in several arguments is one traced value. BASED: an array is a view of its base. KINDS: a float is a
# Python or a NumPy float. VIEWS: the views in the state of a loop stay views. ENTERED: a loop over values includes its
# first iteration. PEELED: it does not. GROWS: a loop appends to a list. TABLES: it indexes a list by traced integers.
# LISTS: lists keep their elements in loops, because code compares objects by identity. COMPUTED: arrays of constants
# are nodes from the beginning. STREAMS: the states of random generators are traced values. NO_STREAMS: they cannot be.
# STEPS: the trace is of one call, which runs each line as often as Python does, in the bodies of `scan` and `cond` too,
# and rerolls no loop.
BOOLEANS, ITERATION_BY_ITERATION, FOLDED, ARRAYS, KINDS, VIEWS = (
    "booleans",
    "iteration by iteration",
    "folded",
    "arrays",
    "kinds",
    "views",
)
ENTERED, PEELED, GROWS, WITHIN, TABLES = "entered", "peeled", "grows", "within", "tables"
LISTS, COMPUTED, STEPS, STREAMS, NO_STREAMS = "lists", "computed", "steps", "streams", "no streams"
BASED = "based"
MAX_ATTEMPTS = TUNING.tracing.max_attempts
MAX_SLOW_ATTEMPTS = TUNING.tracing.max_slow_attempts
MAX_SECONDS = TUNING.tracing.slow_time


class RunsPlainly(BaseException):
    """Abort: run the traced code as plain Python. An `except Exception` in the traced code does not catch this."""

    location = ""  # the user's line, if it differs from the line that raised


class Restarts(RunsPlainly):
    """Abort and restart: trace the code again, with `key` in `varying`."""

    def __init__(self, why: str, key: Any):
        super().__init__(why)
        self.key = key


class Attempts:
    """Restart counter of the trace of one call, which limits the number of attempts."""

    def __init__(self) -> None:
        self._count, self._start_time = 0, time.perf_counter()

    def again(self, restart: Restarts, before: frozenset[Hashable], facts: set[Hashable]) -> RunsPlainly | None:
        """Update `facts` for the next attempt (`before` is its previous value). Returns the abort if the call must
        run as plain Python instead."""
        self._count += 1
        facts.add(restart.key)
        seconds = time.perf_counter() - self._start_time
        same = restart.key is not None and facts == before  # the next trace would do the same
        if self._count >= MAX_ATTEMPTS or (self._count >= MAX_SLOW_ATTEMPTS and seconds > MAX_SECONDS):
            why = f"it was traced {self._count} times in {seconds:.0f} s, and again because {restart}"
        elif same and ITERATION_BY_ITERATION in before:
            why = f"it would be traced again without an end, because {restart}"
        else:
            if same:
                facts.add(ITERATION_BY_ITERATION)
            return None
        end = RunsPlainly(why)
        end.location = restart.location
        return end
