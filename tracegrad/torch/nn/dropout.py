"""Dropout modules: random at each call in training, the identity in evaluation."""

from __future__ import annotations

from typing import Any

from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.nn.module import Module

__all__ = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d"]


class _DropoutNd(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Elements set to 0 with probability `p` in training; the others are multiplied by 1 / (1 - p).

    >>> import tracegrad as tg
    >>> Dropout().eval()(tg.ones(3))
    tensor([1., 1., 1.])
    """

    def forward(self, input: Any) -> Any:
        """Return the output, in the shape of the input."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Channels set to 0 with probability `p` in training; the others are multiplied by 1 / (1 - p).

    >>> import tracegrad as tg
    >>> Dropout1d()(tg.ones(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """

    def forward(self, input: Any) -> Any:
        """Return the output, in the shape of the input."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Channels set to 0 with probability `p` in training; the others are multiplied by 1 / (1 - p).

    >>> import tracegrad as tg
    >>> Dropout2d()(tg.ones(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    def forward(self, input: Any) -> Any:
        """Return the output, in the shape of the input."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Channels set to 0 with probability `p` in training; the others are multiplied by 1 / (1 - p).

    >>> import tracegrad as tg
    >>> Dropout3d()(tg.ones(2, 3, 4, 4, 4)).shape
    torch.Size([2, 3, 4, 4, 4])
    """

    def forward(self, input: Any) -> Any:
        """Return the output, in the shape of the input."""
        return F.dropout3d(input, self.p, self.training, self.inplace)
