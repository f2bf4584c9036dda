"""What `torch.linalg` offers: functions of matrices."""

from tracegrad.torch_api import linalg
from tracegrad.torch_api.linalg import *  # noqa: F403

__all__ = list(linalg.__all__)
