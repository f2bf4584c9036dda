"""What `torch.nn` offers: modules, their parameters, and what initialises and clips these."""

from tracegrad.torch.nn import (
    activation,
    attention,
    dropout,
    functional,
    init,
    linear,
    normalization,
    pooling,
    transformer,
    utils,
)
from tracegrad.torch.nn import container as containers
from tracegrad.torch.nn import conv as convolution
from tracegrad.torch.nn import loss as losses
from tracegrad.torch.nn import reshaping as shapes
from tracegrad.torch.nn import rnn as recurrent
from tracegrad.torch.nn.activation import *  # noqa: F403
from tracegrad.torch.nn.attention import *  # noqa: F403
from tracegrad.torch.nn.container import *  # noqa: F403
from tracegrad.torch.nn.conv import *  # noqa: F403
from tracegrad.torch.nn.dropout import *  # noqa: F403
from tracegrad.torch.nn.linear import *  # noqa: F403
from tracegrad.torch.nn.loss import *  # noqa: F403
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.normalization import *  # noqa: F403
from tracegrad.torch.nn.parameter import Buffer, Parameter
from tracegrad.torch.nn.pooling import *  # noqa: F403
from tracegrad.torch.nn.reshaping import *  # noqa: F403
from tracegrad.torch.nn.rnn import *  # noqa: F403
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
