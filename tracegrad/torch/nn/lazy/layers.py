"""Layers that take the number of input features or channels from the first input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.torch.modes import no_grad
from tracegrad.torch.nn.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tracegrad.torch.nn.lazy.lazy_module import LazyModuleMixin
from tracegrad.torch.nn.linear import Linear
from tracegrad.torch.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from tracegrad.torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from tracegrad.torch.tape.tensors.factories import tensor

if TYPE_CHECKING:
    from tracegrad.typing import Array, DeviceLike, DTypeLike, Sizes

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


class LazyLinear(LazyModuleMixin, Linear):
    """`Linear` whose `in_features` is the size of the last dimension of the first input.

    Until then the parameters are uninitialized; afterwards the class of the module is `Linear`. An optimizer may take
    the parameters before.

    >>> import tracegrad as tg
    >>> layer = LazyLinear(2)
    >>> layer
    LazyLinear(in_features=0, out_features=2, bias=True)
    >>> layer(tg.ones(5, 3)).shape, layer
    (torch.Size([5, 2]), Linear(in_features=3, out_features=2, bias=True))
    """

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: DeviceLike = None, dtype: DTypeLike = None):
        super().__init__(0, 0, bias=False)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw the parameters anew, if they are initialized."""
        if not self.has_uninitialized_params() and self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Array) -> None:
        """Take `in_features` from the last dimension of `input`, and draw the parameters."""
        if self.has_uninitialized_params():
            with no_grad():
                self.in_features = input.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))  # type: ignore[attr-defined]
                if self.bias is not None:
                    self.bias.materialize(self.out_features)
                self.reset_parameters()
        elif not self.in_features:
            if input.shape[-1] != self.weight.shape[-1]:
                raise AssertionError(
                    located(
                        f"The in_features inferred from input: {input.shape[-1]} is not equal to in_features from "
                        f"self.weight: {self.weight.shape[-1]}"
                    )
                )
            self.in_features = input.shape[-1]


# -- convolutions ----------------------------------------------------------------------------------------------------
class _LazyConvolution(LazyModuleMixin):
    """Part of a convolution that takes `in_channels` from the first input."""

    _count: int
    in_channels: int
    out_channels: int
    groups: int
    weight: Any
    bias: Any

    def _set_parameters(self, out_channels: int, bias: bool, device: DeviceLike, dtype: DTypeLike) -> None:
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw the parameters anew, if they are initialized."""
        if not self.has_uninitialized_params() and self.in_channels:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Array, *args: object, **kwargs: object) -> None:
        """Take `in_channels` from the channels of `input`, and draw the parameters."""
        if not self.has_uninitialized_params():
            return
        rank, plain = len(input.shape), self._count + 1
        if rank not in (plain, plain + 1):
            raise RuntimeError(
                located(
                    f"Expected {plain}D (unbatched) or {plain + 1}D (batched) input to {type(self).__name__}, but got "
                    f"input of size: {input.shape}"
                )
            )
        self.in_channels = input.shape[rank - plain]
        if self.in_channels % self.groups:
            raise ValueError(located("in_channels must be divisible by groups"))
        self.weight.materialize(self._shape())
        if self.bias is not None:
            self.bias.materialize(self.out_channels)
        self.reset_parameters()


class LazyConv1d(_LazyConvolution, Conv1d):
    """`Conv1d` whose `in_channels` is the number of channels of the first input. Otherwise as `LazyLinear`.

    >>> import tracegrad as tg
    >>> layer = LazyConv1d(4, 2)
    >>> layer(tg.ones(1, 3, 3)).shape, layer.in_channels
    (torch.Size([1, 4, 2]), 3)
    """

    cls_to_become = Conv1d

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._set_parameters(out_channels, bias, device, dtype)


class LazyConv2d(_LazyConvolution, Conv2d):
    """`Conv2d` whose `in_channels` is the number of channels of the first input. Otherwise as `LazyLinear`.

    >>> import tracegrad as tg
    >>> layer = LazyConv2d(4, 2)
    >>> layer(tg.ones(1, 3, 3, 3)).shape, layer.in_channels
    (torch.Size([1, 4, 2, 2]), 3)
    """

    cls_to_become = Conv2d

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._set_parameters(out_channels, bias, device, dtype)


class LazyConv3d(_LazyConvolution, Conv3d):
    """`Conv3d` whose `in_channels` is the number of channels of the first input. Otherwise as `LazyLinear`.

    >>> import tracegrad as tg
    >>> layer = LazyConv3d(4, 2)
    >>> layer(tg.ones(1, 3, 3, 3, 3)).shape, layer.in_channels
    (torch.Size([1, 4, 2, 2, 2]), 3)
    """

    cls_to_become = Conv3d

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._set_parameters(out_channels, bias, device, dtype)


class LazyConvTranspose1d(_LazyConvolution, ConvTranspose1d):
    """`ConvTranspose1d` whose `in_channels` is the number of channels of the first input.

    Otherwise as `LazyLinear`.

    >>> import tracegrad as tg
    >>> layer = LazyConvTranspose1d(4, 2)
    >>> layer(tg.ones(1, 3, 3)).shape, layer.in_channels
    (torch.Size([1, 4, 4]), 3)
    """

    cls_to_become = ConvTranspose1d

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)
        self._set_parameters(out_channels, bias, device, dtype)


class LazyConvTranspose2d(_LazyConvolution, ConvTranspose2d):
    """`ConvTranspose2d` whose `in_channels` is the number of channels of the first input.

    Otherwise as `LazyLinear`.

    >>> import tracegrad as tg
    >>> layer = LazyConvTranspose2d(4, 2)
    >>> layer(tg.ones(1, 3, 3, 3)).shape, layer.in_channels
    (torch.Size([1, 4, 4, 4]), 3)
    """

    cls_to_become = ConvTranspose2d

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)
        self._set_parameters(out_channels, bias, device, dtype)


class LazyConvTranspose3d(_LazyConvolution, ConvTranspose3d):
    """`ConvTranspose3d` whose `in_channels` is the number of channels of the first input.

    Otherwise as `LazyLinear`.

    >>> import tracegrad as tg
    >>> layer = LazyConvTranspose3d(4, 2)
    >>> layer(tg.ones(1, 3, 3, 3, 3)).shape, layer.in_channels
    (torch.Size([1, 4, 4, 4, 4]), 3)
    """

    cls_to_become = ConvTranspose3d

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)
        self._set_parameters(out_channels, bias, device, dtype)


# -- normalization ---------------------------------------------------------------------------------------------------
class _LazyNormalization(LazyModuleMixin):
    """Part of a normalization that takes `num_features` from the first input."""

    num_features: int
    affine: bool
    track_running_stats: bool
    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
        *,
        bias: bool = True,
    ):
        super().__init__(0, eps, momentum, False, False, bias=False)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = tensor(0)

    def reset_parameters(self) -> None:
        """Reset the parameters and the running statistics, if they are initialized."""
        if not self.has_uninitialized_params() and self.num_features:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Array) -> None:
        """Take `num_features` from dimension 1 of `input`, and set the parameters and running statistics."""
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        for x in (self.weight, self.bias, self.running_mean, self.running_var):
            if x is not None:
                x.materialize(self.num_features)
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormalization, BatchNorm1d):
    """`BatchNorm1d` whose `num_features` is the size of dimension 1 of the first input. Otherwise as `LazyLinear`.

    >>> import tracegrad as tg
    >>> layer = LazyBatchNorm1d()
    >>> layer(tg.ones(2, 3, 4)).shape, layer.num_features
    (torch.Size([2, 3, 4]), 3)
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormalization, BatchNorm2d):
    """`BatchNorm2d` whose `num_features` is the size of dimension 1 of the first input. Otherwise as `LazyLinear`.

    >>> import tracegrad as tg
    >>> layer = LazyBatchNorm2d()
    >>> layer(tg.ones(2, 3, 4, 4)).shape, layer.num_features
    (torch.Size([2, 3, 4, 4]), 3)
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormalization, BatchNorm3d):
    """`BatchNorm3d` whose `num_features` is the size of dimension 1 of the first input. Otherwise as `LazyLinear`.

    >>> import tracegrad as tg
    >>> layer = LazyBatchNorm3d()
    >>> layer(tg.ones(2, 3, 4, 4, 4)).shape, layer.num_features
    (torch.Size([2, 3, 4, 4, 4]), 3)
    """

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNormalization, InstanceNorm1d):
    """`InstanceNorm1d` whose `num_features` is the size of dimension 1 of the first input. Otherwise as `LazyLinear`.

    >>> import tracegrad as tg
    >>> layer = LazyInstanceNorm1d()
    >>> layer(tg.ones(2, 3, 4)).shape, layer.num_features
    (torch.Size([2, 3, 4]), 3)
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormalization, InstanceNorm2d):
    """`InstanceNorm2d` whose `num_features` is the size of dimension 1 of the first input. Otherwise as `LazyLinear`.

    >>> import tracegrad as tg
    >>> layer = LazyInstanceNorm2d()
    >>> layer(tg.ones(2, 3, 4, 4)).shape, layer.num_features
    (torch.Size([2, 3, 4, 4]), 3)
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNormalization, InstanceNorm3d):
    """`InstanceNorm3d` whose `num_features` is the size of dimension 1 of the first input. Otherwise as `LazyLinear`.

    >>> import tracegrad as tg
    >>> layer = LazyInstanceNorm3d()
    >>> layer(tg.ones(2, 3, 4, 4, 4)).shape, layer.num_features
    (torch.Size([2, 3, 4, 4, 4]), 3)
    """

    cls_to_become = InstanceNorm3d
