"""Context of one call of a `Function`: the values that its forward pass saves for its backward pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.ops import Carrier
from tracegrad.torch.tape.recording.node import RELEASED, SECOND_TIME, AccumulateGrad, DualArray
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.torch.tape.recording.saved_tensor import save

if TYPE_CHECKING:
    from tracegrad.torch.tape.recording.node import Node
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array


__all__ = ["ARRAYS", "NOT_RETURNED", "FunctionCtx", "SavedTensor", "like", "public_class_of"]

_new = object.__new__
ARRAYS = (Carrier, np.ndarray, np.generic)
NOT_RETURNED = (
    "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified "
    "inplace must all be outputs of the Function."
)


# Replaces the saved values that the first use of them has freed.
_ACCESSED: Any = type("Accessed", (), {})()


class FunctionCtx:
    """Context of `forward` (or `setup_context`) and `backward` of a `Function`; any attribute can be set on it.

    On a tape it is the state of the node: `grad_fn` has its attributes, and it has the methods of the node.
    """

    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads = True
    # Whether `backward` receives zeros for outputs marked as non-differentiable.
    _materialize_non_diff_grads = True
    # Whether the first use of `saved_tensors` frees them: `clear_saved_tensors_on_access` of the function.
    _clears = False
    to_save: tuple[Any, ...] = ()
    dirty_tensors: tuple[Any, ...] = ()
    non_differentiable: tuple[Any, ...] = ()
    _saved: Any = ()
    saved_for_forward: tuple[Any, ...] = ()
    # The `saved_tensors` while `jvp` runs.
    _for_forward: tuple[Any, ...] | None = None
    _node: Callable[[], Any] = staticmethod(lambda: None)

    def save_for_backward(self, *tensors: Array | None) -> None:
        """Keep arrays (or None) for `backward`, to be read from `saved_tensors`; a later call replaces an earlier one.

        An update in place in between is an error there. TypeError for anything that is not an array.
        """
        self.to_save = tensors

    def save_for_forward(self, *tensors: Array | None) -> None:
        """Keep arrays (or None) for `jvp`, to be read from `saved_tensors` there."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Say which inputs `forward` updates in place; each must be returned."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Say which outputs have no derivative; `backward` gets zeros for them."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether `backward` receives zeros (the default) or None for an output that nothing depends on."""
        self.materialize_grads = value

    @property
    def has_node(self) -> bool:
        """Whether the call is recorded on a tape."""
        return self._node() is not None

    @property
    def saved_tensors(self) -> tuple[object, ...]:
        """Return the saved values; RuntimeError after they are freed, or if an in-place update has changed one."""
        if self._for_forward is not None:
            return self._for_forward
        if self._saved is RELEASED:
            raise RuntimeError(located(SECOND_TIME))
        if self._saved is _ACCESSED:
            raise RuntimeError(
                located("saved_tensors can only be accessed once if clear_saved_tensors_on_access is set")
            )
        saved = tuple([x.unpack(self._node()) if x.__class__ is SavedTensor else x for x in self._saved])
        if self._clears:
            self._saved = _ACCESSED
        return saved

    @property
    def saved_variables(self) -> tuple[object, ...]:
        """Return `saved_tensors`, by the name before PyTorch 0.4, with a DeprecationWarning."""
        text = "'saved_variables' is deprecated; use 'saved_tensors'"
        warnings.warn(located(text), DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    def __getattr__(self, name: str) -> Any:
        node = None if name.startswith("__") else self._node()
        if node is None or not hasattr(type(node), name):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")
        return getattr(node, name)

    def checked(self, allowed: tuple[type, ...]) -> None:
        """Raise for an object passed to the methods above that is not an array."""
        for k, x in enumerate(self.to_save):
            if x is not None and not isinstance(x, allowed):
                text = f"save_for_backward can only save variables, but argument {k} is of type {type(x).__name__}"
                raise TypeError(located(text))
        for name, args in (
            ("mark_dirty can only accept variables", self.dirty_tensors),
            ("mark_non_differentiable only accepts variable arguments", self.non_differentiable),
        ):
            for k, x in enumerate(args):
                if not isinstance(x, allowed):
                    raise RuntimeError(located(f"{name}, but argument {k} is of type {type(x).__name__}"))


class SavedTensor:
    """Saved value of a `FunctionNode`, of the class `public_class`.

    `number` is the output of the node that it is. It is -1 for other values, for which `edge` is the edge."""

    __slots__ = ("edge", "number", "public_class", "saved")

    def __init__(self, x: Recorded, edge: object, number: int):
        if x._counter is None:
            text = "Inference tensors cannot be saved for backward. Please do not track backward or do not use them."
            raise RuntimeError(located(text))
        self.saved, self.edge, self.number, self.public_class = save(x), edge, number, public_class_of(x)

    def unpack(self, node: Node) -> Any:
        """Return the value as a recorded array with its edge."""
        return self.saved.sharing(self._shown(self.saved.value(self._edge(node), is_own_result=self.number >= 0), node))

    def pack(self, node: Node, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        """Replace the saved value by the result of `pack`."""
        self.saved.pack(self._shown(self.saved.array, node), pack, unpack)

    def _shown(self, array: Any, node: Node) -> Any:
        edge = self._edge(node)
        moving = array.dual if array.__class__ is DualArray else None
        if edge.__class__ is AccumulateGrad and edge.variable._holds(array) and edge.variable._dual is moving:
            return edge.variable
        return like(self.public_class, array, edge)

    def _edge(self, node: Node) -> Any:
        if self.number < 0:
            return self.edge
        return (node, self.number) if self.number else node


def public_class_of(x: Recorded) -> type:
    """Return the class of values that replace `x`; for a Python number not the class of its results."""
    return type(x) if x.weak else type(x)._public_class


def like(public_class: Any, array: Any, edge: object) -> Any:
    """Make a recorded array of this class with the history `edge`."""
    out = _new(public_class)
    if array.__class__ is DualArray:
        array, out._dual = array.array, array.dual
    out.array, out._counter = array, [0]
    if edge:
        out._requires, out._edge = True, edge
    return out
