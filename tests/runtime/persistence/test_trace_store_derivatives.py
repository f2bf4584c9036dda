"""Traces on disk of what `vjp`, `jvp`, `linearize` and `hvp` trace: a function, and the program of its derivative."""

from __future__ import annotations

from typing import Any

import pytest
from remembered import Case, both_ways, check, same

# How often anything was traced.
COUNTED = """
    from tracegrad.runtime.dispatch import dispatcher as dispatch
    class Count:
        traces = 0
    def counting(fun):
        def call(*args, **kwargs):
            Count.traces += 1
            return trace(*args, **kwargs)
        trace = dispatch.trace_call
        def counted(*args):
            dispatch.trace_call = call
            try:
                return fun(*args)
            finally:
                dispatch.trace_call = trace
        counted.cache_info = lambda: Count
        return counted
"""
VJP = (
    COUNTED
    + """
    import tracegrad as tg
    rate = 2.0
    def outer(p):
        return {"y": np.sin(p["x"]) * p["k"] * rate, "n": np.sum(p["x"])}
    def both(x, ct):
        out, pull = tg.vjp(outer, {"x": x, "k": 3.0})
        found, = pull({"y": ct, "n": 1.0})
        again, = pull({"y": ct * 2.0, "n": 0.5})
        return out, found, again["x"]
    arguments = (np.array([0.25, 0.5, 1.5]), np.array([1.0, 2.0, 3.0]))
    def make(tg):
        return counting(both)
    def function(x, ct):
        def pulled(ct, n):
            return {"x": np.cos(x) * 3.0 * rate * ct + n, "k": np.sum(np.sin(x) * rate * ct)}
        return {"y": np.sin(x) * 3.0 * rate, "n": np.sum(x)}, pulled(ct, 1.0), pulled(ct * 2.0, 0.5)["x"]
"""
)
LINEAR = (
    COUNTED
    + """
    import dataclasses
    import tracegrad as tg
    @dataclasses.dataclass
    class Point:
        x: object
        k: object
    def outer(p):
        return Point(np.sin(p.x) * p.k, p.x * 2.0), "aux"
    def moved(x, t):
        out, push, aux = tg.linearize(outer, Point(x, x + 1.0), has_aux=True)
        first, again = push(Point(t, t)), push(Point(2.0 * t, 0.0 * t))
        return out.x, out.k, aux, first.x, first.k, again.x
    arguments = (np.array([0.25, 0.5, 1.5]), np.array([1.0, 2.0, 3.0]))
    def make(tg):
        return counting(moved)
    def function(x, t):
        slope = np.cos(x) * (x + 1.0)
        return np.sin(x) * (x + 1.0), x * 2.0, "aux", slope * t + np.sin(x) * t, 2.0 * t, slope * 2.0 * t
"""
)
FORWARD = (
    COUNTED
    + """
    import tracegrad as tg
    def wave(x):
        return np.sin(x) * x
    def total(x):
        return np.sum(wave(x))
    def all(x, t):
        return (*tg.jvp(wave, (x,), (t,)), tg.hvp(total, (x,), (t,)))
    arguments = (np.array([0.25, 0.5, 1.5]), np.array([1.0, 2.0, 3.0]))
    def make(tg):
        return counting(all)
    def function(x, t):
        return wave(x), (np.cos(x) * x + np.sin(x)) * t, (2.0 * np.cos(x) - np.sin(x) * x) * t
"""
)
CASES = {
    "vjp": same(VJP),
    "vjp_function": Case(
        VJP, VJP.replace("np.sin(p", "np.sinh(p").replace("np.cos", "np.cosh").replace("np.sin(x)", "np.sinh(x)"), 2
    ),
    "vjp_number": Case(VJP, VJP.replace("rate = 2.0", "rate = 2.5"), 2),
    "vjp_structure": Case(
        VJP,
        VJP.replace('"n": np.sum', '"m": np.sum')
        .replace(', "n": 1.0', ', "m": 1.0')
        .replace(', "n": 0.5', ', "m": 0.5'),
        2,
    ),
    "vjp_shape": Case(VJP, VJP.replace("1.5])", "1.5, 1.0])").replace("2.0, 3.0])", "2.0, 3.0, 4.0])"), 2),
    "vjp_cotangent_elements": Case(VJP, VJP.replace("2.0, 3.0])", "2.0, 5.0])"), 0),
    "linearize": same(LINEAR),
    "linearize_function": Case(
        LINEAR,
        LINEAR.replace("p.x * 2.0", "p.x * 3.0")
        .replace("x * 2.0,", "x * 3.0,")
        .replace("2.0 * t, slope", "3.0 * t, slope"),
        2,
    ),
    "linearize_class": Case(LINEAR, LINEAR.replace("k: object\n", "k: object\n        j: object = None\n"), 2),
    "linearize_aux": Case(
        LINEAR,
        LINEAR.replace('"aux"\n    def moved', '"other"\n    def moved').replace('x * 2.0, "aux"', 'x * 2.0, "other"'),
        1,
    ),
    "forward": same(FORWARD),
    "forward_function": Case(
        FORWARD,
        FORWARD.replace("np.sin", "np.sinh")
        .replace("np.cos", "np.cosh")
        .replace("np.cosh(x) - np.sinh(x)", "np.cosh(x) + np.sinh(x)"),
        2,
    ),
}

both = both_ways(CASES)


@pytest.mark.parametrize("name", CASES)
def test_both_programs_are_used_again_just_where_nothing_has_changed(both: Any, name: str) -> None:
    check(both[name], CASES[name])
