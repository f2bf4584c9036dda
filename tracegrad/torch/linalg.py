"""Namespace of `torch.linalg`: matrix functions."""

from tracegrad.torch.functions.core.out import with_out
from tracegrad.torch.functions.linalg import factorizations, lapack, matrices
from tracegrad.torch.functions.linalg.factorizations import *  # noqa: F403
from tracegrad.torch.functions.linalg.lapack import *  # noqa: F403
from tracegrad.torch.functions.linalg.matrices import *  # noqa: F403

__all__ = list(factorizations.__all__)
__all__ += lapack.__all__
__all__ += matrices.__all__
globals().update(
    {
        name: with_out(name, getattr(module, name))
        for module in (factorizations, lapack, matrices)
        for name in module.__all__
        if name != "LinAlgError"
    }
)
