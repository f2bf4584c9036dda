"""What `torch.linalg` offers: functions of matrices."""

from tracegrad.torch.functions import linalg
from tracegrad.torch.functions.linalg import *  # noqa: F403
from tracegrad.torch.functions.out import with_out

__all__ = list(linalg.__all__)
globals().update({name: with_out(name, getattr(linalg, name)) for name in linalg.__all__ if name != "LinAlgError"})
