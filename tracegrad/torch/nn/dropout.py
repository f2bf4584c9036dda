"""Dropout modules: random at each call in training, the identity in evaluation."""

from __future__ import annotations

from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.nn.function_module import FunctionModule
from tracegrad.typing import Array

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(FunctionModule):
    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return self._function(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd, function=F.dropout):
    """Elements set to 0 with probability `p` in training; the others are multiplied by 1 / (1 - p).

    >>> import tracegrad as tg
    >>> Dropout().eval()(tg.ones(3))
    tensor([1., 1., 1.])
    """


class Dropout1d(_DropoutNd, function=F.dropout1d):
    """Channels set to 0 with probability `p` in training; the others are multiplied by 1 / (1 - p).

    >>> import tracegrad as tg
    >>> Dropout1d()(tg.ones(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """


class Dropout2d(_DropoutNd, function=F.dropout2d):
    """Channels set to 0 with probability `p` in training; the others are multiplied by 1 / (1 - p).

    >>> import tracegrad as tg
    >>> Dropout2d()(tg.ones(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """


class Dropout3d(_DropoutNd, function=F.dropout3d):
    """Channels set to 0 with probability `p` in training; the others are multiplied by 1 / (1 - p).

    >>> import tracegrad as tg
    >>> Dropout3d()(tg.ones(2, 3, 4, 4, 4)).shape
    torch.Size([2, 3, 4, 4, 4])
    """


class AlphaDropout(_DropoutNd, function=F.alpha_dropout):
    """`alpha_dropout`: random elements at the lower limit of SELU, with the mean and variance of the input.

    >>> AlphaDropout().eval()(1.5)
    1.5
    """


class FeatureAlphaDropout(_DropoutNd, function=F.feature_alpha_dropout):
    """`alpha_dropout` of whole channels.

    >>> FeatureAlphaDropout().eval()(1.5)
    1.5
    """
