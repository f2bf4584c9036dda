"""Namespace of `torch.special`: elementwise special functions."""

from tracegrad.torch.functions.math import special
from tracegrad.torch.functions.math.special import *  # noqa: F403

__all__ = list(special.__all__)
