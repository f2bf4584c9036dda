"""Class `FunctionModule`: modules that apply one function of `nn.functional`, which the class statement names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad.torch.nn.module import Module
from tracegrad.typing import Array

__all__ = ["FunctionModule"]


class FunctionModule(Module):
    """Module whose `forward` applies a function; modules with the same arguments share one `forward`.

    >>> import numpy as np
    >>> class Activation(FunctionModule):
    ...     def forward(self, input):
    ...         return self._function(input)
    >>> class Root(Activation, function=np.sqrt):
    ...     pass
    >>> float(Root()(4.0))
    2.0
    """

    _function: Callable[..., Array]

    def __init_subclass__(cls, function: Callable[..., Any] | None = None, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if function is not None:
            cls._function = staticmethod(function)
