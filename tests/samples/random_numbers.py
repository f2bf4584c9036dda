"""Random programs of Python numbers and NumPy scalars: expressions whose values, types and exceptions are Python's."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["calls", "described", "program"]

INTEGERS = (0, 1, -1, 2, 3, -7, 10, 63, 64, 255, -128, 2**31, -(2**31), 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**70)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.7, 1e-300, 1e300, -1e18, 2.0**63, math.inf, -math.inf, math.nan, 2.675)
SCALARS = (np.float64(1.5), np.float32(-2.25), np.int64(7), np.int8(100), np.uint8(200), np.bool_(True), np.int32(-5))

_BINARY = ("+", "-", "*", "/", "//", "%", "**", "<", "<=", "==", "!=", ">", "&", "|", "^", "<<", ">>")
_UNARY = ("-{}", "+{}", "abs({})", "~{}", "not {}", "float({})", "int({})", "round({})", "round({}, 2)", "bool({})",
          "math.floor({})", "math.ceil({})", "math.trunc({})", "math.sqrt({})", "math.exp({})", "math.log({})",
          "math.sin({})", "({}).is_integer()", "({}).bit_length()", "({}).real", "({}).imag", "math.isfinite({})",
          "({}).as_integer_ratio()[0]", "({}).conjugate()", "math.isqrt(abs({}))", "math.fabs({})", "str({})",
          "'%.3f' % ({})", "int(float({}))", "float(int({}))")  # fmt: skip
_SEVERAL = (
    "max({}, {})",
    "min({}, {})",
    "divmod({}, {})[0]",
    "divmod({}, {})[1]",
    "sum([{}, {}])",
    "pow({}, {})",
    "({} if {} else 1)",
    "({} and {})",
    "({} or {})",
    "math.hypot({}, {})",
    "math.copysign({}, {})",
    "math.fmod({}, {})",
    "math.gcd({}, {})",
    "({} < {} < 5)",
    "max([{}, {}], key=abs)",
    "[{}, {}].index(1)",
    "len(range({}, {}))",
    "math.atan2({}, {})",
    "math.pow({}, {})",
    "math.isclose({}, {})",
    "{{{}: 1}}.get({}, 2)",
    "sorted([{}, {}])[0]",
    "math.prod([{}, {}])",
)


def program(seed: int) -> str:
    """An expression of the numbers `a`, `b` and `c`."""
    rng = random.Random(seed)
    return _expression(rng, rng.randint(1, 4))


def _expression(rng: random.Random, depth: int) -> str:
    if not depth or rng.random() < 0.1:
        return rng.choice(["a", "b", "c", "a", "b", str(rng.choice((0, 1, 2, 3, -1, 0.5, 10, True, 2.0, 100)))])
    kind = rng.random()
    if kind < 0.5:
        left, right = (_expression(rng, rng.randint(0, depth - 1)) for _ in range(2))
        return f"({left} {rng.choice(_BINARY)} {right})"
    if kind < 0.75:
        return f"({rng.choice(_UNARY).format(_expression(rng, depth - 1))})"
    parts = [_expression(rng, rng.randint(0, depth - 1)) for _ in range(2)]
    return rng.choice(_SEVERAL).format(*parts)


def calls(seed: int) -> Iterator[tuple[Any, ...]]:
    """Three arguments for each of some calls: of a few types, of which each comes with several values."""
    rng = random.Random(seed)
    kinds = (INTEGERS, FLOATS, (True, False), SCALARS)
    for _ in range(2):
        picked = [rng.choice((*kinds, INTEGERS, FLOATS)) for _ in range(3)]
        first = [rng.choice(values) for values in picked]
        yield tuple(first)
        for _ in range(3):
            yield tuple([x if values is SCALARS else rng.choice(values) for x, values in zip(first, picked)])


def described(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What a call gives: the type and the value, or the class of the exception."""
    try:
        return _described(f(*args))
    except Exception as error:
        return next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")


def _described(x: Any) -> Any:
    if isinstance(x, float | np.floating):
        # Compiled functions of `math` differ from those of C in the last digits.
        shown = f"{float(x):.5e}" if isinstance(x, np.float32) else f"{float(x):.11e}"
        return type(x).__name__, shown
    return type(x).__name__, repr(x)
