"""Backend for einops: after this import, `rearrange`, `reduce`, `repeat`, `einsum` and `pack` take Tensors.

>>> import tracegrad.compat.einops  # doctest: +SKIP
>>> einops.rearrange(x, "b (h w) -> b h w", h=2)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from tracegrad.torch.exports import NAMES
from tracegrad.torch.tape import Tensor

try:
    from einops._backends import AbstractBackend
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("tracegrad.compat.einops needs einops: pip install einops") from error

__all__ = ["TensorBackend"]


class TensorBackend(AbstractBackend):  # type: ignore[misc, unused-ignore]
    """Backend of einops for Tensors; einops finds this class as a subclass of its own."""

    framework_name = "tracegrad"

    def is_appropriate_type(self, tensor: object) -> bool:
        """Whether a value is a Tensor."""
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: object) -> Any:
        """Return a Tensor with the values of an ndarray."""
        return NAMES["tensor"](x)

    def to_numpy(self, x: Any) -> Any:
        """Return the values as an ndarray."""
        return x.detach().numpy()

    def arange(self, start: int, stop: int) -> Any:
        """Return the integers from `start` to `stop`."""
        return NAMES["arange"](start, stop)

    def transpose(self, x: Any, axes: Any) -> Any:
        """Permute the dimensions."""
        return x.permute(axes)

    def reduce(self, x: Any, operation: str, axes: Any) -> Any:
        """Reduce some dimensions by sum, product, mean, extremum, any or all."""
        if operation in ("min", "max"):
            return getattr(x, f"a{operation}")(dim=axes)
        if operation in ("sum", "mean"):
            return getattr(x, operation)(dim=axes)
        for axis in sorted(axes, reverse=True):
            x = getattr(x, operation)(dim=axis)
        return x

    def stack_on_zeroth_dimension(self, tensors: Any) -> Any:
        """Stack Tensors along a new first dimension."""
        return NAMES["stack"](tuple(tensors))

    def add_axis(self, x: Any, new_position: int) -> Any:
        """Insert a dimension of size 1."""
        return x.unsqueeze(new_position)

    def add_axes(self, x: Any, n_axes: int, pos2len: dict[int, int]) -> Any:
        """Insert dimensions of these sizes, along which the values repeat."""
        sizes = [-1] * n_axes
        for position, size in pos2len.items():
            x = x.unsqueeze(position)
            sizes[position] = size
        return x.expand(*sizes)

    def tile(self, x: Any, repeats: Any) -> Any:
        """Repeat the values along each dimension."""
        return x.repeat(*repeats)

    def concat(self, tensors: Any, axis: int) -> Any:
        """Concatenate Tensors along a dimension."""
        return NAMES["cat"](tuple(tensors), dim=axis)

    def is_float_type(self, x: Any) -> bool:
        """Whether a mean can be taken."""
        return bool(x.dtype.kind == "f")

    def einsum(self, pattern: str, *x: Any) -> Any:
        """Sum products."""
        return NAMES["einsum"](pattern, *x)
