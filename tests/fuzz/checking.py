"""Runs a program plainly, traced (op by op, or compiled) and eagerly, and compares values and derivatives."""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import nullcontext
from typing import Any

import numpy as np
from random_programs import interpreted

import tracegrad as tg
from fuzz.writer import Program
from tracegrad.errors import UnsupportedError

__all__ = ["Mismatch", "check"]

Array = Any
STEP = 1e-6


class Mismatch(AssertionError):
    """What differs, and where."""


def _same(what: str, found: Any, wanted: Any, loose: float) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        told = f"{found.dtype}{found.shape} instead of {wanted.dtype}{wanted.shape}"
        raise Mismatch(f"{what}: {told}")
    _close(what, found, wanted, loose)


def _close(what: str, found: Any, wanted: Any, loose: float) -> None:
    if np.asarray(wanted).dtype.kind not in "fc":
        loose = 0.0
    size = np.max(np.abs(wanted), initial=1.0, where=np.isfinite(wanted)) if loose else 0.0
    try:
        np.testing.assert_allclose(found, wanted, rtol=loose, atol=loose * float(size))
    except AssertionError as error:
        raise Mismatch(f"{what}: {str(error).strip()[:400]}") from None


def _waves(like: Array, iteration: float, start: float) -> Array:
    """Numbers in the shape of an array, complex ones if it is complex."""
    iterations = (np.arange(float(like.size)) * iteration + start).reshape(like.shape)
    return np.cos(iterations) + 1j * np.sin(0.7 * iterations) if like.dtype.kind == "c" else np.cos(iterations)


class _Losses:
    """A loss of two arguments, what is known about its values along a direction, and its derivatives in all ways."""

    def __init__(self, program: Program, results: list[Any]):
        function, self.loose = program.function(), 1e-9 if program.is_double(results) else 2e-3
        weights = {k: _waves(np.asarray(a), 1.0, k) for k, a in enumerate(results) if np.asarray(a).dtype.kind in "fc"}

        def loss(x: Array, y: Array) -> Any:
            results = function(x, y)
            return sum((np.sum(np.real(results[k] * w)) for k, w in weights.items()), 0.0)

        self.loss, self.program, self.arguments = loss, program, program.arguments()
        self.directions = tuple(_waves(x, 0.9, k).astype(x.dtype) for k, x in enumerate(self.arguments))

    def at(self, step: float) -> tuple[Array, Array]:
        result = self.program.arguments()  # in the same memory order
        for x, d in zip(result, self.directions):
            x += step * d
        return result

    def along(self, gradients: Any) -> float:
        return float(sum(np.sum(np.conj(g) * d).real for g, d in zip(gradients, self.directions)))


def _slope(f: Any, at: Any, found: str, counts: Counter[str]) -> Array | None:
    """The derivative of `f(step)` at 0 by differences, or None next to a kink, where those of both sides differ."""
    try:
        up, here, down = (np.asarray(f(at(step))) for step in (STEP, 0.0, -STEP))
        further = (np.asarray(f(at(100 * STEP))) - np.asarray(f(at(-100 * STEP)))) / (200 * STEP)
    except (ValueError, IndexError, ZeroDivisionError):
        counts[f"{found}: no differences"] += 1
        return None
    right, left, both = (up - here) / STEP, (here - down) / STEP, (up - down) / (2 * STEP)
    size = 1.0 + np.max(np.abs(both), initial=0.0) + np.max(np.abs(here), initial=0.0)
    if max(np.max(np.abs(right - left), initial=0.0), np.max(np.abs(both - further), initial=0.0)) > 1e-3 * size:
        counts[f"{found}: next to a kink"] += 1
        return None
    counts[f"{found}: compared"] += 1
    return both


def check(program: Program, compiled: bool = False, counts: Counter[str] | None = None) -> None:
    """Raise `Mismatch`, or what a call has raised, where not all ways agree; `counts` is told what was compared."""
    counts = Counter() if counts is None else counts
    with warnings.catch_warnings(), np.errstate(all="ignore"), nullcontext() if compiled else interpreted():
        warnings.simplefilter("ignore")
        wanted = program.function()(*program.arguments())
        losses = _Losses(program, wanted)
        try:
            result = tg.trace(program.function())(*program.arguments())
            _check_first(losses, counts)
            for k, (a, b) in enumerate(zip(result, wanted, strict=True)):
                _same(f"result {k}", a, b, losses.loose)
        except UnsupportedError as error:
            counts["refused"] += 1
            counts[f"refused: {str(error).splitlines()[0][:100]}"] += 1
            return
    counts["values: compared"] += 1


def _check_first(losses: _Losses, counts: Counter[str]) -> None:
    loss, arguments, loose = losses.loss, losses.arguments, losses.loose
    wanted = loss(*arguments)
    derivative = tg.value_and_grad(loss, argnums=(0, 1))
    value, gradients = derivative(*arguments)
    _close("loss", value, wanted, loose)
    eager_value, eager_gradients = tg.disable_jit()(derivative)(*arguments)
    _close("eager loss", eager_value, wanted, loose)
    for k, (a, b) in enumerate(zip(eager_gradients, gradients)):
        _close(f"eager gradient {k} against traced", a, b, 10 * loose)
    _, tangent = tg.jvp(loss, arguments, losses.directions)
    slope = losses.along(gradients)
    _close("forward against reverse", tangent, slope, 10 * loose)
    if loose > 1e-6:
        return
    differences = _slope(lambda at: loss(*at), losses.at, "first derivative", counts)
    if differences is None:
        return
    _close("gradient against differences", slope, differences, 1e-4 * (1 + abs(float(wanted))))
    gradient = tg.grad(loss, argnums=(0, 1))
    _, transposed = tg.jvp(gradient, arguments, losses.directions)
    for k in range(2):
        wanted = _slope(lambda at, k=k: gradient(*at)[k], losses.at, "second derivative", counts)
        if wanted is not None:
            _close(f"second derivative {k} against differences", transposed[k], wanted, 1e-4)
