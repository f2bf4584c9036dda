"""Samples of each op of the table on complex operands."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tracegrad.errors import DTypeError, UnsupportedError
from tracegrad.ops import TABLE, lazy
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.forms import Branch, Repeat, Run, While

assert lazy.fft.fft.name in TABLE  # imported late, as the modules beside it

REGIONS = (Branch, Repeat, Run, While)


def widened(operands: tuple[Any, ...], which: tuple[int, ...]) -> list[Any]:
    """The operands with those at the places `which` made complex."""
    return [x + 1j * np.roll(x, 1) if i in which else x for i, x in enumerate(operands)]


# Those that make complex numbers of real ones.
OF_REALS = ("complex", "view_as_complex", "rfft")


def samples() -> Any:
    """Each op of the table on complex operands, all of them, or some of those of an elementwise op.

    Conversions have a test of their own, and so have loops and branches, whose samples say which dtypes they take.
    """
    for op in (op for op in TABLE.values() if op.name != "cast" and not isinstance(op.form, REGIONS)):
        for k, (operands, params) in enumerate(op.sample_cases()):
            doubles = [i for i, x in enumerate(operands) if x.dtype == np.float64]
            if not all(np.isfinite(x).all() and x.dtype not in (np.float32, np.complex64) for x in operands):
                continue
            if any(x.dtype == np.complex128 for x in operands) or op.name in OF_REALS:
                yield pytest.param(op, list(operands), params, id=f"{op.name}-{k}")
                continue
            least = 1 if isinstance(op, Elementwise) else max(len(doubles), 1)
            for n in range(least, len(doubles) + 1):
                for which in itertools.combinations(doubles, n):
                    name = f"{op.name}-{k}-{''.join(map(str, which))}"
                    yield pytest.param(op, widened(operands, which), params, id=name)


def answer(op: Any, operands: Any, params: Any) -> Any:
    """What the op gives, or None if it refuses."""
    try:
        return op(*operands, **params)
    except (DTypeError, UnsupportedError):
        return None
