"""What `torch.linalg` offers: functions of matrices."""

from tracegrad.torch.functions.core.out import with_out
from tracegrad.torch.functions.linalg import matrices as linalg
from tracegrad.torch.functions.linalg.matrices import *  # noqa: F403

__all__ = list(linalg.__all__)
globals().update({name: with_out(name, getattr(linalg, name)) for name in linalg.__all__ if name != "LinAlgError"})
