"""Is every NumPy function that traced code can call faster compiled than eager, at 100,000 elements?

Each function is called once (`functions.py`), value only. The row of a slower one has the reason.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator

import numpy as np

from benchmarks.functions import ROWS, function, letters, operand, why
from benchmarks.harness import Case, Factory, Settings
from benchmarks.peers import need

PACKAGES = ("tracegrad",)


def case(row: str) -> Case:
    """One function, by its row."""
    f, arrays = function(row), [operand(letter) for letter in letters(row)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = f(*arrays)
    peers: dict[str, Factory] = {
        "tracegrad": lambda: functools.partial(need("tracegrad").trace(f), *arrays),
        "numpy": lambda: functools.partial(f, *arrays),
    }
    return Case(row, peers, lambda: expected, settle_seconds=0.001, brief=True, why=why(row))


def cases(settings: Settings) -> Iterator[Case]:
    """One at a time. Until the last is done, NumPy does not warn."""
    with np.errstate(all="ignore"):
        yield from map(case, ROWS)
