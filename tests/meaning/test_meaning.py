"""Traced code means what Python means: programs with state, run plainly and traced."""

from __future__ import annotations

from typing import Any

import numpy as np
from meaning import program


@program
def test_globals_and_closures_are_read_at_each_call(trace: Any) -> Any:
    scale, weights = 2.0, np.arange(3.0)

    @trace
    def f(x: Any) -> Any:
        return np.sum(x * weights) * scale

    yield f(np.ones(3))
    scale = 3.0
    yield f(np.ones(3))
    weights[:] = 1.0
    yield f(np.ones(3))
    weights = np.arange(4.0)
    yield f(np.ones(4))
