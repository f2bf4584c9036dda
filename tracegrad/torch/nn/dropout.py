"""Dropout modules: random at each call in training, the identity in evaluation."""

from __future__ import annotations

from typing import Any

from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.nn.module import Module

__all__ = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d"]


class _Dropout(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Zero each element with probability `p` in training, and multiply the others by 1 / (1 - p).

    >>> import tracegrad as tg
    >>> Dropout().eval()(tg.ones(3))
    tensor([1., 1., 1.])
    """

    def forward(self, input: Any) -> Any:
        """Return the output, in the shape of the input."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """`Dropout` of whole channels of (N, C, L) or (C, L)."""

    def forward(self, input: Any) -> Any:
        """Return the output, in the shape of the input."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """`Dropout` of whole channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Any) -> Any:
        """Return the output, in the shape of the input."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_Dropout):
    """`Dropout` of whole channels of (N, C, D, H, W) or (C, D, H, W)."""

    def forward(self, input: Any) -> Any:
        """Return the output, in the shape of the input."""
        return F.dropout3d(input, self.p, self.training, self.inplace)
