"""Define the exceptions that abort or restart a trace.

The exceptions derive from `BaseException`, so an `except Exception` in user code does not catch them.
"""

from __future__ import annotations

import time

from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.facts import Fact, TraceFact

MAX_ATTEMPTS = TUNING.tracing.max_attempts
MAX_SLOW_ATTEMPTS = TUNING.tracing.max_slow_attempts
MAX_SECONDS = TUNING.tracing.slow_time


class RunsPlainly(BaseException):
    """Abort: run the traced code as plain Python. An `except Exception` in the traced code does not catch this."""

    location = ""  # the user's line, if it differs from the line that raised


class Restarts(RunsPlainly):
    """Abort and restart: trace the code again, with another fact."""

    def __init__(self, why: str, fact: Fact):
        super().__init__(why)
        self.fact = fact


class Attempts:
    """Restart counter of the trace of one call, which limits the number of attempts."""

    def __init__(self) -> None:
        self._count, self._start_time = 0, time.perf_counter()

    def again(self, restart: Restarts, before: frozenset[Fact], facts: set[Fact]) -> RunsPlainly | None:
        """Update `facts` for the next attempt (`before` is its previous value). Returns the abort if the call must
        run as plain Python instead."""
        self._count += 1
        facts.add(restart.fact)
        seconds = time.perf_counter() - self._start_time
        same = restart.fact is not TraceFact.AGAIN and facts == before  # the next trace would do the same
        if self._count >= MAX_ATTEMPTS or (self._count >= MAX_SLOW_ATTEMPTS and seconds > MAX_SECONDS):
            why = f"it was traced {self._count} times in {seconds:.0f} s, and again because {restart}"
        elif same and TraceFact.ITERATION_BY_ITERATION in before:
            why = f"it would be traced again without an end, because {restart}"
        else:
            if same:
                facts.add(TraceFact.ITERATION_BY_ITERATION)
            return None
        end = RunsPlainly(why)
        end.location = restart.location
        return end
