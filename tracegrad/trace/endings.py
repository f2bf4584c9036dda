"""What ends a trace before its function has returned: no `except Exception` of the user's is to catch it."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ARRAYS", "COMPUTED", "ENTERED", "FOLDED", "GROWS", "KINDS", "LISTS", "PEELED", "STEPS", "TABLES", "TRUTHS",
    "TURN_BY_TURN", "VIEWS", "WITHIN", "Restarts", "RunsPlainly",
]  # fmt: skip

# What may be `varying`, beside sources of numbers: that truths are no traced values, and that loops (or, with a place,
# those that begin there) are recorded turn by turn, with all that Python knows, or folded from their beginning; that an
# array that is several arguments is one traced value; that there are floats of either kind; that views in the state of
# a loop (with its place) are no arrays of their own; that a loop over values begins with its first turn, or cannot;
# that it appends to a list, or reads elements of one by a number of the trace; that one is folded where it is within
# another one that is; that lists have their elements in loops too, for it is asked which objects these are; and that
# arrays of constants are nodes from the beginning. With `STEPS` the trace is of one call, which runs each line as often
# as Python does, in the bodies of `scan` and `cond` too, and no loop is rolled.
TRUTHS, TURN_BY_TURN, FOLDED, ARRAYS, KINDS, VIEWS = "truths", "turn by turn", "folded", "arrays", "kinds", "views"
ENTERED, PEELED, GROWS, WITHIN, TABLES = "entered", "peeled", "grows", "within", "tables"
LISTS, COMPUTED, STEPS = "lists", "computed", "steps"


class RunsPlainly(BaseException):
    """The code that is traced has to run as plain Python. No `except Exception` of its own is to catch this."""


class Restarts(RunsPlainly):
    """The code that is traced is to be traced again, otherwise: `key` is to be among what is `varying`."""

    def __init__(self, why: str, key: Any):
        super().__init__(why)
        self.key = key
