"""Checkpoints of functions: their intermediate values are computed again in the backward pass instead of saved.

Eagerly, the forward pass saves the arguments, and a placeholder for each tensor that a node would save
(`saved_tensors_hooks`). The first placeholder that the backward pass asks for runs the function again, which fills all
of them. In a trace the function is traced as it is, with its effects; there `tg.checkpoint` recomputes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from tracegrad import tree
from tracegrad.errors import located
from tracegrad.ops.core.recorders import active_recorder
from tracegrad.torch.autograd.graph import saved_tensors_hooks
from tracegrad.torch.functions.core.generator import default_generator
from tracegrad.torch.modes import enable_grad, is_grad_enabled, no_grad
from tracegrad.torch.tape import Tensor

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_early_stop"]

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


def noop_context_fn() -> Contexts:
    """Return two contexts without effect: the default `context_fn` of `checkpoint`.

    Returns
    -------
    tuple of context managers
        Those of the forward pass and of the recomputation.

    Examples
    --------
    >>> len(noop_context_fn())
    2
    """
    return nullcontext(), nullcontext()


class _Overrides:
    """What contexts have set for all checkpoints; None: each call decides."""

    early_stop: bool | None = None


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Set the argument `early_stop` of the calls of `checkpoint` in a block, whatever they pass.

    Parameters
    ----------
    enable : bool
        Whether recomputations end when all saved values are there.

    Returns
    -------
    context manager
        Context of the block.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x = tensor([1.0], requires_grad=True)
    >>> with set_checkpoint_early_stop(False):
    ...     y = checkpoint(lambda x: x.exp().log(), x, use_reentrant=False)
    >>> y.backward()
    """
    before, _Overrides.early_stop = _Overrides.early_stop, enable
    try:
        yield
    finally:
        _Overrides.early_stop = before


def checkpoint(
    function: Callable[..., Any],
    *args: object,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call a function whose intermediate values the backward pass computes again.

    Parameters
    ----------
    function : callable
        Function, or module.
    *args : object
        Its arguments.
    use_reentrant : bool
        True: if no argument that is a Tensor requires grad, the results do not either. Without it, a UserWarning.
    context_fn : callable
        Function that returns two context managers, for the forward pass and for the recomputation.
    determinism_check : str, default "default"
        "default" compares the shapes and dtypes of the saved values with those of the recomputation; "none" does not.
    debug : bool, default False
        Without effect.
    early_stop : bool, default True
        Whether the recomputation ends when all saved values are there.
    preserve_rng_state : bool, default True
        Whether the recomputation draws the random numbers of the forward pass.
    **kwargs : object
        Keyword arguments of the function.

    Returns
    -------
    object
        Result of the function.

    Raises
    ------
    ValueError
        With `use_reentrant=True`, for keyword arguments or a `context_fn`.
    CheckpointError
        In the backward pass, if the recomputation saves other values than the forward pass.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x = tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint(lambda x: (x * x).exp().log(), x, use_reentrant=False).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """
    if _is_reentrant(use_reentrant):
        if context_fn is not noop_context_fn or debug:
            raise ValueError(located("Passing `context_fn` or `debug` is only supported when use_reentrant=False."))
        if kwargs:
            named = ",".join(kwargs)
            raise ValueError(located(f"Unexpected keyword arguments: {named}; they need use_reentrant=False"))
        if is_grad_enabled() and not _requires_grad(args):
            warnings.warn(located(_NO_GRADIENT), UserWarning, stacklevel=2)
            with no_grad():
                return function(*args)
    forward, recompute = context_fn()
    if not is_grad_enabled() or active_recorder() is not None:
        with forward:
            return function(*args, **kwargs)
    if _Overrides.early_stop is not None:
        early_stop = _Overrides.early_stop
    frame = _Frame(function, args, kwargs, recompute, determinism_check == "default", early_stop, preserve_rng_state)
    with forward, frame.saving():
        return function(*args, **kwargs)


_UNSAID = (
    "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. use_reentrant=False is "
    "recommended; True, the default, gives no gradients if no argument requires grad"
)
_NO_GRADIENT = "None of the inputs have requires_grad=True. Gradients will be None"


def _is_reentrant(use_reentrant: bool | None) -> bool:
    """Return the argument `use_reentrant`; True, with a UserWarning, if it is not passed."""
    if use_reentrant is None:
        warnings.warn(located(_UNSAID), UserWarning, stacklevel=3)
        return True
    return use_reentrant


def _requires_grad(args: tuple[object, ...]) -> bool:
    return any(isinstance(each, Tensor) and each.requires_grad for each in args)


class CheckpointError(RuntimeError):
    """Recomputation of a checkpointed function that differs from its forward pass."""


class _StopRecomputation(Exception):
    """All saved values are there."""


class _Placeholder:
    """What a node saves in place of a tensor: the checkpoint, and the number of the tensor among its saved ones."""

    __slots__ = ("dtype", "frame", "number", "shape")

    def __init__(self, frame: _Frame, number: int, tensor: Any):
        self.frame, self.number = frame, number
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype


class _Frame:
    """A call of a checkpointed function: how to repeat it, and the values of its last repetition.

    The values of a repetition are used once each. When the backward pass runs again, the function does too.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        context: AbstractContextManager[Any],
        checks: bool,
        early_stop: bool,
        preserves_rng: bool,
    ):
        self.function, self.args, self.kwargs, self.context = function, args, kwargs, context
        self.checks, self.early_stop = checks, early_stop
        self.rng = default_generator.get_state() if preserves_rng else None
        self.count = 0
        self.values: dict[int, Any] = {}

    def saving(self) -> saved_tensors_hooks:
        """Return the context of the forward pass."""
        return saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, tensor: Tensor) -> _Placeholder:
        self.count += 1
        return _Placeholder(self, self.count - 1, tensor)

    def _unpack(self, placeholder: _Placeholder) -> Any:
        number = placeholder.number
        if number not in self.values:
            self._recompute()
        if number not in self.values:
            text = (
                "A different number of tensors was saved during the original forward and recomputation: "
                f"{self.count} during forward, {len(self.values)} during recomputation"
            )
            raise CheckpointError(located(f"torch.utils.checkpoint: {text}"))
        value = self.values.pop(number)
        if self.checks and (tuple(value.shape), value.dtype) != (placeholder.shape, placeholder.dtype):
            text = "Recomputed values for the following tensors have different metadata than during the forward pass"
            before = f"shape {placeholder.shape} and dtype {placeholder.dtype} in the forward pass"
            again = f"shape {tuple(value.shape)} and dtype {value.dtype} in the recomputation"
            raise CheckpointError(located(f"torch.utils.checkpoint: {text}: tensor {number} has {before}, {again}"))
        return value

    def _recompute(self) -> None:
        values: dict[int, Any] = {}

        def pack(tensor: Tensor) -> object:
            values[len(values)] = tensor.detach()
            if self.early_stop and len(values) == self.count:
                raise _StopRecomputation
            return tensor.detach()

        args, kwargs = tree.map(_detached, (self.args, self.kwargs))
        hooks = saved_tensors_hooks(pack, lambda tensor: tensor)
        with _drawing(self.rng), enable_grad(), self.context, hooks, suppress(_StopRecomputation):
            self.function(*args, **kwargs)
        self.values = values


def _detached(x: Tensor) -> Tensor:
    return x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x


@contextmanager
def _drawing(state: object) -> Iterator[None]:
    """Context in which the default generator starts at a state, and after which it goes on as before."""
    if state is None:
        yield
        return
    before = default_generator.get_state()
    default_generator.set_state(state)
    try:
        yield
    finally:
        default_generator.set_state(before)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Call functions one after another, and checkpoint all segments of them except the last.

    Parameters
    ----------
    functions : Sequential or sequence of callable
        Functions of one argument.
    segments : int
        Number of segments of equal length.
    input : object
        Argument of the first function.
    use_reentrant : bool
        As for `checkpoint`.
    **kwargs : object
        `preserve_rng_state`, as for `checkpoint`.

    Returns
    -------
    object
        Result of the last function.

    Raises
    ------
    ValueError
        For other keyword arguments.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x = tensor([1.0, 2.0], requires_grad=True)
    >>> y = checkpoint_sequential([lambda x: x * x, lambda x: x.exp(), lambda x: x.log()], 2, x, use_reentrant=False)
    >>> y.sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """
    use_reentrant = _is_reentrant(use_reentrant)
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError(located("Unexpected keyword arguments: " + ",".join(kwargs)))
    parts = list(functions)
    size = max(len(parts) // segments, 1)
    starts = range(0, size * (segments - 1), size)
    for start in starts:
        segment = _composed(parts[start : start + size])
        input = checkpoint(segment, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _composed(parts[size * (segments - 1) :])(input)


def _composed(functions: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def call(x: Tensor) -> Tensor:
        for function in functions:
            x = function(x)
        return x

    return call
