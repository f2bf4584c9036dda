"""Convolutions and transposed convolutions over one, two or three dimensions, with PyTorch's signatures.

Inputs have shape (N, C, d1, ...) or (C, d1, ...); sizes, strides, paddings and dilations are one number, or one for
each dimension. A window is made of strided slices of the padded input, one for each offset in the window. A convolution
is therefore a matrix product, and pooling (`pooling.py`) a reduction. The transposed convolution is the transpose: it
adds the contributions of each offset to the output.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.numpy_api.operands import arrays, promoted
from tracegrad.ops.core.op import named
from tracegrad.ops.elementwise.table import add
from tracegrad.ops.linalg.contraction import matmul_any, matrix_transpose
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import reshape
from tracegrad.torch.functions.core.dims import lengths, size_error
from tracegrad.torch.functions.core.operands import as_node, in_floats, is_whole
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.nn.windows import Sizes, for_each, padded_by, windows_of, with_batch
from tracegrad.typing import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.ops.core.dispatch import Operand


# -- convolution ---------------------------------------------------------------------------------------------------
def _convolution(
    input: object,
    weight: object,
    bias: object,
    stride: int | Sequence[int],
    padding: int | str | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
    count: int,
) -> Array:
    require_one_dtype(input, weight)
    require_one_dtype(input, bias, "Input type ({a}) and bias type ({b}) should be the same")
    args = arrays(*(v for v in (input, weight, bias) if v is not None))
    x, w, *rest = promoted(args if all(map(is_whole, args)) else in_floats(args))
    x, has_batch = with_batch(x, count, f"conv{count}d")
    strides, dilations = for_each(stride, count), for_each(dilation, count)
    if len(w.shape) != count + 2 or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise size_error(
            f"Given groups={groups}, weight of size {lengths(w.shape)}, expected input{lengths(x.shape)} to have "
            f"{w.shape[1] * groups} channels, but got {x.shape[1]} channels instead"
        )
    if min(strides) <= 0:
        raise size_error("non-positive stride is not supported")
    if min(dilations) <= 0:
        raise size_error("dilation should be greater than zero")
    spans = tuple(d * (k - 1) for d, k in zip(dilations, w.shape[2:]))
    low, high = _paddings(padding, strides, spans)
    out = tuple((n + a + b - s) for n, a, b, s in zip(x.shape[2:], low, high, spans))
    if min(out) <= 0:
        raise size_error(
            f"Calculated padded input size per channel: {lengths(tuple(n + s for n, s in zip(out, spans)))}. Kernel "
            f"size: {lengths(w.shape[2:])}. Kernel size can't be greater than actual input size"
        )
    out = tuple(-(-n // s) for n, s in zip(out, strides))

    def convolve(x: Array, w: Array, bias: Array) -> Array:
        n, outputs = x.shape[0], w.shape[0]
        depth = math.prod(w.shape[1:])
        patches = windows_of(padded_by(x, low, high, 0.0), w.shape[2:], strides, dilations, out)
        columns = reshape(patches, shape=(n, groups, depth, math.prod(out)))
        rows = reshape(w, shape=(groups, outputs // groups, depth))
        result = reshape(matmul_any(rows, columns), shape=(n, outputs, *out))
        return result if bias is None else add(result, reshape(bias, shape=(outputs, *(1,) * count)))

    result = as_node("ConvolutionBackward0", convolve, x, w, rest[0] if rest else None)
    return result if has_batch else named("SqueezeBackward1", reshape(result, shape=result.shape[1:]))


def _paddings(padding: Any, stride: Sizes, spans: Sizes) -> tuple[Sizes, Sizes]:
    """Return the padding before and after each dimension."""
    if padding == "valid":
        return (0,) * len(spans), (0,) * len(spans)
    if padding == "same":
        if any(s != 1 for s in stride):
            raise size_error("padding='same' is not supported for strided convolutions")
        return tuple(s // 2 for s in spans), tuple(s - s // 2 for s in spans)
    if isinstance(padding, str):
        raise ValueError(located(f"Invalid padding string {padding!r}, should be one of 'valid', 'same'"))
    each = for_each(padding, len(spans))
    if min(each) < 0:
        raise size_error("negative padding is not supported")
    return each, each


def conv1d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Array:
    """Correlate an input (N, C, d) with a weight (O, C / groups, k), and add the bias.

    >>> import numpy as np
    >>> conv1d(np.array([[[1.0, 2.0, 4.0]]]), np.array([[[1.0, -1.0]]])).tolist()
    [[[-1.0, -2.0]]]
    """
    return _convolution(input, weight, bias, stride, padding, dilation, groups, 1)


def conv2d(
    input: Operand,
    weight: Operand,
    bias: Operand | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Array:
    """Correlate an input (N, C, d1, d2) with a weight (O, C / groups, k1, k2), and add the bias.

    The padding "valid" is none, and "same" keeps the sizes. RuntimeError if the sizes do not fit.
    """
    return _convolution(input, weight, bias, stride, padding, dilation, groups, 2)


def conv3d(
    input: Operand,
    weight: Operand,
    bias: Operand | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Array:
    """Correlate over three dimensions, as `conv2d`."""
    return _convolution(input, weight, bias, stride, padding, dilation, groups, 3)


# -- transposed convolution ----------------------------------------------------------------------------------------
def _transposed(
    input: Operand,
    weight: Array,
    bias: Array | None,
    stride: object,
    padding: int | str | Sequence[int],
    output_padding: object,
    groups: int,
    dilation: object,
    count: int,
) -> Array:
    args = arrays(*(v for v in (input, weight, bias) if v is not None))
    x, w, *rest = promoted(args if all(map(is_whole, args)) else in_floats(args))
    x, has_batch = with_batch(x, count, f"conv_transpose{count}d")
    strides, dilations, around, extra_sizes = (for_each(v, count) for v in (stride, dilation, padding, output_padding))
    outputs = _outputs(x, w, rest, groups)
    out = _transposed_sizes(x.shape[2:], w.shape[2:], strides, dilations, around, extra_sizes)

    def spread(x: Array, w: Array, bias: Array) -> Array:
        n, size, kernel = x.shape[0], x.shape[2:], w.shape[2:]
        columns = reshape(x, shape=(n, groups, w.shape[0] // groups, math.prod(size)))
        rows = reshape(w, shape=(groups, w.shape[0] // groups, w.shape[1] * math.prod(kernel)))
        products = reshape(matmul_any(matrix_transpose(rows), columns), shape=(n, outputs, math.prod(kernel), *size))
        total: Any = None
        for k, offset in enumerate(itertools.product(*map(range, kernel))):
            first, last = (0, 0, k, *(0,) * count), (n, outputs, k + 1, *size)
            term = linear.slice(products, start=first, stop=last, step=(1,) * (count + 3))
            term = _at(reshape(term, shape=(n, outputs, *size)), offset)
            total = term if total is None else add(total, term)
        return total if bias is None else add(total, reshape(bias, shape=(outputs, *(1,) * count)))

    def _at(term: Array, offset: Sizes) -> Array:
        """Place the contribution of one window offset at its position in the padded output."""
        low = tuple(i * d for i, d in zip(offset, dilations))
        sizes = zip(out, around, low, x.shape[2:], strides)
        high = tuple(o + 2 * p - a - (n - 1) * s - 1 for o, p, a, n, s in sizes)
        interior = (0, 0, *(s - 1 for s in strides))
        whole = linear.pad(term, low=(0, 0, *low), high=(0, 0, *high), interior=interior, value=0.0)
        stop = (*term.shape[:2], *(p + o for p, o in zip(around, out)))
        return linear.slice(whole, start=(0, 0, *around), stop=stop, step=(1,) * (count + 2))

    result = as_node("ConvolutionBackward0", spread, x, w, rest[0] if rest else None)
    return result if has_batch else named("SqueezeBackward1", reshape(result, shape=result.shape[1:]))


def _transposed_sizes(
    sizes: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, around: Sizes, extra_sizes: Sizes
) -> Sizes:
    """Return the sizes of the output; RuntimeError if they or the options are impossible."""
    if min(around) < 0:
        raise size_error("negative padding is not supported")
    if any(e >= max(s, d) for e, s, d in zip(extra_sizes, strides, dilations)):
        raise size_error(
            "output padding must be smaller than either stride or dilation, but got output_padding "
            f"{lengths(extra_sizes)} "
            f"stride {lengths(strides)} dilation {lengths(dilations)}"
        )
    each = zip(sizes, strides, dilations, kernel, extra_sizes, around)
    out = tuple([(n - 1) * s + d * (k - 1) + e - 2 * p + 1 for n, s, d, k, e, p in each])
    if min(out) <= 0:
        args, output = (" x ".join(map(str, x)) for x in (sizes, out))
        raise size_error(
            f"Given input size per channel: ({args}). Calculated output size per channel: ({output}). Output size is "
            "too small"
        )
    return out


def _outputs(x: Array, w: Array, bias: list[Array], groups: int) -> int:
    """Return the number of output channels; RuntimeError if the shapes do not fit."""
    args = f"Given transposed=1, weight of size {lengths(w.shape)}, expected"
    if len(w.shape) != len(x.shape) or x.shape[1] != w.shape[0] or w.shape[0] % groups:
        raise size_error(
            f"{args} input{lengths(x.shape)} to have {w.shape[0]} channels, but got {x.shape[1]} channels instead"
        )
    outputs = w.shape[1] * groups
    if bias and bias[0].shape != (outputs,):
        raise size_error(
            f"{args} bias to be 1-dimensional with {outputs} elements, but got bias of size {lengths(bias[0].shape)} "
            "instead"
        )
    return int(outputs)


def conv_transpose1d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Array:
    """Compute the transposed convolution: the gradient of `conv1d` with respect to its input.

    For an input (N, C, d), the output has (d - 1) * stride - 2 * padding + dilation * (k - 1) + output_padding + 1
    elements in the last dimension. RuntimeError if the sizes do not fit.

    >>> import numpy as np
    >>> conv_transpose1d(np.array([[[1.0, 2.0]]]), np.array([[[1.0, -1.0]]]), stride=2).tolist()
    [[[1.0, -1.0, 2.0, -2.0]]]
    """
    result: Array = _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 1)
    return result


def conv_transpose2d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Array:
    """Compute the transposed convolution over two dimensions, as `conv_transpose1d`."""
    result: Array = _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 2)
    return result


def conv_transpose3d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Array:
    """Compute the transposed convolution over three dimensions, as `conv_transpose1d`."""
    result: Array = _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 3)
    return result
