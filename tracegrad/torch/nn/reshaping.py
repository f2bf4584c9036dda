"""Modules that move elements: `Flatten`, `Unflatten`, padding, and pixel and channel shuffles."""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.functions.nn.windows import for_each
from tracegrad.torch.nn.module import Module
from tracegrad.typing import Array, Sizes

__all__ = [
    "ChannelShuffle",
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "Flatten",
    "PixelShuffle",
    "PixelUnshuffle",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "Unflatten",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]

_flatten, _unflatten = FUNCTIONS["flatten"], FUNCTIONS["unflatten"]


class Flatten(Module):
    """The dimensions from `start_dim` to `end_dim` merged; by default all except the batch.

    >>> import tracegrad as tg
    >>> Flatten()(tg.ones(2, 3, 4)).shape
    torch.Size([2, 12])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Array) -> Array:
        """Return the output."""
        result: Array = _flatten(input, self.start_dim, self.end_dim)
        return result

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dimension split into several.

    TypeError for sizes that are no integers.

    >>> import tracegrad as tg
    >>> Unflatten(1, (3, 4))(tg.ones(2, 12)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]):
        super().__init__()
        for k, n in enumerate(unflattened_size):
            if not isinstance(n, int):
                raise TypeError(
                    f"unflattened_size must be tuple of ints, but found element of type {type(n).__name__} at pos {k}"
                )
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Array) -> Array:
        """Return the output."""
        result: Array = _unflatten(input, self.dim, self.unflattened_size)
        return result

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class ChannelShuffle(Module):
    """The channels of groups in turn.

    >>> import tracegrad as tg
    >>> ChannelShuffle(2)(tg.arange(4.0).reshape(1, 4, 1)).flatten().tolist()
    [0.0, 2.0, 1.0, 3.0]
    """

    def __init__(self, groups: int):
        super().__init__()
        self.groups = groups

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class PixelShuffle(Module):
    """Channels moved to the pixels of a finer image.

    >>> import tracegrad as tg
    >>> PixelShuffle(2)(tg.ones(4, 3, 3)).shape
    torch.Size([1, 6, 6])
    """

    def __init__(self, upscale_factor: int):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Pixels moved to the channels of a coarser image.

    >>> import tracegrad as tg
    >>> PixelUnshuffle(2)(tg.ones(1, 6, 6)).shape
    torch.Size([4, 3, 3])
    """

    def __init__(self, downscale_factor: int):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


# -- padding ----------------------------------------------------------------------------------------------------------
class _Pad(Module):
    """Elements before and after the last dimensions: one count for all, or a pair for each, the last one's first."""

    _count: int
    _mode = "constant"

    def __init__(self, padding: Sizes):
        super().__init__()
        self.padding = for_each(padding, 2 * self._count)

    def forward(self, input: Array) -> Array:
        """Return the output."""
        result: Array = F.pad(input, self.padding, self._mode)
        return result

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Sizes, value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Array) -> Array:
        """Return the output."""
        result: Array = F.pad(input, self.padding, "constant", self.value)
        return result

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """One value added at the ends of the last dimension.

    >>> import tracegrad as tg
    >>> ConstantPad1d((1, 2), 7.0)(tg.zeros(1, 2))
    tensor([[7., 0., 0., 7., 7.]])
    """

    _count = 1


class ConstantPad2d(_ConstantPad):
    """One value added at the ends of the last two dimensions.

    >>> import tracegrad as tg
    >>> ConstantPad2d(1, 9.0)(tg.ones(1, 3, 3)).shape
    torch.Size([1, 5, 5])
    """

    _count = 2


class ConstantPad3d(_ConstantPad):
    """One value added at the ends of the last three dimensions.

    >>> import tracegrad as tg
    >>> ConstantPad3d(1, 9.0)(tg.ones(1, 3, 3, 3)).shape
    torch.Size([1, 5, 5, 5])
    """

    _count = 3


class ZeroPad1d(_Pad):
    """Zeros added at the ends of the last dimension.

    >>> import tracegrad as tg
    >>> ZeroPad1d(1)(tg.tensor([[1.0, 2.0, 3.0]]))
    tensor([[0., 1., 2., 3., 0.]])
    """

    _count = 1


class ZeroPad2d(_Pad):
    """Zeros added at the ends of the last two dimensions.

    >>> import tracegrad as tg
    >>> ZeroPad2d(1)(tg.ones(1, 3, 3)).shape
    torch.Size([1, 5, 5])
    """

    _count = 2


class ZeroPad3d(_Pad):
    """Zeros added at the ends of the last three dimensions.

    >>> import tracegrad as tg
    >>> ZeroPad3d(1)(tg.ones(1, 3, 3, 3)).shape
    torch.Size([1, 5, 5, 5])
    """

    _count = 3


class ReflectionPad1d(_Pad):
    """Mirrored elements, without the outermost ones, added at the ends of the last dimension.

    >>> import tracegrad as tg
    >>> ReflectionPad1d(1)(tg.tensor([[1.0, 2.0, 3.0]]))
    tensor([[2., 1., 2., 3., 2.]])
    """

    _count, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Mirrored elements, without the outermost ones, added at the ends of the last two dimensions.

    >>> import tracegrad as tg
    >>> ReflectionPad2d(1)(tg.ones(1, 3, 3)).shape
    torch.Size([1, 5, 5])
    """

    _count, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Mirrored elements, without the outermost ones, added at the ends of the last three dimensions.

    >>> import tracegrad as tg
    >>> ReflectionPad3d(1)(tg.ones(1, 3, 3, 3)).shape
    torch.Size([1, 5, 5, 5])
    """

    _count, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The outermost elements repeated at the ends of the last dimension.

    >>> import tracegrad as tg
    >>> ReplicationPad1d(1)(tg.tensor([[1.0, 2.0, 3.0]]))
    tensor([[1., 1., 2., 3., 3.]])
    """

    _count, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The outermost elements repeated at the ends of the last two dimensions.

    >>> import tracegrad as tg
    >>> ReplicationPad2d(1)(tg.ones(1, 3, 3)).shape
    torch.Size([1, 5, 5])
    """

    _count, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """The outermost elements repeated at the ends of the last three dimensions.

    >>> import tracegrad as tg
    >>> ReplicationPad3d(1)(tg.ones(1, 3, 3, 3)).shape
    torch.Size([1, 5, 5, 5])
    """

    _count, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Elements of the other end added at the ends of the last dimension.

    >>> import tracegrad as tg
    >>> CircularPad1d(1)(tg.tensor([[1.0, 2.0, 3.0]]))
    tensor([[3., 1., 2., 3., 1.]])
    """

    _count, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """Elements of the other end added at the ends of the last two dimensions.

    >>> import tracegrad as tg
    >>> CircularPad2d(1)(tg.ones(1, 3, 3)).shape
    torch.Size([1, 5, 5])
    """

    _count, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """Elements of the other end added at the ends of the last three dimensions.

    >>> import tracegrad as tg
    >>> CircularPad3d(1)(tg.ones(1, 3, 3, 3)).shape
    torch.Size([1, 5, 5, 5])
    """

    _count, _mode = 3, "circular"
