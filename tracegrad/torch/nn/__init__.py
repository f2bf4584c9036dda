"""What `torch.nn` offers."""

from tracegrad.torch.nn import functional

__all__ = ["functional"]
