"""Gradient clipping, and parameters as one vector."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tracegrad.errors import located
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.modes import no_grad
from tracegrad.torch.nn.docs import MODULE_DOCS
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.factories import tensor

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "parameters_to_vector",
    "vector_to_parameters",
]

_stack, _cat = FUNCTIONS["stack"], FUNCTIONS["cat"]


def _all(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def _gradients(parameters: list[Tensor]) -> list[Tensor]:
    return [p.grad for p in parameters if p.grad is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Return the norm of all elements of Tensors as one vector.

    RuntimeError if `error_if_nonfinite` and it is not finite.

    >>> import tracegrad as tg
    >>> get_total_norm([tg.tensor([3.0]), tg.tensor([4.0])])
    tensor(5.)
    """
    args = _all(tensors)
    if not args:
        return tensor(0.0)
    total = _stack([x.reshape(-1).norm(float(norm_type)) for x in args]).norm(float(norm_type))
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(
            located(
                f"The total norm of order {float(norm_type)} for gradients from `parameters` is non-finite, so it "
                "cannot be clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
                "`error_if_nonfinite=False`"
            )
        )
    result: Tensor = total
    return result


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients of this total norm in place, so that the norm is at most `max_norm`.

    >>> import tracegrad as tg
    >>> w = tg.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> clip_grads_with_norm_([w], 1.0, tg.tensor(10.0))
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    with no_grad():
        factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
        for grad in _gradients(_all(parameters)):
            grad.mul_(factor)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients of all parameters in place to a total norm of at most `max_norm`.

    RuntimeError if `error_if_nonfinite` and the norm is not finite; then nothing is scaled.

    >>> from tracegrad.torch.nn import Linear
    >>> layer = Linear(3, 1)
    >>> layer(layer.weight.detach() * 100).sum().backward()
    >>> norm = clip_grad_norm_(layer.parameters(), 1.0)
    >>> bool(get_total_norm([p.grad for p in layer.parameters()]) < 1.0001)
    True
    """
    args = _all(parameters)
    with no_grad():
        total = get_total_norm(_gradients(args), norm_type, error_if_nonfinite)
        clip_grads_with_norm_(args, max_norm, total)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp all elements of the gradients in place to [-clip_value, clip_value].

    >>> import tracegrad as tg
    >>> w = tg.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> clip_grad_value_([w], 7.0)
    >>> w.grad
    tensor([6., 7.])
    """
    with no_grad():
        for grad in _gradients(_all(parameters)):
            grad.clamp_(-float(clip_value), float(clip_value))


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenate the elements of all parameters into one vector.

    >>> from tracegrad.torch.nn import Linear
    >>> parameters_to_vector(Linear(3, 2).parameters()).shape
    torch.Size([8])
    """
    result: Tensor = _cat([p.reshape(-1) for p in parameters])
    return result


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy the elements of a vector into parameters, in place.

    TypeError if `vec` is no Tensor, RuntimeError if it has too few or too many elements; then nothing is changed.

    >>> import tracegrad as tg
    >>> w = tg.zeros(2)
    >>> vector_to_parameters(tg.tensor([1.0, 2.0]), [w])
    >>> w
    tensor([1., 2.])
    """
    if not isinstance(vec, Tensor):
        raise TypeError(located(f"expected a Tensor, but got: {type(vec).__name__}"))
    args = list(parameters)
    count = sum(p.numel() for p in args)
    if vec.shape != (count,):
        raise RuntimeError(located(f"the parameters have {count} elements, and the vector the shape {vec.shape}"))
    with no_grad():
        start = 0
        for p in args:
            p.copy_(vec[start : start + p.numel()].reshape(p.shape))
            start += p.numel()


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Call `clip_grad_norm_`, of which this is the deprecated name.

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     clip_grad_norm([], 1.0)
    tensor(0.)
    """
    text = "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`."
    warnings.warn(located(text), FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


MODULE_DOCS.document(globals(), __all__)
