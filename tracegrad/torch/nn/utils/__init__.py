"""Namespace of `torch.nn.utils`: gradient clipping, parameters as one vector, computed weights, and sequences."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from tracegrad.torch.nn.utils import clip_grad, rnn, weights
from tracegrad.torch.nn.utils.clip_grad import *  # noqa: F403
from tracegrad.torch.nn.utils.weights import *  # noqa: F403

if TYPE_CHECKING:
    from tracegrad.torch.nn.utils import parametrizations, parametrize, prune

# Recurrent networks need `rnn`. The other modules are imported at their first use.
__all__ = ["parametrizations", "parametrize", "prune", "rnn"]
__all__ += clip_grad.__all__
__all__ += weights.__all__


def __getattr__(name: str) -> ModuleType:
    if name in ("parametrizations", "parametrize", "prune"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"{__name__} has no {name!r}", name=name)
