"""Pooling modules: each applies a function of `nn.functional` with its parameters.

`stride` defaults to the size of the window. Inputs are (N, C, ...) or (C, ...).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.functions.nn.windows import for_each
from tracegrad.torch.nn.function_module import FunctionModule
from tracegrad.torch.nn.module import Module
from tracegrad.typing import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Sizes


__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


# -- maxima -----------------------------------------------------------------------------------------------------------
class _MaxPool(FunctionModule):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return self._function(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool, function=F.max_pool1d):
    """The maxima of windows of the last dimension, as `nn.functional.max_pool1d`.

    >>> import tracegrad as tg
    >>> MaxPool1d(2)(tg.tensor([[1.0, 2.0, 4.0, 3.0]]))
    tensor([[2., 4.]])
    """


class MaxPool2d(_MaxPool, function=F.max_pool2d):
    """The maxima of windows of the last two dimensions, as `nn.functional.max_pool2d`.

    >>> import tracegrad as tg
    >>> MaxPool2d(2)(tg.ones(1, 4, 4)).shape
    torch.Size([1, 2, 2])
    """


class MaxPool3d(_MaxPool, function=F.max_pool3d):
    """The maxima of windows of the last three dimensions, as `nn.functional.max_pool3d`.

    >>> import tracegrad as tg
    >>> MaxPool3d(2)(tg.ones(1, 4, 4, 4)).shape
    torch.Size([1, 2, 2, 2])
    """


class _MaxUnpool(FunctionModule):
    _count: int

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0):
        super().__init__()
        self.kernel_size = for_each(kernel_size, self._count)
        self.stride = for_each(kernel_size if stride is None else stride, self._count)
        self.padding = for_each(padding, self._count)

    def forward(self, input: Array, indices: Array, output_size: Sizes | None = None) -> Array:
        """Return the output."""
        return self._function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool, function=F.max_unpool1d):
    """The inverse of `MaxPool1d`: the input at the indices of the maxima, and zeros elsewhere.

    >>> import tracegrad as tg
    >>> maxima, indices = MaxPool1d(2, return_indices=True)(tg.ones(1, 4))
    >>> MaxUnpool1d(2)(maxima, indices).shape
    torch.Size([1, 4])
    """

    _count = 1


class MaxUnpool2d(_MaxUnpool, function=F.max_unpool2d):
    """The inverse of `MaxPool2d`: the input at the indices of the maxima, and zeros elsewhere.

    >>> import tracegrad as tg
    >>> maxima, indices = MaxPool2d(2, return_indices=True)(tg.ones(1, 4, 4))
    >>> MaxUnpool2d(2)(maxima, indices).shape
    torch.Size([1, 4, 4])
    """

    _count = 2


class MaxUnpool3d(_MaxUnpool, function=F.max_unpool3d):
    """The inverse of `MaxPool3d`: the input at the indices of the maxima, and zeros elsewhere.

    >>> import tracegrad as tg
    >>> maxima, indices = MaxPool3d(2, return_indices=True)(tg.ones(1, 4, 4, 4))
    >>> MaxUnpool3d(2)(maxima, indices).shape
    torch.Size([1, 4, 4, 4])
    """

    _count = 3


# -- means ------------------------------------------------------------------------------------------------------------
class AvgPool1d(Module):
    """The means of windows of the last dimension, as `nn.functional.avg_pool1d`.

    >>> import tracegrad as tg
    >>> AvgPool1d(2)(tg.tensor([[1.0, 2.0, 4.0, 3.0]]))
    tensor([[1.5000, 3.5000]])
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        super().__init__()
        self.kernel_size = for_each(kernel_size, 1)
        self.stride = for_each(kernel_size if stride is None else stride, 1)
        self.padding, self.ceil_mode, self.count_include_pad = for_each(padding, 1), ceil_mode, count_include_pad

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(FunctionModule):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return self._function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(_AvgPool, function=F.avg_pool2d):
    """The means of windows of the last two dimensions, as `nn.functional.avg_pool2d`.

    >>> import tracegrad as tg
    >>> AvgPool2d(2)(tg.ones(1, 4, 4)).shape
    torch.Size([1, 2, 2])
    """


class AvgPool3d(_AvgPool, function=F.avg_pool3d):
    """The means of windows of the last three dimensions, as `nn.functional.avg_pool3d`.

    >>> import tracegrad as tg
    >>> AvgPool3d(2)(tg.ones(1, 4, 4, 4)).shape
    torch.Size([1, 2, 2, 2])
    """


class _LPPool(FunctionModule):
    def __init__(self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return self._function(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool, function=F.lp_pool1d):
    """The norms of windows of the last dimension, as `nn.functional.lp_pool1d`.

    >>> import tracegrad as tg
    >>> LPPool1d(2, 2)(tg.ones(1, 4)).shape
    torch.Size([1, 2])
    """


class LPPool2d(_LPPool, function=F.lp_pool2d):
    """The norms of windows of the last two dimensions, as `nn.functional.lp_pool2d`.

    >>> import tracegrad as tg
    >>> LPPool2d(2, 2)(tg.ones(1, 4, 4)).shape
    torch.Size([1, 2, 2])
    """


class LPPool3d(_LPPool, function=F.lp_pool3d):
    """The norms of windows of the last three dimensions, as `nn.functional.lp_pool3d`.

    >>> import tracegrad as tg
    >>> LPPool3d(2, 2)(tg.ones(1, 4, 4, 4)).shape
    torch.Size([1, 2, 2, 2])
    """


# -- to a given size --------------------------------------------------------------------------------------------------
class _Adaptive(FunctionModule):
    def __init__(self, output_size: Sizes):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return self._function(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_Adaptive, function=F.adaptive_avg_pool1d):
    """The means of windows that cover the last dimension, as `nn.functional.adaptive_avg_pool1d`.

    >>> import tracegrad as tg
    >>> AdaptiveAvgPool1d(2)(tg.tensor([[1.0, 2.0, 4.0, 3.0]]))
    tensor([[1.5000, 3.5000]])
    """


class AdaptiveAvgPool2d(_Adaptive, function=F.adaptive_avg_pool2d):
    """The means of windows that cover the last two dimensions, as `nn.functional.adaptive_avg_pool2d`.

    >>> import tracegrad as tg
    >>> AdaptiveAvgPool2d(2)(tg.ones(1, 4, 4)).shape
    torch.Size([1, 2, 2])
    """


class AdaptiveAvgPool3d(_Adaptive, function=F.adaptive_avg_pool3d):
    """The means of windows that cover the last three dimensions, as `nn.functional.adaptive_avg_pool3d`.

    >>> import tracegrad as tg
    >>> AdaptiveAvgPool3d(2)(tg.ones(1, 4, 4, 4)).shape
    torch.Size([1, 2, 2, 2])
    """


class _AdaptiveMax(_Adaptive):
    def __init__(self, output_size: Sizes, return_indices: bool = False):
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return self._function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax, function=F.adaptive_max_pool1d):
    """The maxima of windows that cover the last dimension, as `nn.functional.adaptive_max_pool1d`.

    >>> import tracegrad as tg
    >>> AdaptiveMaxPool1d(2)(tg.ones(1, 4)).shape
    torch.Size([1, 2])
    """


class AdaptiveMaxPool2d(_AdaptiveMax, function=F.adaptive_max_pool2d):
    """The maxima of windows that cover the last two dimensions, as `nn.functional.adaptive_max_pool2d`.

    >>> import tracegrad as tg
    >>> AdaptiveMaxPool2d(2)(tg.ones(1, 4, 4)).shape
    torch.Size([1, 2, 2])
    """


class AdaptiveMaxPool3d(_AdaptiveMax, function=F.adaptive_max_pool3d):
    """The maxima of windows that cover the last three dimensions, as `nn.functional.adaptive_max_pool3d`.

    >>> import tracegrad as tg
    >>> AdaptiveMaxPool3d(2)(tg.ones(1, 4, 4, 4)).shape
    torch.Size([1, 2, 2, 2])
    """


# -- random windows ----------------------------------------------------------------------------------------------------
class _FractionalMaxPool(FunctionModule):
    """Maxima of windows at random places."""

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ):
        super().__init__()
        name = type(self).__name__
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        ratios = [output_ratio] if isinstance(output_ratio, int | float) else output_ratio or ()
        if not all(0 < ratio < 1 for ratio in ratios):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        self.kernel_size, self.return_indices = kernel_size, return_indices
        self.output_size, self.output_ratio = output_size, output_ratio
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Array) -> Array:
        """Return the output, and the indices with `return_indices`."""
        return self._function(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPool, function=F.fractional_max_pool2d):
    """The maxima of windows at random places, as `nn.functional.fractional_max_pool2d`.

    >>> import tracegrad as tg
    >>> FractionalMaxPool2d(2, output_size=3)(tg.ones(1, 1, 6, 6)).shape
    torch.Size([1, 1, 3, 3])
    """


class FractionalMaxPool3d(_FractionalMaxPool, function=F.fractional_max_pool3d):
    """The maxima of windows at random places, as `nn.functional.fractional_max_pool3d`.

    >>> import tracegrad as tg
    >>> FractionalMaxPool3d(2, output_ratio=0.5)(tg.ones(1, 6, 6, 6)).shape
    torch.Size([1, 3, 3, 3])
    """
