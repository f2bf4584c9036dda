"""Names of the PyTorch front end that `tracegrad` exports: the Tensor, functions, and factories."""

from __future__ import annotations

import math
from typing import Any

from tracegrad.avals import Size
from tracegrad.tensor_dtype import TensorDType
from tracegrad.torch import array_api, modes, process_settings
from tracegrad.torch.amp import autocast_mode
from tracegrad.torch.autograd.anomaly_mode import is_anomaly_check_nan_enabled, is_anomaly_enabled
from tracegrad.torch.functions.core import device, formats
from tracegrad.torch.functions.core.out import WITH_OUT, with_out
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.nn import nn_functional
from tracegrad.torch.functions.of_methods import OF_METHODS
from tracegrad.torch.signal.windows import LONG_NAMES
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors import (
    conversion,
    default_rng,
    devices,
    dtypes,
    factories,
    legacy_types,
    printing,
    random,
    ranges,
)

__all__ = ["NAMES"]

# Layers and losses of `nn.functional` that the package exports under the same names.
_LAYERS = (
    "adaptive_avg_pool1d", "alpha_dropout", "avg_pool1d", "bilinear", "celu", "celu_", "channel_shuffle", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss",
    "cosine_similarity", "dropout", "feature_alpha_dropout", "group_norm", "hardshrink", "hinge_embedding_loss",
    "layer_norm", "margin_ranking_loss", "max_pool1d", "max_pool2d", "max_pool3d", "pairwise_distance", "pdist",
    "pixel_shuffle", "pixel_unshuffle", "prelu", "rms_norm", "rrelu", "rrelu_", "selu", "selu_", "threshold",
    "threshold_", "triplet_margin_loss",
)  # fmt: skip

# Functions that take layout=, pin_memory= and memory_format=.
_WITH_MEMORY = (
    *LONG_NAMES,
    "arange",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "normal",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "range",
    "zeros",
    "zeros_like",
)

_TENSOR_MODULES = (
    dtypes,
    device,
    devices,
    factories,
    legacy_types,
    default_rng,
    random,
    ranges,
    conversion,
    process_settings,
)

NAMES: dict[str, Any] = {
    "Size": Size,
    "Tensor": Tensor,
    "array_api": array_api,
    "get_printoptions": printing.get_printoptions,
    "is_anomaly_check_nan_enabled": is_anomaly_check_nan_enabled,
    "is_anomaly_enabled": is_anomaly_enabled,
    "is_inference": Tensor.is_inference,
    "numel": Tensor.numel,
    "set_printoptions": printing.set_printoptions,
    "autocast": autocast_mode.autocast,
    "dtype": TensorDType,
    "get_autocast_dtype": autocast_mode.get_autocast_dtype,
    "is_autocast_enabled": autocast_mode.is_autocast_enabled,
    **dtypes.DTYPES,
    **{name: getattr(modes, name) for name in modes.__all__ if name not in ("STATE", "as_usual")},
    **{name: getattr(module, name) for module in _TENSOR_MODULES for name in module.__all__ if name != "fork_rng"},
    **{name: getattr(formats, name) for name in formats.__all__ if name not in ("check_format", "with_memory")},
    **{name: getattr(nn_functional, name) for name in _LAYERS},
    "e": math.e,
    "inf": math.inf,
    "nan": math.nan,
    "newaxis": None,
    "pi": math.pi,
    **LONG_NAMES,
    **OF_METHODS,
    **FUNCTIONS,
}
NAMES.update({name: formats.with_memory(NAMES[name], name) for name in _WITH_MEMORY if name in NAMES})
NAMES.update({name: with_out(name, NAMES[name]) for name in WITH_OUT if name in NAMES})
