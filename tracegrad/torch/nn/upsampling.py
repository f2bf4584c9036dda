"""Modules that resample images, and that convert between images and columns of windows."""

from __future__ import annotations

from typing import Any

from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.nn.module import Module
from tracegrad.typing import Array, Sizes

__all__ = ["Fold", "Unfold", "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """Resampling of the dimensions after (N, C) to a size, or by a factor: `interpolate`.

    >>> import tracegrad as tg
    >>> Upsample(scale_factor=2)(tg.ones(1, 1, 2, 3)).shape
    torch.Size([1, 1, 4, 6])
    """

    def __init__(
        self,
        size: Sizes | None = None,
        scale_factor: float | tuple[float, ...] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ):
        super().__init__()
        self.size, self.mode, self.align_corners = size, mode, align_corners
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple([float(factor) for factor in scale_factor])
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        sizes = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{sizes}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """`Upsample` by the nearest pixel.

    >>> import tracegrad as tg
    >>> UpsamplingNearest2d(scale_factor=2)(tg.ones(1, 1, 2, 3)).shape
    torch.Size([1, 1, 4, 6])
    """

    def __init__(self, size: Sizes | None = None, scale_factor: float | tuple[float, ...] | None = None):
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` by bilinear interpolation, with aligned corners.

    >>> import tracegrad as tg
    >>> UpsamplingBilinear2d(size=(4, 6))(tg.ones(1, 1, 2, 3)).shape
    torch.Size([1, 1, 4, 6])
    """

    def __init__(self, size: Sizes | None = None, scale_factor: float | tuple[float, ...] | None = None):
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class Unfold(Module):
    """The windows of images as columns: `unfold`.

    >>> import tracegrad as tg
    >>> Unfold(2)(tg.ones(1, 3, 4, 5)).shape
    torch.Size([1, 12, 12])
    """

    def __init__(self, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1):
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Unfold):
    """Sums of columns at the places of their windows: `fold`.

    >>> import tracegrad as tg
    >>> Fold((4, 5), 2)(tg.ones(1, 12, 12)).shape
    torch.Size([1, 3, 4, 5])
    """

    def __init__(
        self, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
    ):
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, {super().extra_repr()}"
