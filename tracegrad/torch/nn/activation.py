"""Activation modules: each applies a function of `nn.functional` with its parameters."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.nn.function_module import FunctionModule
from tracegrad.torch.nn.init import constant_
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.parameter import Parameter
from tracegrad.torch.tape.tensors.factories import empty
from tracegrad.typing import Array, DTypeLike

if TYPE_CHECKING:
    from tracegrad.typing import DeviceLike


__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


# -- without parameters -----------------------------------------------------------------------------------------------
class _Activation(FunctionModule):
    """Base class of activations without parameters."""

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return self._function(input)


class _InplaceActivation(FunctionModule):
    """Base class of activations with the only parameter `inplace`: whether the input is overwritten."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return self._function(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_InplaceActivation, function=F.relu):
    """max(x, 0), element by element.

    >>> import numpy as np
    >>> ReLU()(np.array([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """


class RReLU(_InplaceActivation, function=F.rrelu):
    """x for x > 0, and otherwise x times a slope: in training a random one for each element, else the mean.

    RuntimeError in a call if `lower` is above `upper`.

    >>> import tracegrad as tg
    >>> RReLU(0.25, 0.75).eval()(tg.tensor([-1.0, 2.0]))
    tensor([-0.5000,  2.0000])
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False):
        super().__init__(inplace)
        self.lower, self.upper = lower, upper

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return self._function(input, self.lower, self.upper, self.training, inplace=self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}{', inplace=True' if self.inplace else ''}"


class ReLU6(_InplaceActivation, function=F.relu6):
    """min(max(x, 0), 6), element by element.

    >>> round(float(ReLU6()(9.0)), 4)
    6.0
    """


class SELU(_InplaceActivation, function=F.selu):
    """1.0507 * x for x > 0, and 1.7581 * (exp(x) - 1) otherwise, which keeps mean 0 and variance 1.

    Source: Klambauer et al. 2017, "Self-Normalizing Neural Networks".

    >>> round(float(SELU()(-1.0)), 4)
    -1.1113
    """


class SiLU(_InplaceActivation, function=F.silu):
    """x * sigmoid(x), element by element.

    >>> round(float(SiLU()(-1.0)), 4)
    -0.2689
    """


class Mish(_InplaceActivation, function=F.mish):
    """x * tanh(softplus(x)), element by element.

    >>> round(float(Mish()(-1.0)), 4)
    -0.3034
    """


class Hardsigmoid(_InplaceActivation, function=F.hardsigmoid):
    """x / 6 + 1/2, clamped to [0, 1], element by element.

    >>> round(float(Hardsigmoid()(-1.0)), 4)
    0.3333
    """


class Hardswish(_InplaceActivation, function=F.hardswish):
    """x times x / 6 + 1/2 clamped to [0, 1], element by element.

    >>> round(float(Hardswish()(-1.0)), 4)
    -0.3333
    """


class Sigmoid(_Activation, function=F.sigmoid):
    """1 / (1 + exp(-x)), element by element.

    >>> round(float(Sigmoid()(-1.0)), 4)
    0.2689
    """


class Tanh(_Activation, function=F.tanh):
    """tanh(x), element by element.

    >>> round(float(Tanh()(-1.0)), 4)
    -0.7616
    """


class LogSigmoid(_Activation, function=F.logsigmoid):
    """log(sigmoid(x)), element by element.

    >>> round(float(LogSigmoid()(-1.0)), 4)
    -1.3133
    """


class Softsign(_Activation, function=F.softsign):
    """x / (1 + abs(x)), element by element.

    >>> round(float(Softsign()(-1.0)), 4)
    -0.5
    """


class Tanhshrink(_Activation, function=F.tanhshrink):
    """x - tanh(x), element by element.

    >>> round(float(Tanhshrink()(-1.0)), 4)
    -0.2384
    """


# -- with parameters --------------------------------------------------------------------------------------------------
def _with(text: str, inplace: bool) -> str:
    return f"{text}, inplace=True" if inplace else text


class LeakyReLU(Module):
    """x for x > 0, and negative_slope * x otherwise, element by element.

    >>> round(float(LeakyReLU(0.5)(-1.0)), 4)
    -0.5
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False):
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return F.leaky_relu(input, self.negative_slope, inplace=self.inplace)

    def extra_repr(self) -> str:
        return _with(f"negative_slope={self.negative_slope}", self.inplace)


class _ExponentialUnit(FunctionModule):
    """Base class of x above 0, and a saturating exponential below."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return self._function(input, self.alpha, inplace=self.inplace)

    def extra_repr(self) -> str:
        return _with(f"alpha={self.alpha}", self.inplace)


class ELU(_ExponentialUnit, function=F.elu):
    """x for x > 0, and alpha * (exp(x) - 1) otherwise, element by element.

    >>> round(float(ELU()(-1.0)), 4)
    -0.6321
    """


class CELU(_ExponentialUnit, function=F.celu):
    """x for x > 0, and alpha * (exp(x / alpha) - 1) otherwise, element by element.

    >>> round(float(CELU()(-1.0)), 4)
    -0.6321
    """


class GELU(Module):
    """x times the standard normal distribution function of x, element by element.

    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units".

    >>> round(float(GELU()(-1.0)), 4)
    -0.1587
    """

    def __init__(self, approximate: str = "none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Hardtanh(Module):
    """x clamped to [min_val, max_val], element by element.

    >>> round(float(Hardtanh()(9.0)), 4)
    1.0
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
        super().__init__()
        if max_val <= min_val:
            raise AssertionError("max_val must be larger than min_val")
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return F.hardtanh(input, self.min_val, self.max_val, inplace=self.inplace)

    def extra_repr(self) -> str:
        return _with(f"min_val={self.min_val}, max_val={self.max_val}", self.inplace)


class Threshold(Module):
    """x for x > threshold, and `value` otherwise, element by element.

    >>> round(float(Threshold(0.0, 9.0)(-1.0)), 4)
    9.0
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return F.threshold(input, self.threshold, self.value, inplace=self.inplace)

    def extra_repr(self) -> str:
        return _with(f"threshold={self.threshold}, value={self.value}", self.inplace)


class _Shrink(FunctionModule):
    """Base class of the functions that are 0 near 0."""

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return self._function(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrink, function=F.hardshrink):
    """0 for abs(x) <= lambd, and x otherwise, element by element.

    >>> round(float(Hardshrink(1.5)(-1.0)), 4)
    0.0
    """


class Softshrink(_Shrink, function=F.softshrink):
    """0 for abs(x) <= lambd, and x moved towards 0 by lambd otherwise.

    >>> round(float(Softshrink(0.5)(-1.0)), 4)
    -0.5
    """


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, element by element.

    >>> round(float(Softplus()(-1.0)), 4)
    0.3133
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class PReLU(Module):
    """x for x > 0, and weight * x otherwise; the slope `weight` is a parameter.

    >>> import tracegrad as tg
    >>> PReLU()(tg.tensor([-1.0, 2.0])).detach()
    tensor([-0.2500,  2.0000])
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: DeviceLike = None, dtype: DTypeLike = None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the parameters to their initial values."""
        constant_(self.weight, self.init)

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


# -- along a dimension ------------------------------------------------------------------------------------------------
class GLU(Module):
    """The first half along a dimension times the sigmoid of the second half.

    >>> import tracegrad as tg
    >>> GLU()(tg.tensor([2.0, 0.0]))
    tensor([1.])
    """

    def __init__(self, dim: int = -1):
        super().__init__()
        self.dim = dim

    def forward(self, input: Array) -> Array:
        """Return the output, half as large along `dim`."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


def _implicit_dim(name: str, input: Array) -> int:
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if len(input.shape) in (0, 1, 3) else 1


class Softmax(FunctionModule, function=F.softmax):
    """exp(x) / sum(exp(x)) along a dimension.

    >>> import numpy as np
    >>> Softmax(dim=0)(np.zeros(4)).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input."""
        dim = _implicit_dim(self._function.__name__, input) if self.dim is None else self.dim
        return self._function(input, dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(Softmax, function=F.softmin):
    """The softmax of -x along a dimension.

    >>> import tracegrad as tg
    >>> Softmin(0)(tg.tensor([-1.0, 2.0]))
    tensor([0.9526, 0.0474])
    """


class LogSoftmax(Softmax, function=F.log_softmax):
    """The logarithm of the softmax along a dimension.

    >>> import tracegrad as tg
    >>> LogSoftmax(0)(tg.tensor([-1.0, 2.0]))
    tensor([-3.0486, -0.0486])
    """


class Softmax2d(Module):
    """The softmax over the channels of an image.

    >>> import tracegrad as tg
    >>> Softmax2d()(tg.zeros(2, 1, 1)).flatten()
    tensor([0.5000, 0.5000])
    """

    def forward(self, input: Array) -> Array:
        """Return the output, in the shape of the input. ValueError for another number of dimensions."""
        if len(input.shape) not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {len(input.shape)}D instead")
        return F.softmax(input, -3)
