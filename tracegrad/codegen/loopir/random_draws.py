"""Decide which random draws are compiled: the common ones of `np.random.default_rng()`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.ir import GraphNode
from tracegrad.ops.calls.random_streams import draw
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

_KIND = "Generator PCG64"
_MAX_ZIGGURAT_DRAWS = TUNING.routines.max_ziggurat_draws
_MAX_INTEGER_RANGE = 2**32 - 2  # maximum range of compiled integers: each is drawn from 32 random bits


@record(frozen=True)
class Native:
    """A compiled draw: `count` numbers of a distribution; integers from `low` to below `low + width`; floats scaled by
    `width` and shifted by `low`."""

    distribution: str
    count: int
    low: float = 0.0
    width: float = 1.0


def native_of(node: GraphNode) -> Native | None:
    """The compiled draw of a call, or None."""
    if node.op is not draw:
        return None
    params = dict(node.params)
    if params["kind"] != _KIND or len(node.operands[0].aval.shape) != 1:
        return None
    operands = [x for tag, x in params["args"] if tag == "is"]
    named = {name: x[1] for name, x in params["kwargs"]}
    make = _METHODS.get(params["method"])
    result = None if make is None else make(*operands, **named) if _accepts(make, operands, named) else None
    if result is None:
        return None
    count = int(np.prod(params["shape"], dtype=np.int64))
    is_float = result[0] != "integers"
    usual = params["dtype"] == ("float64" if is_float else "int64")
    is_small = count <= _MAX_ZIGGURAT_DRAWS or result[0] in ("uniform", "integers")
    scaled = is_float and result[1:] not in ((), (0.0, 1.0))
    return Native(result[0], count, *result[1:]) if usual and is_small and (not scaled or _is_plain()) else None


def _accepts(make: Callable[..., object], args: list[float | None], named: dict[str, object]) -> bool:
    names = make.__code__.co_varnames[: make.__code__.co_argcount]
    return len(args) <= len(names) and set(named) <= set(names[len(args) :])


def _standard(distribution: str) -> Callable[..., object]:
    def draw_standard(size: int | None = None, dtype: str = "float64", method: str = "zig") -> object:
        return (distribution,) if dtype in ("float64", "d", "f8") and method == "zig" else None

    return draw_standard


def _normal(loc: float = 0.0, scale: float = 1.0, size: object = None) -> object:
    return ("normal", float(loc), float(scale)) if _are_numbers(loc, scale) and scale >= 0 else None


def _uniform(low: Any = 0.0, high: Any = 1.0, size: object = None) -> object:
    return ("uniform", float(low), float(high) - float(low)) if _are_numbers(low, high) and high >= low else None


def _exponential(scale: Any = 1.0, size: object = None) -> object:
    return ("exponential", 0.0, float(scale)) if _are_numbers(scale) and scale >= 0 else None


def _integers(
    low: object, high: Any = None, size: object = None, dtype: object = "int64", endpoint: object = False
) -> object:
    if type(low) is not int or type(high) not in (int, type(None)) or dtype != "int64" or endpoint is not False:
        return None
    low, high = (0, low) if high is None else (low, high)
    return ("integers", low, high - low) if 1 < high - low <= _MAX_INTEGER_RANGE else None


def _choice(
    a: object, size: object = None, replace: object = True, p: object = None, axis: object = 0, shuffle: object = True
) -> Any:
    return _integers(a) if replace is True and p is None else None


_METHODS: dict[str, Callable[..., Any]] = {
    "random": _standard("uniform"),
    "standard_normal": _standard("normal"),
    "normal": _normal,
    "uniform": _uniform,
    "standard_exponential": _standard("exponential"),
    "exponential": _exponential,
    "integers": _integers,
    "choice": _choice,
}


def _are_numbers(*xs: Any) -> bool:
    return all(type(x) in (int, float) and abs(x) < 1e300 for x in xs)


@functools.cache
def _is_plain() -> bool:
    """Whether this build of NumPy rounds a product before the addition (no FMA contraction)."""
    ours, theirs = np.random.default_rng(1), np.random.default_rng(1)
    moved = 0.1 + 0.7 * ours.standard_normal(64)
    return bool(np.array_equal(moved, theirs.normal(0.1, 0.7, 64)))
