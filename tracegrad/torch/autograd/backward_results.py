"""What a `backward` of a user's may return: as many cotangents as inputs, each fitting its input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.errors import located
from tracegrad.ops import Carrier
from tracegrad.ops.shape.linear import full
from tracegrad.torch.tape.recording.node import Spec
from tracegrad.torch.tape.recording.op_node import summed_to

__all__ = ["Inputs", "zeros"]


def zeros(spec: Any) -> Any:
    """The cotangent 0 of a value: an ndarray, or a value of the trace under way."""
    return full(shape=spec.shape, value=0.0 if spec.dtype.kind in "fc" else 0, dtype=spec.dtype.name)


class Inputs(NamedTuple):
    """The arguments of a call: how many there are; the positions of those that a derivative may be taken with respect
    to, and their specs; the positions of those that are no arrays. With `numbers`, as NumPy has it, a Python number
    will do for a cotangent without axes, and counts as an array."""

    number: int
    places: Sequence[int]
    specs: Sequence[Spec]
    others: Sequence[int]
    numbers: bool

    @classmethod
    def of(cls, args: Sequence[Any], places: Sequence[int], numbers: bool) -> Inputs:
        """Those of a call with `args`."""
        arrays = (Carrier, np.ndarray, np.generic, float) if numbers else (Carrier, np.ndarray, np.generic)
        others = [k for k, x in enumerate(args) if not isinstance(x, arrays)]
        return cls(len(args), places, [Spec(args[k].shape, args[k].dtype) for k in places], others, numbers)

    def cotangents(self, name: str, result: Any, wanted: Sequence[Any]) -> list[Any]:
        """The cotangents of the arrays, out of what the backward pass `name` returned: summed and converted to the
        shape and dtype of each, and None where `wanted` is false.

        RuntimeError for a wrong number, for something that is not an array, for one of an argument that is no array,
        and for a shape that the argument's cannot be broadcast to.
        """
        given = result if isinstance(result, tuple) else (result,)
        if len(given) > self.number and all(x is None for x in given[self.number :]):
            given = given[: self.number]
        if len(given) != self.number:
            raise RuntimeError(
                located(
                    f"function {name} returned an incorrect number of gradients (expected {self.number}, "
                    f"got {len(given)})"
                )
            )
        for k, x in enumerate(given):
            if x is not None and k in self.others:
                raise RuntimeError(
                    located(
                        f"function {name} returned a gradient different than None at position {k + 1}, but the "
                        "corresponding forward input was not a Variable"
                    )
                )
        return [self._fitted(name, i, given[k]) if wanted[i] else None for i, k in enumerate(self.places)]

    def _fitted(self, name: str, i: int, x: Any) -> Any:
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
        return summed_to(x, spec)


def _expandable(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array of `shape` can be broadcast to the shape `to`."""
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(to)))
