"""What `torch.nn.functional` offers: activations, losses and layers as functions."""

from tracegrad.torch_api import nn_functional
from tracegrad.torch_api.nn_functional import *  # noqa: F403

__all__ = list(nn_functional.__all__)
