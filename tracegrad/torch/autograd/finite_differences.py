"""Numerical derivatives by central differences, independent of the tape: the reference of `gradcheck`.

A Tensor is perturbed in place, so a function that reads it without receiving it as an argument sees the change too.

Complex numbers follow PyTorch: for a real function `L` of `z = x + iy` the gradient is `dL/dx + i dL/dy`. A complex
function is treated as two real functions, its real and its imaginary part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.typing import NDArray

__all__ = ["NumericalDerivative", "OutputsFn", "along", "columns"]

Array = NDArray
# Computes the function at the current inputs: one array for each output.
OutputsFn = Callable[[], Sequence[Array]]
ComponentFn = Callable[[Any], Any]


class NumericalDerivative:
    """Derivative of one output with respect to one input, per step along its real and, if complex, imaginary axis."""

    def __init__(self, real: Array, imaginary: Array | None):
        self.real, self.imaginary = real, imaginary

    def of(self, component: ComponentFn) -> Array:
        """Return the gradient of one part of the output, `np.real` or `np.imag`."""
        derivative: Array = component(self.real)
        return derivative if self.imaginary is None else derivative + 1j * component(self.imaginary)


def columns(compute: OutputsFn, array: Array, eps: float) -> list[NumericalDerivative]:
    """Compute, for each output, the derivatives along each element of the input, as a matrix.

    Rows are elements of the input, columns elements of the output. AssertionError if a step changes the shape or dtype
    of an output.
    """
    directions = [(array.shape, index) for index in np.ndindex(array.shape)]
    real = [_outputs(compute, array, _unit(array, index, eps), eps, index) for _, index in directions]
    imaginary = None
    if array.dtype.kind == "c":
        imaginary = [_outputs(compute, array, _unit(array, index, eps * 1j), eps, index) for _, index in directions]
    if not real:
        return [NumericalDerivative(np.zeros((0, x.size), x.dtype), None) for x in compute()]
    return [
        NumericalDerivative(np.stack(x), None if imaginary is None else np.stack(y))
        for x, y in zip(zip(*real), zip(*(imaginary or real)))
    ]


def along(compute: OutputsFn, array: Array, direction: tuple[Array, Array], eps: float) -> list[NumericalDerivative]:
    """Compute, for each output, the derivatives along the real and the imaginary part of a direction, as vectors.

    AssertionError if a step changes the shape or dtype of an output.
    """
    u, v = (d.reshape(array.shape) for d in direction)
    real = _outputs(compute, array, (u * eps).astype(array.dtype), eps, None)
    if array.dtype.kind != "c":
        return [NumericalDerivative(x, None) for x in real]
    imaginary = _outputs(compute, array, (v * (eps * 1j)).astype(array.dtype), eps, None)
    return [NumericalDerivative(x, y) for x, y in zip(real, imaginary)]


def _unit(array: Array, index: tuple[int, ...], step: object) -> Array:
    out = np.zeros_like(array)
    out[index] = step
    return out


def _outputs(compute: OutputsFn, array: Array, step: Array, eps: float, index: tuple[int, ...] | None) -> list[Array]:
    """Compute `(f(x + step) - f(x - step)) / (2 eps)` of each output, flat; `array` holds `x` before and after."""
    before = array.copy()
    try:
        array[...] = before - step
        low = compute()
        array[...] = before + step
        high = compute()
    finally:
        array[...] = before
    return [_quotient(a, b, eps, index) for a, b in zip(low, high)]


def _quotient(low: Array, high: Array, eps: float, index: tuple[int, ...] | None) -> Array:
    for what, a, b in (("shape", low.shape, high.shape), ("dtype", low.dtype, high.dtype)):
        if a != b:
            where = "" if index is None else f"on index {index} "
            raise AssertionError(
                located(
                    f"Expected `func` to return outputs with the same {what} when inputs are perturbed {where}by "
                    f"{eps}, but got: {what}s {a} and {b}."
                )
            )
    if low.dtype.kind not in "fc":
        low, high = low.astype(np.float64), high.astype(np.float64)
    with np.errstate(all="ignore"):
        quotient: Array = (high - low) / (2 * eps)
    return quotient.reshape(-1)
