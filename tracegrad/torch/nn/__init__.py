"""What `torch.nn` offers: modules, their parameters, and what initialises and clips these."""

from tracegrad.torch.nn import (
    activation,
    attention,
    containers,
    convolution,
    dropout,
    functional,
    init,
    linear,
    losses,
    normalization,
    pooling,
    recurrent,
    shapes,
    transformer,
    utils,
)
from tracegrad.torch.nn.activation import *  # noqa: F403
from tracegrad.torch.nn.attention import *  # noqa: F403
from tracegrad.torch.nn.containers import *  # noqa: F403
from tracegrad.torch.nn.convolution import *  # noqa: F403
from tracegrad.torch.nn.dropout import *  # noqa: F403
from tracegrad.torch.nn.linear import *  # noqa: F403
from tracegrad.torch.nn.losses import *  # noqa: F403
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.normalization import *  # noqa: F403
from tracegrad.torch.nn.parameter import Buffer, Parameter
from tracegrad.torch.nn.pooling import *  # noqa: F403
from tracegrad.torch.nn.recurrent import *  # noqa: F403
from tracegrad.torch.nn.shapes import *  # noqa: F403
from tracegrad.torch.nn.transformer import *  # noqa: F403

__all__ = ["Buffer", "Module", "Parameter", "functional", "init", "utils"]
__all__ += activation.__all__
__all__ += attention.__all__
__all__ += containers.__all__
__all__ += convolution.__all__
__all__ += dropout.__all__
__all__ += linear.__all__
__all__ += losses.__all__
__all__ += normalization.__all__
__all__ += pooling.__all__
__all__ += recurrent.__all__
__all__ += shapes.__all__
__all__ += transformer.__all__
