"""What `torch.linalg` offers: functions of matrices."""

from tracegrad.torch.functions import linalg
from tracegrad.torch.functions.linalg import *  # noqa: F403

__all__ = list(linalg.__all__)
