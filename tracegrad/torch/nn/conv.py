"""Convolution modules over one, two and three dimensions, and transposed ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.functions.nn.windows import for_each
from tracegrad.torch.nn import init
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.parameter import Parameter
from tracegrad.torch.tape.tensors.factories import empty
from tracegrad.typing import Array, DeviceLike, DTypeLike

if TYPE_CHECKING:
    from tracegrad.typing import Sizes


__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """A convolution over `_count` dimensions."""

    _count: int
    output_padding: tuple[int, ...] = ()

    def __init__(
        self,
        in_channels: int,
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
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode must be one of {set(_MODES)}, but got padding_mode='{padding_mode}'")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'valid', 'same'}}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = for_each(kernel_size, self._count), for_each(stride, self._count)
        if padding == "same" and any(n != 1 for n in self.stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
        self.padding = padding if isinstance(padding, str) else for_each(padding, self._count)
        self.dilation, self.padding_mode = for_each(dilation, self._count), padding_mode
        self.weight = Parameter(empty(self._shape(), device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def _shape(self) -> tuple[int, ...]:
        """Return the shape of the weight."""
        return self.out_channels, self.in_channels // self.groups, *self.kernel_size

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            inputs = init.fans(self.weight)[0]
            if inputs:
                init.uniform_(self.bias, -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))

    def forward(self, input: Array) -> Array:
        """Return the output, (N, out_channels, ...) or (out_channels, ...)."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._around(), mode=self.padding_mode), 0
        return self._convolution(input, padding)

    def _convolution(self, input: Array, padding: Any) -> Array:
        raise NotImplementedError

    def _around(self) -> list[int]:
        """Return the padding around the input, in the format of `nn.functional.pad`."""
        result, padding = list[int](), self.padding
        for k in reversed(range(self._count)):
            total = self.dilation[k] * (self.kernel_size[k] - 1)
            if padding == "same":
                result += [total // 2, total - total // 2]
            else:
                result += [0, 0] if isinstance(padding, str) else [padding[k]] * 2
        return result

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        if self.padding != (0,) * self._count:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * self._count:
            parts.append(f"dilation={self.dilation}")
        if any(self.output_padding):
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class Conv1d(_ConvNd):
    """`nn.functional.conv1d` with the parameters `weight` and `bias`.

    The parameters begin as uniform numbers between ±1 / sqrt(in_channels / groups * kernel_size). ValueError for groups
    that do not divide the channels.

    >>> import tracegrad as tg
    >>> Conv1d(2, 4, 3)(tg.ones(1, 2, 8)).shape
    torch.Size([1, 4, 6])
    """

    _count = 1

    def _convolution(self, input: Array, padding: Sizes) -> Array:
        return F.conv1d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_ConvNd):
    """`nn.functional.conv2d` with the parameters `weight` and `bias`.

    Otherwise as `Conv1d`.

    >>> import tracegrad as tg
    >>> layer = Conv2d(3, 4, kernel_size=3, padding=1)
    >>> layer, layer(tg.ones(2, 3, 5, 5)).shape
    (Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)), torch.Size([2, 4, 5, 5]))
    """

    _count = 2

    def _convolution(self, input: Array, padding: Sizes) -> Array:
        return F.conv2d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_ConvNd):
    """`nn.functional.conv3d` with the parameters `weight` and `bias`.

    Otherwise as `Conv1d`.

    >>> import tracegrad as tg
    >>> Conv3d(1, 2, 2)(tg.ones(1, 1, 3, 3, 3)).shape
    torch.Size([1, 2, 2, 2, 2])
    """

    _count = 3

    def _convolution(self, input: Array, padding: Sizes) -> Array:
        return F.conv3d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution over `_count` dimensions."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            for_each(padding, self._count),
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )
        self.output_padding = for_each(output_padding, self._count)

    def _shape(self) -> tuple[int, ...]:
        return self.in_channels, self.out_channels // self.groups, *self.kernel_size

    def forward(self, input: Array, output_size: Sequence[int] | None = None) -> Array:
        """Compute the output, (N, out_channels, ...) or (out_channels, ...).

        `output_size`, if passed, replaces the size that `output_padding` implies.
        """
        output_padding = (
            self.output_padding if output_size is None else self._padding_for_size(input, tuple(output_size))
        )
        convolution = getattr(F, f"conv_transpose{self._count}d")
        result: Array = convolution(
            input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups, self.dilation
        )
        return result

    def _padding_for_size(self, input: Array, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """Return the output padding that gives this size; ValueError if none does."""
        n, batch_rank = self._count, len(input.shape) - self._count
        if len(wanted) not in (n, n + batch_rank):
            raise ValueError(
                f"ConvTranspose{n}D: for {len(input.shape)}D input, output_size must have {n} or {n + batch_rank} "
                "elements "
                f"(got {len(wanted)})"
            )
        padding: Any = self.padding
        each = zip(input.shape[batch_rank:], self.stride, padding, self.dilation, self.kernel_size)
        smallest = [(size - 1) * s - 2 * p + d * (k - 1) + 1 for size, s, p, d, k in each]
        largest = [size + s - 1 for size, s in zip(smallest, self.stride)]
        sizes = wanted[-n:]
        if not all(a <= size <= b for a, size, b in zip(smallest, sizes, largest)):
            raise ValueError(
                f"requested an output size of {list(sizes)}, but valid sizes range from {smallest} to {largest} "
                f"(for an input of torch.Size({list(input.shape[batch_rank:])}))"
            )
        return tuple([size - a for size, a in zip(sizes, smallest)])


class ConvTranspose1d(_ConvTransposeNd):
    """`nn.functional.conv_transpose1d` with the parameters `weight` and `bias`.

    `weight` is (in_channels, out_channels / groups, kernel_size). The parameters begin as uniform numbers between ±1 /
    sqrt(out_channels / groups * kernel_size). ValueError for groups that do not divide the channels.

    >>> import tracegrad as tg
    >>> layer = ConvTranspose1d(2, 4, 3, stride=2)
    >>> layer(tg.ones(1, 2, 8)).shape, layer(tg.ones(1, 2, 8), output_size=[18]).shape
    (torch.Size([1, 4, 17]), torch.Size([1, 4, 18]))
    """

    _count = 1


class ConvTranspose2d(_ConvTransposeNd):
    """`nn.functional.conv_transpose2d` with the parameters `weight` and `bias`.

    Otherwise as `ConvTranspose1d`.

    >>> import tracegrad as tg
    >>> layer = ConvTranspose2d(3, 4, kernel_size=3, stride=2, padding=1, output_padding=1)
    >>> layer
    ConvTranspose2d(3, 4, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), output_padding=(1, 1))
    >>> layer(tg.ones(2, 3, 5, 5)).shape
    torch.Size([2, 4, 10, 10])
    """

    _count = 2


class ConvTranspose3d(_ConvTransposeNd):
    """`nn.functional.conv_transpose3d` with the parameters `weight` and `bias`.

    Otherwise as `ConvTranspose1d`.

    >>> import tracegrad as tg
    >>> ConvTranspose3d(1, 2, 2)(tg.ones(1, 1, 3, 3, 3)).shape
    torch.Size([1, 2, 4, 4, 4])
    """

    _count = 3
