"""Namespace of `torch.autograd.graph`: nodes and edges of the tape, saved-tensor hooks, and multi-grad hooks."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.locks import new_lock
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward.hooks import RemovableHandle
from tracegrad.torch.tape.recording.node import GradientEdge, Node, Spec

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array, NDArray


__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]

Hook = Callable[[Any], Any]


class saved_tensors_hooks:
    """Context manager in which the tape saves the result of a function in place of each Tensor.

    Parameters
    ----------
    pack_hook : callable
        Function of a Tensor, whose result is saved.
    unpack_hook : callable
        Function of the saved object to a Tensor, which the backward pass uses.

    Raises
    ------
    RuntimeError
        On entering within `disable_saved_tensors_hooks`.
    TypeError
        In the backward pass, if `unpack_hook` returns no Tensor.

    Notes
    -----
    Only the innermost pair of hooks is called.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x = tensor([2.0], requires_grad=True)
    >>> with saved_tensors_hooks(lambda t: t.tolist(), tensor):
    ...     y = x.exp()
    >>> y.backward()
    >>> bool(x.grad == y)
    True
    """

    def __init__(self, pack_hook: Hook, unpack_hook: Hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if STATE.refused:
            raise RuntimeError(located(STATE.refused))
        STATE.saving, STATE.unusual = (*STATE.saving, (self.pack_hook, self.unpack_hook)), True

    def __exit__(self, *_: object) -> None:
        STATE.saving = STATE.saving[:-1]
        STATE.update_unusual()


class save_on_cpu(saved_tensors_hooks):
    """Context manager in which saved values are stored in CPU memory, where all values are anyway.

    Parameters
    ----------
    pin_memory : bool
        Without effect.
    device_type : str
        Without effect.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x = tensor([2.0], requires_grad=True)
    >>> with save_on_cpu():
    ...     y = x * x
    >>> y.backward()
    >>> x.grad
    tensor([4.])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        super().__init__(lambda tensor: tensor, lambda tensor: tensor)


class disable_saved_tensors_hooks(contextlib.ContextDecorator):
    """Context manager in which hooks on saved tensors are an error.

    Parameters
    ----------
    error_message : str
        Text of the RuntimeError that is raised if hooks are or become active.

    Examples
    --------
    >>> with disable_saved_tensors_hooks("not here"), saved_tensors_hooks(id, id):  # doctest: +ELLIPSIS
    ...     pass
    Traceback (most recent call last):
    RuntimeError: not here...
    """

    def __init__(self, error_message: str):
        self.error_message = error_message

    def __enter__(self) -> None:
        if STATE.saving:
            raise RuntimeError(located(self.error_message))
        self.before, STATE.refused = STATE.refused, self.error_message

    def __exit__(self, *_: object) -> None:
        STATE.refused = self.before


class allow_mutation_on_saved_tensors(contextlib.ContextDecorator):
    """Context manager in which saved Tensors may be updated in place: the tape copies them before.

    Raises
    ------
    RuntimeError
        On entering within another such context.
    AssertionError
        If a backward pass through an operation recorded inside runs outside.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x = tensor([1.0, 2.0], requires_grad=True)
    >>> with allow_mutation_on_saved_tensors():
    ...     y = x.clone()
    ...     z = (y * y).sum()
    ...     _ = y.mul_(10.0)
    ...     z.backward()
    >>> x.grad
    tensor([2., 4.])
    """

    def __init__(self) -> None:
        # The saved values, by the id of the object that owns their memory.
        self._saved_by_memory: dict[int, weakref.WeakSet[_CopyOnWriteValue]] = {}
        # The saved values that have been copied.
        self._copied: weakref.WeakSet[_CopyOnWriteValue] = weakref.WeakSet()
        self._room = _ROOM
        self._hooks = saved_tensors_hooks(self._pack, self._unpack)

    def __enter__(self) -> allow_mutation_on_saved_tensors:
        if STATE.guarding is not None:
            raise RuntimeError(located("allow_mutation_on_saved_tensors contexts cannot be nested"))
        self._hooks.__enter__()
        STATE.guarding = self
        return self

    def __exit__(self, *_: object) -> None:
        STATE.guarding = None
        self._hooks.__exit__()
        self.clear()

    def clear(self) -> None:
        """Forget the saved copies."""
        for values in (*self._saved_by_memory.values(), self._copied):
            for value in values:
                value.tensor = None
        self._saved_by_memory.clear()
        self._copied.clear()

    def _pack(self, tensor: Tensor) -> _CopyOnWriteValue:
        value = _CopyOnWriteValue(tensor.detach())
        if len(self._saved_by_memory) >= self._room:
            self._saved_by_memory = {memory: values for memory, values in self._saved_by_memory.items() if values}
            self._room = max(_ROOM, 2 * len(self._saved_by_memory))
        if isinstance(tensor.array, np.ndarray):
            self._saved_by_memory.setdefault(id(_memory(tensor.array)), weakref.WeakSet()).add(value)
        return value

    def _unpack(self, value: _CopyOnWriteValue) -> Any:
        if STATE.guarding is not self or value.tensor is None:
            raise AssertionError(
                located(
                    "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph "
                    "was originally recorded."
                )
            )
        return value.tensor

    def before_update_of(self, array: NDArray) -> None:
        """Copy saved values in the memory of `array`, which is about to be overwritten."""
        for value in self._saved_by_memory.pop(id(_memory(array)), ()):
            value.tensor = value.tensor.clone()
            self._copied.add(value)


# The number of memory owners from which on entries without live values are removed.
_ROOM = 256


class _CopyOnWriteValue:
    """Saved value: a Tensor in the original memory, or a copy after this memory was overwritten."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Any):
        self.tensor = tensor


def _memory(array: NDArray) -> NDArray:
    """Return the object whose memory an array is a view of."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """Return the edge of a Tensor's gradient, which stands for the Tensor in `grad` and `backward`.

    The edge does not keep the Tensor's memory alive.

    Parameters
    ----------
    tensor : Tensor
        Tensor that requires grad.

    Returns
    -------
    GradientEdge
        Edge.

    Raises
    ------
    RuntimeError
        If the Tensor does not require grad.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> get_gradient_edge(tensor([2.0], requires_grad=True) * 2).node.name()
    'MulBackward0'
    """
    if not tensor.requires_grad:
        raise RuntimeError(
            located("It is not possible to get the gradient edge for a Tensor that does not require gradients")
        )
    edge = tensor._edge_of()
    node, number = edge if type(edge) is tuple else (edge, 0)
    return GradientEdge(node, number, Spec(tensor.shape, tensor.dtype))


def increment_version(tensor: Array | list[Array]) -> None:
    """Tell the tape that the memory of Tensors has been changed by other means.

    Parameters
    ----------
    tensor : Tensor or iterable of Tensor
        Tensors whose version counters are incremented.

    Notes
    -----
    Inference tensors have no version counter, and are left as they are.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x = tensor([1.0])
    >>> increment_version(x)
    >>> x._version
    1
    """
    for x in [tensor] if hasattr(tensor, "_counter") else tensor:
        if x._counter is not None:
            x._counter[0] += 1


class _Handle:
    """Handle of several hooks."""

    def __init__(self, handles: Sequence[RemovableHandle]):
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all") -> _Handle:
    """Call a function in each backward pass when gradients of several Tensors are known.

    Parameters
    ----------
    tensors : sequence of Tensor
        Tensors that require grad.
    fn : callable
        Function of the list of gradients, with None for Tensors that the backward pass does not reach. In mode "any",
        function of one gradient.
    mode : {"all", "any"}
        Whether to wait for all gradients, or to call `fn` with the first one.

    Returns
    -------
    RemovableHandle
        Handle whose `remove()` removes the hook.

    Raises
    ------
    ValueError
        If the mode is unknown.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x, y = tensor(1.0, requires_grad=True), tensor(2.0, requires_grad=True)
    >>> handle = register_multi_grad_hook([x, y], lambda grads: print(grads))
    >>> (x * y).backward()
    [tensor(2.), tensor(1.)]
    """
    if mode not in ("all", "any"):
        raise ValueError(located(f"Expects mode to be one of ('all', 'any') but got {mode}"))
    if mode == "any":
        return _Handle([x.register_hook(hook) for x, hook in zip(tensors, _hooks_for_any(len(tensors), fn))])
    nodes = [get_gradient_edge(x).node for x in tensors]
    return _Handle([x.register_hook(hook) for x, hook in zip(tensors, _hooks_for_all(nodes, fn))])


def _hooks_for_any(count: int, fn: Callable[..., None]) -> list[Hook]:
    lock = new_lock()
    seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def hook(ct: Tensor) -> None:
        with lock:
            first = STATE.sweep not in seen
            seen.add(STATE.sweep)
        if first:
            fn(ct)

    return [hook] * count


def _hooks_for_all(nodes: Sequence[Node], fn: Callable[..., None]) -> list[Hook]:
    lock = new_lock()
    # For each active pass, the cotangents known so far, and the number of missing ones.
    known: weakref.WeakKeyDictionary[Any, tuple[list[Any], list[int]]] = weakref.WeakKeyDictionary()

    def hook_of(k: int) -> Hook:
        def hook(ct: Tensor) -> None:
            sweep = STATE.sweep
            with lock:
                if sweep not in known:
                    known[sweep] = [None] * len(nodes), [sum(map(sweep.will_run, nodes))]
                cts, missing = known[sweep]
                cts[k] = ct
                missing[0] -= 1
                if missing[0]:
                    return
                del known[sweep]
            fn(cts)

        return hook

    return [hook_of(k) for k in range(len(nodes))]
