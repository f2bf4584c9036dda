"""Namespace of `torch.nn.utils`: gradient clipping, parameters as one vector, computed weights, and sequences."""

from tracegrad.torch.nn.utils import clip_grad, parametrizations, parametrize, prune, rnn, weights
from tracegrad.torch.nn.utils.clip_grad import *  # noqa: F403
from tracegrad.torch.nn.utils.weights import *  # noqa: F403

__all__ = ["parametrizations", "parametrize", "prune", "rnn"]
__all__ += clip_grad.__all__
__all__ += weights.__all__
