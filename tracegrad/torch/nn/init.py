"""Namespace of `torch.nn.init`: fill a Tensor in place with initial values, and return it.

Numbers come from the default generator, which `manual_seed` seeds, or from the argument `generator`; nothing is
recorded. `fan_in` and `fan_out` of a weight of shape (out, in, ...) are `in` and `out` times the product of the rest.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.torch.functions.core.generator import stream
from tracegrad.torch.modes import no_grad
from tracegrad.torch.nn.docs import MODULE_DOCS
from tracegrad.torch.tape.tensors import random
from tracegrad.torch.tape.tensors.default_rng import Generator
from tracegrad.torch.tape.tensors.tensor import of_array

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import NDArray


__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4.0,
}


def _filling(function: Callable[..., None]) -> Callable[..., Tensor]:
    """Decorate a function that fills a Tensor: it is not recorded, and returns the Tensor."""

    @wraps(function)
    def call(tensor: Tensor, *args: object, **kwargs: object) -> Tensor:
        with no_grad():
            function(tensor, *args, **kwargs)
        return tensor

    return call


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor that preserves the variance through a nonlinearity.

    ValueError for an unknown nonlinearity.

    >>> calculate_gain("tanh") == 5 / 3
    True
    """
    if nonlinearity == "leaky_relu":
        derivative = 0.01 if param is None else param
        if isinstance(derivative, bool) or not isinstance(derivative, int | float):
            raise ValueError(located(f"negative_slope {derivative} not a valid number"))
        return math.sqrt(2.0 / (1 + derivative**2))
    if nonlinearity not in _GAINS:
        raise ValueError(located(f"Unsupported nonlinearity {nonlinearity}"))
    return _GAINS[nonlinearity]


# -- one value, or independent ones --------------------------------------------------------------------------------
@_filling
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> None:
    """Fill with numbers from the uniform distribution on [a, b).

    >>> import tracegrad as tg
    >>> bool((uniform_(tg.empty(4, 4)) < 1).all())
    True
    """
    random.uniform_(tensor, a, b, generator=generator)


@_filling
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> None:
    """Fill with normal numbers.

    >>> import tracegrad as tg
    >>> normal_(tg.empty(4, 4)).shape
    torch.Size([4, 4])
    """
    random.normal_(tensor, mean, std, generator=generator)


@_filling
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> None:
    """Fill with normal numbers, given that they are in [a, b].

    >>> import tracegrad as tg
    >>> bool((trunc_normal_(tg.empty(100)).abs() <= 2).all())
    True
    """
    from scipy.special import ndtr, ndtri

    low, high = ndtr((a - mean) / std), ndtr((b - mean) / std)
    drawn = low + (high - low) * stream("trunc_normal_", generator).random(tensor.shape)
    tensor.copy_(_as(tensor, np.clip(mean + std * ndtri(drawn), a, b)))


@_filling
def constant_(tensor: Tensor, val: float) -> None:
    """Fill with one value.

    >>> import tracegrad as tg
    >>> constant_(tg.empty(2), 3.0)
    tensor([3., 3.])
    """
    tensor.fill_(val)


@_filling
def ones_(tensor: Tensor) -> None:
    """Fill with ones.

    >>> import tracegrad as tg
    >>> ones_(tg.empty(2))
    tensor([1., 1.])
    """
    tensor.fill_(1.0)


@_filling
def zeros_(tensor: Tensor) -> None:
    """Fill with zeros.

    >>> import tracegrad as tg
    >>> zeros_(tg.empty(2))
    tensor([0., 0.])
    """
    tensor.zero_()


# -- matrices --------------------------------------------------------------------------------------------------------
@_filling
def eye_(tensor: Tensor) -> None:
    """Fill with the identity matrix.

    ValueError unless there are two dimensions.

    >>> import tracegrad as tg
    >>> eye_(tg.empty(2, 3))
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    _require(tensor, 2)
    tensor.copy_(_as(tensor, np.eye(*tensor.shape)))


@_filling
def dirac_(tensor: Tensor, groups: int = 1) -> None:
    """Fill a convolution weight so that the convolution preserves its input.

    In each group, output channel k is input channel k. ValueError unless there are 3, 4 or 5 dimensions and the groups
    divide the first one.

    >>> import tracegrad as tg
    >>> dirac_(tg.empty(1, 1, 3))
    tensor([[[0., 1., 0.]]])
    """
    if len(tensor.shape) not in (3, 4, 5):
        raise ValueError(located("Only tensors with 3, 4, or 5 dimensions are supported"))
    if tensor.shape[0] % groups:
        raise ValueError(located("dim 0 must be divisible by groups"))
    result, each = np.zeros(tensor.shape), tensor.shape[0] // groups
    middle = tuple(n // 2 for n in tensor.shape[2:])
    for group in range(groups):
        for k in range(min(each, tensor.shape[1])):
            result[(group * each + k, k, *middle)] = 1.0
    tensor.copy_(_as(tensor, result))


@_filling
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> None:
    """Fill with `gain` times a matrix with orthonormal rows or columns (Saxe et al. 2014).

    The matrix has the first dimension, and all others together. ValueError for fewer than two dimensions.

    >>> import tracegrad as tg
    >>> w = orthogonal_(tg.empty(3, 3))
    >>> bool(tg.allclose(w @ w.T, tg.eye(3)))
    True
    """
    if len(tensor.shape) < 2:
        raise ValueError(located("Only tensors with 2 or more dimensions are supported"))
    if not tensor.numel():
        return
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = stream("orthogonal_", generator).standard_normal((rows, columns))
    q, r = np.linalg.qr(drawn.T if rows < columns else drawn)
    q = q * np.sign(np.diag(r))
    tensor.copy_(_as(tensor, gain * (q.T if rows < columns else q).reshape(tensor.shape)))


@_filling
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> None:
    """Fill a matrix with normal numbers, and set a share of each column to zero (Martens 2010).

    ValueError unless there are two dimensions.

    >>> import tracegrad as tg
    >>> int((sparse_(tg.empty(4, 4), 0.5) == 0).sum())
    8
    """
    _require(tensor, 2)
    bits = stream("sparse_", generator)
    result = bits.standard_normal(tensor.shape) * std
    for column in result.T:
        column[bits.permutation(len(column))[: math.ceil(sparsity * len(column))]] = 0.0
    tensor.copy_(_as(tensor, result))


# -- by the number of inputs and outputs ------------------------------------------------------------------------------
@_filling
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> None:
    """Fill with uniform numbers of standard deviation gain * sqrt(2 / (fan_in + fan_out)).

    Source: Glorot and Bengio 2010. ValueError for fewer than two dimensions.

    >>> import tracegrad as tg
    >>> bool((xavier_uniform_(tg.empty(4, 4)).abs() < 1).all())
    True
    """
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / sum(fans(tensor)))
    random.uniform_(tensor, -bound, bound, generator=generator)


@_filling
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> None:
    """Fill with normal numbers of standard deviation gain * sqrt(2 / (fan_in + fan_out)).

    Source: Glorot and Bengio 2010. ValueError for fewer than two dimensions.

    >>> import tracegrad as tg
    >>> xavier_normal_(tg.empty(4, 4)).shape
    torch.Size([4, 4])
    """
    random.normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator=generator)


@_filling
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> None:
    """Fill with uniform numbers of standard deviation gain / sqrt(fan) (He et al. 2015).

    The gain is that of `nonlinearity` with the parameter `a`. ValueError for fewer than two dimensions, and for an
    unknown mode.

    >>> import tracegrad as tg
    >>> bool((kaiming_uniform_(tg.empty(5, 6)).abs() <= 1).all())
    True
    """
    if 0 in tensor.shape:
        return
    bound = math.sqrt(3.0) * _spread(tensor, a, mode, nonlinearity)
    random.uniform_(tensor, -bound, bound, generator=generator)


@_filling
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> None:
    """Fill with normal numbers of standard deviation gain / sqrt(fan) (He et al. 2015).

    The gain is that of `nonlinearity` with the parameter `a`. ValueError for fewer than two dimensions, and for an
    unknown mode.

    >>> import tracegrad as tg
    >>> kaiming_normal_(tg.empty(4, 4)).shape
    torch.Size([4, 4])
    """
    if 0 not in tensor.shape:
        random.normal_(tensor, 0.0, _spread(tensor, a, mode, nonlinearity), generator=generator)


def fans(tensor: Tensor) -> tuple[int, int]:
    """`(fan_in, fan_out)` of a weight. ValueError for less than two dimensions."""
    if len(tensor.shape) < 2:
        raise ValueError(located("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"))
    rest = math.prod(tensor.shape[2:])
    return tensor.shape[1] * rest, tensor.shape[0] * rest


def _spread(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    modes = ("fan_in", "fan_out")
    if mode not in modes:
        raise ValueError(located(f"Mode {mode} not supported, please use one of {modes}"))
    return calculate_gain(nonlinearity, a) / math.sqrt(fans(tensor)[modes.index(mode)])


def _require(tensor: Tensor, count: int) -> None:
    if len(tensor.shape) != count:
        raise ValueError(located(f"Only tensors with {count} dimensions are supported"))


def _as(tensor: Tensor, array: NDArray) -> Tensor:
    return of_array(np.asarray(array, tensor.dtype))


# -- PyTorch's names before 0.4 ----------------------------------------------------------------------------------------
_DEPRECATED = (
    *("constant", "dirac", "eye", "kaiming_normal", "kaiming_uniform", "normal", "orthogonal", "sparse", "uniform"),
    *("xavier_normal", "xavier_uniform"),
)


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in _DEPRECATED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    fill: Callable[..., Any] = globals()[f"{name}_"]

    def deprecated(*args: object, **kwargs: object) -> Any:
        text = f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`."
        warnings.warn(located(text), FutureWarning, stacklevel=2)
        return fill(*args, **kwargs)

    return deprecated


MODULE_DOCS.document(globals(), __all__)
