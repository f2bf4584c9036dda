"""Namespace of `torch.nn.functional`: activations, losses and layers as functions."""

from tracegrad.torch.functions.nn import nn_functional
from tracegrad.torch.functions.nn.nn_functional import *  # noqa: F403

__all__ = list(nn_functional.__all__)
