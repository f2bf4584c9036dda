"""Check the result of a user's `backward`: one cotangent for each input, with the input's shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.errors import located
from tracegrad.ops import Carrier
from tracegrad.ops.shape.linear import full
from tracegrad.torch.tape.recording.node import Spec
from tracegrad.torch.tape.recording.op_node import summed_to
from tracegrad.typing import Array

__all__ = ["Inputs", "zeros"]


def zeros(spec: Any) -> Array:
    """Return the cotangent 0 of a value: an ndarray, or a value of the active trace."""
    return full(shape=spec.shape, value=0.0 if spec.dtype.kind in "fc" else 0, dtype=spec.dtype.name)


class Inputs(NamedTuple):
    """Arguments of a call: their number, positions and specs of those with an edge, and positions of non-arrays.

    With `numbers`, for NumPy code, a Python float counts as an array, and a Python number as a cotangent without axes.
    """

    number: int
    positions: Sequence[int]
    specs: Sequence[Spec]
    others: Sequence[int]
    numbers: bool

    @classmethod
    def of(cls, args: Sequence[Any], positions: Sequence[int], numbers: bool) -> Inputs:
        """Make the record of a call's arguments `args`."""
        arrays = (Carrier, np.ndarray, np.generic, float) if numbers else (Carrier, np.ndarray, np.generic)
        others = [k for k, x in enumerate(args) if not isinstance(x, arrays)]
        return cls(len(args), positions, [Spec(args[k].shape, args[k].dtype) for k in positions], others, numbers)

    def cotangents(self, name: str, result: object, wanted: Sequence[object]) -> list[Any]:
        """Extract the arrays' cotangents from the result of the backward pass `name`; None where `wanted` is false.

        They are summed and converted to the shape and dtype of each array.

        RuntimeError for a wrong number, for an object that is not an array, for a cotangent of a non-array, and for a
        shape that the argument's shape does not broadcast to.
        """
        args = result if isinstance(result, tuple) else (result,)
        if len(args) > self.number and all(x is None for x in args[self.number :]):
            args = args[: self.number]
        if len(args) != self.number:
            raise RuntimeError(
                located(
                    f"function {name} returned an incorrect number of gradients (expected {self.number}, "
                    f"got {len(args)})"
                )
            )
        for k, x in enumerate(args):
            if x is not None and k in self.others:
                raise RuntimeError(
                    located(
                        f"function {name} returned a gradient different than None at position {k + 1}, but the "
                        "corresponding forward input was not a Variable"
                    )
                )
        return [self._fitted(name, i, args[k]) if wanted[i] else None for i, k in enumerate(self.positions)]

    def _fitted(self, name: str, i: int, x: Any) -> Array | None:
        if x is None:
            return None
        if not isinstance(x, Carrier | np.ndarray | np.generic):
            if not self.numbers or type(x) not in (int, float, bool):
                raise RuntimeError(located(f"expected Variable or None (got {type(x).__name__})"))
            x = np.asarray(x)
        spec = self.specs[i]
        if x.shape != spec.shape and not _expandable(spec.shape, x.shape):
            raise RuntimeError(
                located(
                    f"Function {name} returned an invalid gradient at index {i} - got {list(x.shape)} but expected "
                    f"shape compatible with {list(spec.shape)}"
                )
            )
        result: Array = summed_to(x, spec)
        return result


def _expandable(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array of `shape` can be broadcast to the shape `to`."""
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(to)))
