"""Normalization modules: over the last dimensions, over channels of a batch, and over groups of channels."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.nn.init import ones_, zeros_
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.parameter import Parameter
from tracegrad.torch.tape.tensors.factories import empty, tensor
from tracegrad.typing import Array, DTypeLike, Sizes

if TYPE_CHECKING:
    from tracegrad.typing import DeviceLike


__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LocalResponseNorm",
    "RMSNorm",
]


def _scale_and_shift(
    module: Module, shape: Sizes, affine: bool, bias: bool, device: DeviceLike, dtype: DTypeLike
) -> None:
    """Register the parameters `weight` and `bias` of a module, or None in their place."""
    for name, wanted in (("weight", affine), ("bias", affine and bias)):
        module.register_parameter(name, Parameter(empty(shape, device=device, dtype=dtype)) if wanted else None)


def _begin(module: Module) -> None:
    """Fill the weight with ones and the bias with zeros."""
    if module.weight is not None:
        ones_(module.weight)
    if module.bias is not None:
        zeros_(module.bias)


# -- over the last dimensions ----------------------------------------------------------------------------------------
def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(normalized_shape, Sequence):
        return tuple(map(operator.index, normalized_shape))
    return (operator.index(normalized_shape),)


class LayerNorm(Module):
    """The last dimensions normalized to mean 0 and variance 1; then times `weight`, plus `bias`.

    Source: Ba et al. 2016.

    >>> import tracegrad as tg
    >>> LayerNorm(2, eps=0.0)(tg.tensor([[1.0, 3.0]])).detach()
    tensor([[-1.,  1.]])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = _shape(normalized_shape), eps, elementwise_affine
        _scale_and_shift(self, self.normalized_shape, elementwise_affine, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the parameters to their initial values."""
        _begin(self)

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """The input divided by the root mean square over the last dimensions; then times `weight`.

    Source: Zhang and Sennrich 2019. The default of `eps` is the distance of 1 to the next number.

    >>> import tracegrad as tg
    >>> RMSNorm(2)(tg.tensor([[3.0, 3.0]])).detach()
    tensor([[1., 1.]])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = _shape(normalized_shape), eps, elementwise_affine
        weight = Parameter(empty(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the parameter to its initial value."""
        if self.weight is not None:
            ones_(self.weight)

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


# -- over groups of channels ------------------------------------------------------------------------------------------
class GroupNorm(Module):
    """Groups of channels normalized to mean 0 and variance 1; then times `weight`, plus `bias`.

    Source: Wu and He 2018. ValueError if the groups do not divide the channels.

    >>> import tracegrad as tg
    >>> GroupNorm(2, 4)(tg.ones(3, 4, 5)).shape
    torch.Size([3, 4, 5])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
        *,
        bias: bool = True,
    ):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(
                f"num_channels must be divisible by num_groups, got num_channels={num_channels}, "
                f"num_groups={num_groups}"
            )
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        _scale_and_shift(self, num_channels, affine, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the parameters to their initial values."""
        _begin(self)

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Each channel divided by (k + alpha * m)**beta, where m is the mean square of neighbouring channels.

    Source: Krizhevsky et al. 2012.

    >>> import tracegrad as tg
    >>> LocalResponseNorm(2)(tg.ones(1, 3, 4)).shape
    torch.Size([1, 3, 4])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


# -- over channels ----------------------------------------------------------------------------------------------------
class _Channels(Module):
    """Normalization of each channel, with running statistics as buffers unless `track_running_stats` is false."""

    _ranks: tuple[int, ...]
    _added_later = frozenset({"num_batches_tracked"})

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: DeviceLike,
        dtype: DTypeLike,
        bias: bool,
    ):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        _scale_and_shift(self, num_features, affine, bias, device, dtype)
        for name in ("running_mean", "running_var"):
            self.register_buffer(name, empty(num_features, dtype=dtype) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", tensor(0) if track_running_stats else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Reset the running statistics to their initial values."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Reset the parameters and the running statistics to their initial values."""
        self.reset_running_stats()
        _begin(self)

    def _check(self, input: Array) -> None:
        if len(input.shape) not in self._ranks:
            ranks = " or ".join(f"{n}D" for n in self._ranks)
            raise ValueError(f"expected {ranks} input (got {len(input.shape)}D input)")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Channels):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Array) -> Array:
        """Compute the output, in the shape of the input; update the running statistics in training."""
        self._check(input)
        share: Any = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the mean of all batches
                share = 1.0 / self.num_batches_tracked
        used = not self.training or self.track_running_stats
        mean, var = (self.running_mean, self.running_var) if used else (None, None)
        by_batch = self.training or self.running_mean is None
        return F.batch_norm(input, mean, var, self.weight, self.bias, by_batch, share, self.eps)


class BatchNorm1d(_BatchNorm):
    """Channels normalized to mean 0 and variance 1; then times `weight`, plus `bias`.

    Source: Ioffe and Szegedy 2015. In training the statistics are those of the batch, and the running statistics move
    towards them by the share `momentum`; if that is None, they are the mean of all batches. Otherwise the running
    statistics are used. ValueError for another number of dimensions, and in training for one value per channel.

    >>> import tracegrad as tg
    >>> norm = BatchNorm1d(1, eps=0.0)
    >>> norm(tg.tensor([[1.0], [3.0]])).detach()
    tensor([[-1.],
            [ 1.]])
    >>> norm.running_mean
    tensor([0.2000])
    """

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """`BatchNorm1d` for images.

    >>> import tracegrad as tg
    >>> BatchNorm2d(3)(tg.randn(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """`BatchNorm1d` for volumes.

    >>> import tracegrad as tg
    >>> BatchNorm3d(3)(tg.randn(2, 3, 4, 4, 4)).shape
    torch.Size([2, 3, 4, 4, 4])
    """

    _ranks = (5,)


class _InstanceNorm(_Channels):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Array) -> Array:
        """Compute the output, in the shape of the input; update running statistics, if any, in training."""
        self._check(input)
        unbatched = len(input.shape) == self._ranks[0]
        by_input = self.training or not self.track_running_stats
        result = F.instance_norm(
            input[None] if unbatched else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            by_input,
            self.momentum or 0.0,
            self.eps,
        )
        return result[0] if unbatched else result


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each example normalized to mean 0 and variance 1; with `affine` times `weight`, plus `bias`.

    Source: Ulyanov et al. 2016.

    >>> import tracegrad as tg
    >>> InstanceNorm1d(1, eps=0.0)(tg.tensor([[1.0, 3.0]]))
    tensor([[-1.,  1.]])
    """

    _ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """`InstanceNorm1d` for images.

    >>> import tracegrad as tg
    >>> InstanceNorm2d(3)(tg.randn(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    _ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """`InstanceNorm1d` for volumes.

    >>> import tracegrad as tg
    >>> InstanceNorm3d(3)(tg.randn(2, 3, 4, 4, 4)).shape
    torch.Size([2, 3, 4, 4, 4])
    """

    _ranks = (4, 5)
