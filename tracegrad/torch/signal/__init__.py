"""Namespace of `torch.signal`: windows."""

from tracegrad.torch.signal import windows

__all__ = ["windows"]
