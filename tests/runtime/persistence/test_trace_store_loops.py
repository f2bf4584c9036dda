"""Traces on disk of functions with loops: what is known of these is told by places in traced code."""

from __future__ import annotations

from typing import Any

import pytest
from remembered import Case, both_ways, changed, check, same

FOLDED = """
    def function(x):
        y = x
        for k in range(2000):
            y = y + np.sin(y) / (k + 10)
        return y
"""
ITERATION_BY_ITERATION = """
    def function(x):
        seen, y = {}, x
        for k in range(1500):
            seen[k % 4] = y = y + np.sin(y) / (k + 10)
        return y + seen[1]
"""
ASKING = """
    def function(x):
        iterations = 0
        while np.sum(x) > 1e-3:
            x = x * 0.75
            iterations += 1
        return x, iterations
"""
WIDENED = """
    def function(x):
        low, high, flag = 0, 100, False
        while high - low > 1:
            middle = (low + high) // 2
            if x[0] * middle < 7.0:
                low, flag = middle, True
            else:
                high = middle
        return x * low if flag else x
"""
HISTORY = """
    def function(x):
        seen = [x]
        while np.sum(x * x) > 1e-2:
            x = x * 0.8
            seen.append(x)
        return np.stack(seen)
"""
PARTS = """
    def function(x):
        seen = []
        while np.sum(x * x) > 1e-2:
            x = x * 0.8
            seen.append((x, np.sum(x)))
        return seen[-1][0] + seen[0][1]
"""
TABLE = """
    factors = tuple([0.5 + 0.01 * k for k in range(40)])
    def function(x):
        steps = [np.cos(x * factor) for factor in factors]
        k = 0
        while k < 40 and np.sum(x) < 30.0:
            x = x + steps[k]
            k = k + 1
        return x
"""
INNER = """
    def outer(rate):
        def decay(x, n):
            for k in range(n):
                x = x - rate * np.tanh(x) / (k + 1)
            return x
        return decay
    def function(x):
        def settled(x):
            while np.max(x) > 0.1:
                x = 0.5 * x
            return x
        return outer(0.5)(x, 1500) + settled(x)
"""
SCALARS = """
    def function(x):
        best, at = x[0], np.int64(0)
        for k in range(1, 3):
            if x[k] > best:
                best, at = x[k], np.int64(k)
        while at < 20 and best > 0.0:
            best, at = best - 0.25, at + 1
        return best, at
"""
CASES = {
    "folded": same(FOLDED),
    "iteration_by_iteration": same(ITERATION_BY_ITERATION),
    "asking": same(ASKING),
    "widened": same(WIDENED),
    "history": same(HISTORY),
    "history_of_parts": same(PARTS),
    "table": same(TABLE),
    "inner_functions": same(INNER),
    "scalars": same(SCALARS),
    "folded_otherwise": changed(FOLDED, "np.sin(y)", "np.cos(y)"),
    "more_turns": changed(FOLDED, "2000", "2001"),
    "asking_for_more": changed(ASKING, "1e-3", "1e-4"),
    "another_inner_function": changed(INNER, "x = 0.5 * x", "x = 0.25 * x"),
    "another_table": changed(TABLE, "0.01 * k", "0.02 * k"),
    "other_values": Case(ASKING, ASKING + "    arguments = (np.array([5.0, 9.0, 7.0]),)\n", 0),
}
both = both_ways(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_trace_with_loops_is_used_again_just_where_nothing_has_changed(both: Any, name: str) -> None:
    check(both[name], CASES[name])
