"""Name `Variable`, PyTorch's name of a Tensor before version 0.4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad.errors import located
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape import Tensor

__all__ = ["Variable"]


class _ExecutionEngine:
    """Interface to the active backward pass, by the name that PyTorch's own packages use."""

    @staticmethod
    def queue_callback(callback: Callable[[], object]) -> None:
        """Call a function when the active backward pass has written its gradients; RuntimeError without a pass."""
        if STATE.sweep is None:
            raise RuntimeError(located("Final callbacks can only be installed during backward pass."))
        STATE.sweep.callbacks = (*STATE.sweep.callbacks, callback)


class _VariableMeta(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor)


class Variable(metaclass=_VariableMeta):
    """Tensor with the memory of another Tensor, which is a leaf. Any Tensor is an instance.

    Parameters
    ----------
    data : Tensor
        Value, whose memory is shared.
    requires_grad : bool
        Whether operations on it are recorded.
    volatile : object
        Without effect.

    Raises
    ------
    TypeError
        If `data` is no Tensor.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x = Variable(tensor([1.0]), requires_grad=True)
    >>> x, isinstance(x, Variable)
    (tensor([1.], requires_grad=True), True)
    """

    _execution_engine = _ExecutionEngine()

    def __new__(cls, data: Any, requires_grad: bool = False, volatile: object = None) -> Any:
        if not isinstance(data, Tensor):
            raise TypeError(located(f"Variable data has to be a tensor, but got {type(data).__name__}"))
        return data.detach().requires_grad_(requires_grad)
