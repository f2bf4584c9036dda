"""Containers among the arguments that have another name: one object, as in Python, or refused by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from meaning import program

import tracegrad as tg
from tracegrad.errors import UnsupportedError


@dataclasses.dataclass
class Box:
    w: Any
    n: float = 0.0


@program
def test_an_argument_that_is_compared_with_a_default(trace):
    defaults = {"w": np.ones(2)}

    @trace
    def f(x, options=defaults):
        return x * options["w"] * (2.0 if options is defaults else 3.0)

    for options in (defaults, dict(defaults), defaults, {"w": np.zeros(2)}):
        yield f(1.5), f(1.5, options), f(1.5, options=options)


@program
def test_objects_and_lists_that_are_compared_by_identity(trace):
    box, row = Box(np.ones(2)), [np.ones(2)]

    @trace
    def f(a, b, c):
        return a.w.sum() * (2.0 if a is box else 3.0), (a is b, c is row, c[0] is row[0])

    other = Box(np.ones(2))
    for a, b, c in ((box, box, row), (other, box, [row[0]]), (other, other, row), (box, other, row), (box, box, row)):
        yield f(a, b, c)


@program
def test_what_is_written_by_one_name_is_read_by_the_other(trace):
    state = {"w": np.ones(2), "n": 0}

    @trace
    def f(p, q, x):
        p["w"] = p["w"] + x
        state["n"] = state["n"] + 1
        q["seen"] = (p is q, p is state)
        return state["w"] * q["w"], p["n"], q["n"]

    for p, q in (
        (state, state),
        (dict(state), state),
        (state, dict(state)),
        (dict(state), dict(state)),
        (state, state),
    ):
        yield f(p, q, 0.5), p, q, state


@pytest.mark.filterwarnings("ignore:.*containers are compared by identity:tracegrad.PerformanceWarning")
@program
def test_a_container_that_is_part_of_two_arguments(trace):
    box = Box(np.ones(2))

    @trace
    def f(a, b):
        return a[0].w * b["box"].w, a[0] is b["box"]

    for other in (box, Box(np.zeros(2)), box):
        yield f([box], {"box": other})


@program
def test_ids_of_containers_are_those_of_python(trace):
    first, second = {"w": np.ones(2)}, {"w": np.zeros(2)}
    gains = {id(first): 2.0, id(second): 3.0}

    @trace
    def f(p, x):
        return x * gains.get(id(p), 5.0), x * gains[id(first)], id(p) == id(first)

    for p in (first, second, first, second):
        yield f(p, 1.5)


def _is_default(p: Any) -> Any:
    return p["w"].sum() * (2.0 if p is DEFAULTS else 3.0)


def _has_id(p: Any) -> Any:
    return p["w"].sum() * GAINS.get(id(p), 3.0)


DEFAULTS = {"w": np.ones(2)}
GAINS = {id(DEFAULTS): 2.0}


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("f", [_is_default, _has_id])
def test_derivatives_in_a_container_that_is_compared_by_identity_are_refused_by_name(f: Any, jit: bool) -> None:
    wrapped = (lambda g: g) if jit else tg.disable_jit()
    for call in (lambda: wrapped(tg.grad(f))(DEFAULTS), lambda: wrapped(tg.jvp)(f, (DEFAULTS,), (DEFAULTS,))):
        with pytest.raises(UnsupportedError, match=r"a dict that is differentiated.*identity|id\(\) of a dict"):
            call()
    other = {"w": np.ones(2)}
    if f is _is_default:
        np.testing.assert_array_equal(wrapped(tg.grad(f))(other)["w"], np.full(2, 3.0))


def test_a_derivative_in_another_argument_compares_as_python_does() -> None:
    def f(x: Any, p: Any) -> Any:
        return (x * p["w"]).sum() * (2.0 if p is DEFAULTS else 3.0)

    for p, gain in ((DEFAULTS, 2.0), (dict(DEFAULTS), 3.0), (DEFAULTS, 2.0)):
        np.testing.assert_array_equal(tg.grad(f)(np.ones(2), p), np.full(2, gain))
        np.testing.assert_array_equal(tg.disable_jit()(tg.grad(f))(np.ones(2), p), np.full(2, gain))
