"""Namespace of `torch.nn`: modules, parameters, initialization and gradient clipping."""

from tracegrad.torch.nn import (
    activation,
    attention,
    container,
    conv,
    dropout,
    functional,
    init,
    lazy,
    linear,
    loss,
    modules,
    normalization,
    pooling,
    reshaping,
    rnn,
    transformer,
    upsampling,
    utils,
)
from tracegrad.torch.nn.activation import *  # noqa: F403
from tracegrad.torch.nn.attention import *  # noqa: F403
from tracegrad.torch.nn.container import *  # noqa: F403
from tracegrad.torch.nn.conv import *  # noqa: F403
from tracegrad.torch.nn.docs import MODULE_DOCS
from tracegrad.torch.nn.dropout import *  # noqa: F403
from tracegrad.torch.nn.lazy.layers import *  # noqa: F403
from tracegrad.torch.nn.linear import *  # noqa: F403
from tracegrad.torch.nn.loss import *  # noqa: F403
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.normalization import *  # noqa: F403
from tracegrad.torch.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from tracegrad.torch.nn.pooling import *  # noqa: F403
from tracegrad.torch.nn.reshaping import *  # noqa: F403
from tracegrad.torch.nn.rnn import *  # noqa: F403
from tracegrad.torch.nn.transformer import *  # noqa: F403
from tracegrad.torch.nn.upsampling import *  # noqa: F403

__all__ = ["Buffer", "Module", "Parameter", "UninitializedBuffer", "UninitializedParameter"]
__all__ += ["functional", "init", "modules", "utils"]
__all__ += activation.__all__
__all__ += attention.__all__
__all__ += container.__all__
__all__ += conv.__all__
__all__ += dropout.__all__
__all__ += lazy.layers.__all__
__all__ += linear.__all__
__all__ += loss.__all__
__all__ += normalization.__all__
__all__ += pooling.__all__
__all__ += rnn.__all__
__all__ += reshaping.__all__
__all__ += transformer.__all__
__all__ += upsampling.__all__

MODULE_DOCS.document(globals(), __all__)
