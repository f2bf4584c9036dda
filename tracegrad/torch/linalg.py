"""Namespace of `torch.linalg`: matrix functions."""

from tracegrad.torch.functions.core.out import with_out
from tracegrad.torch.functions.linalg import matrices
from tracegrad.torch.functions.linalg.matrices import *  # noqa: F403

__all__ = list(matrices.__all__)
globals().update({name: with_out(name, getattr(matrices, name)) for name in matrices.__all__ if name != "LinAlgError"})
