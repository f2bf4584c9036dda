"""Namespace of `torch.nn.modules`: all layers, and PyTorch's modules of layers by PyTorch's names."""

import sys
from typing import TYPE_CHECKING

from tracegrad.torch.nn import (
    activation,
    container,
    conv,
    dropout,
    linear,
    loss,
    module,
    normalization,
    pooling,
    reshaping,
    rnn,
    transformer,
    upsampling,
)
from tracegrad.torch.nn.lazy import lazy_module
from tracegrad.torch.nn.modules import utils as _utils
from tracegrad.utils import lazy_import

if TYPE_CHECKING:
    from tracegrad.torch.nn import *  # noqa: F403

_MODULES = {
    "activation": activation,
    "batchnorm": normalization,
    "container": container,
    "conv": conv,
    "distance": loss,
    "dropout": dropout,
    "flatten": reshaping,
    "fold": upsampling,
    "instancenorm": normalization,
    "lazy": lazy_module,
    "linear": linear,
    "loss": loss,
    "module": module,
    "normalization": normalization,
    "padding": reshaping,
    "pixelshuffle": reshaping,
    "pooling": pooling,
    "rnn": rnn,
    "sparse": linear,
    "transformer": transformer,
    "upsampling": upsampling,
    "utils": _utils,
}
for _name, _module in _MODULES.items():
    globals()[_name] = sys.modules[f"{__name__}.{_name}"] = _module

__getattr__, __dir__ = lazy_import.mirrored(globals(), "tracegrad.torch.nn")
