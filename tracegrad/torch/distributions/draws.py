"""Draw the numbers that samples are computed from, eagerly and at each call of a traced function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.scipy_api.special import call
from tracegrad.torch.distributions.utils import clamp_open
from tracegrad.torch.tape.tensors.dtypes import finfo
from tracegrad.torch.tape.tensors.random import draw_with, rand
from tracegrad.typing import DType, Shape

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


def uniform(shape: Shape, dtype: DType) -> Tensor:
    """Draw numbers from the open interval between 0 and 1."""
    return clamp_open(rand(shape, dtype=dtype))


def exponential(shape: Shape, dtype: DType) -> Tensor:
    """Draw positive numbers from the exponential distribution of rate 1."""
    return -uniform(shape, dtype).log()


def gamma(concentration: Tensor) -> Tensor:
    """Draw one number for each concentration from the gamma distribution of rate 1.

    The derivative of a number x with respect to the concentration a is -(dF/da) / (dF/dx), for the distribution
    function F(a, x): implicit reparameterization (Figurnov, Mohamed, Mnih 2018).
    """
    drawn = draw_with("gamma", "standard_gamma", (concentration,), concentration.dtype)
    return call("_drawn_gamma", concentration, drawn.clamp(min=float(finfo(drawn.dtype).tiny)))  # type: ignore[return-value]  # of a Tensor
