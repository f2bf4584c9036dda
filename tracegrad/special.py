"""What `torch.special` offers: special functions, element by element."""

from tracegrad.torch_api import special
from tracegrad.torch_api.special import *  # noqa: F403

__all__ = list(special.__all__)
