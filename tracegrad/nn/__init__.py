"""What `torch.nn` offers."""

from tracegrad.nn import functional

__all__ = ["functional"]
