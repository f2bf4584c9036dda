"""What a call has done before it raises is done: as plain Python leaves the world, so do traced calls and gradients.

Each effect stands before each error, in a function that is called three times, traced, differentiated, and
differentiated without jit. The truth is the same function called plainly.
"""

from __future__ import annotations

import contextlib
import io
import random
import textwrap
import warnings
from typing import Any

import numpy as np
import pytest
from meaning import seen, tell_apart

import tracegrad as tg

Array = Any
WORLD = """
class Guarded:
    def __init__(self):
        self.n = 0
    def __getattribute__(self, name):
        return object.__getattribute__(self, name)
class Plain:
    gain = 1.0
made = np.random.default_rng(2)
old = np.random.RandomState(3)
own = random.Random(5)
draw = own.random
guarded, plain, table, rows, latest = Guarded(), Plain(), {}, [], 0
def state():
    numbers = plain.__dict__, Plain.gain, guarded.n, table, rows, latest
    return made.bit_generator.state, old.get_state(), own.getstate(), random.getstate(), np.random.get_state(), numbers
"""
EFFECTS = {
    "a generator": "made.uniform()",
    "an old generator": "old.normal()",
    "NumPy's generator": "np.random.uniform()",
    "an attribute": "plain.value = x * 2",
    "an attribute of a class": "Plain.gain += 1",
    "an object whose attributes are its own": "guarded.n += 1",
    "containers": "rows.append(x)\ntable['last'] = (x[0], [x])",
    "a name": "global latest\nlatest = x",
    "the argument": "x[0] = 5.0",
    "a text": "print(len(rows), 'printed')",
}
ERRORS = {
    "broadcasting": "return x + np.ones(2)",
    "a shape": "return x.reshape(2, 2)",
    "an index": "return x[7]",
    "a matrix": "return np.linalg.inv(np.zeros((2, 2)) * x[0])",
    "an attribute": "return x.missing",
    "a key": "return {}['missing']",
    "a statement": "raise ValueError(3)",
}


def _calls(effect: str, error: str, way: str) -> list[Any]:
    """What can be seen of three calls."""
    space: dict[str, Any] = {"np": np, "random": random}
    text = WORLD + "def f(x):\n" + textwrap.indent(f"{effect}\n{error}\n", "    ")
    exec(compile(text, "/home/user/raising.py", "exec"), space)
    f = space["f"]
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    call = f if way == "plain" else tg.trace(f) if way == "traced" else tg.grad(lambda x: np.sum(f(x)))
    results = []
    for k in range(3):
        x, out, raised = np.arange(3.0) + k, io.StringIO(), None
        with contextlib.redirect_stdout(out), tg.disable_jit() if way == "eager" else contextlib.nullcontext():
            try:
                call(x)
            except Exception as e:
                raised = next(c for c in type(e).__mro__ if not c.__module__.startswith("tracegrad")).__name__
        results.append(seen([raised, x, out.getvalue(), space["state"]()]))
    return results


@pytest.mark.parametrize("effect", EFFECTS)
def test_what_is_done_before_an_error_is_done(effect: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for what, error in ERRORS.items():
            plain = _calls(EFFECTS[effect], error, "plain")
            for way in ("traced", "grad", "eager"):
                tell_apart(plain, _calls(EFFECTS[effect], error, way), f"{what}, {way}")


@pytest.mark.parametrize("drawn", ["random.random()", "draw()", "own.random()"])
@pytest.mark.parametrize("error", ERRORS)
def test_pythons_generators_are_left_where_python_leaves_them_by_a_gradient_without_jit(drawn: str, error: str) -> None:
    effect = f"rows.append({drawn})"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tell_apart(_calls(effect, ERRORS[error], "plain"), _calls(effect, ERRORS[error], "eager"), drawn)


def test_a_gradient_without_jit_draws_from_the_generator_whose_method_it_was_given() -> None:
    def loss(x: Array) -> Any:
        return np.sum(x) * draw()

    draw = random.Random(5).random
    with tg.disable_jit():
        derivatives = [float(tg.grad(loss)(np.ones(2))[0]) for _ in range(2)]
    expected = random.Random(5)
    assert derivatives == [expected.random(), expected.random()]
