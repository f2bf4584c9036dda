"""Saved tensors: one class for the values that nodes save for the backward pass.

A saved tensor stores the version of its memory; reading it after an in-place update is an error. Saved-tensor hooks
replace the value by their result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.torch.functions.core.dims import TYPE_NAMES
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.recording.copy_pool import copy_of
from tracegrad.torch.tape.recording.node import DualArray, rewrap

if TYPE_CHECKING:
    from tracegrad.torch.tape.recording.node import Node
    from tracegrad.torch.tape.recording.recorded_array import Recorded
    from tracegrad.typing import Array, NDArray


Hook = Callable[[Any], Any]

_new = object.__new__


class SavedArray:
    """Saved array, the version counter of its memory, and the version at the time of saving.

    A `Packed` or `DualArray` may replace the array. The node that owns the value knows the node that made it: the node
    of the operand's edge, or itself for a result.
    """

    __slots__ = ("array", "counter", "version")
    array: Any
    counter: Any
    version: int

    def value(self, edge: object, is_own_result: bool = False) -> Any:
        """Return the array; RuntimeError if it was updated in place since it was saved.

        `edge` leads to the node that made it; with `is_own_result`, this is the node that saved it.
        """
        array = self.array
        if self.counter[0] != self.version:
            raise self.modified(edge, () if is_own_result else self.counter)
        if array.__class__ is Packed:
            return array()
        return array if array.__class__ is not DualArray or STATE.level is not None else array.array

    def sharing(self, x: Any) -> Recorded:
        """Give the Tensor `x` of this array the version counter of its memory, and return it.

        Nodes that save `x` therefore detect in-place updates.
        """
        if self.counter is not _FIXED:
            x._counter = self.counter
        result: Recorded = x
        return result

    def modified(self, edge: Any, counter: object = ()) -> RuntimeError:
        """Return the error for an in-place update; `counter` may have the name of the updating operation."""
        array = self.array() if self.array.__class__ is Packed else getattr(self.array, "array", self.array)
        return modified(array, self.counter, self.version, describe_maker(edge, counter))

    def pack(self, tensor: Recorded, pack: Hook, unpack: Hook) -> None:
        """Replace the value, the array of `tensor`, by the result of `pack`."""
        self.array = Packed(tensor, pack, unpack)
        self.counter, self.version = _FIXED, 0

    def move(self, x: Any) -> None:
        """Save the tangent of `x`, whose array is the saved value."""
        if x._dual is not None and self.array.__class__ is not Packed:
            self.array = DualArray(self.array, x._dual)

    def protect(self, x: Any) -> None:
        """Copy the saved value if it is the Tensor `x`, which is about to be overwritten."""
        array, saved = x.array, self.array
        if saved.__class__ is Packed:
            saved.protect(array)
        elif not isinstance(array, np.ndarray):  # values of a trace do not change
            if self.counter is x._counter:
                self.counter, self.version = _FIXED, 0
        elif saved is array:
            self.array, self.counter, self.version = saved.copy(), _FIXED, 0
        elif saved.__class__ is DualArray and saved.array is array:
            self.array, self.counter, self.version = saved.copied(), _FIXED, 0


# Version counter of arrays that cannot be updated.
_FIXED = [0]


class Borrowed(list[Any]):
    """Version counter of a plain array operand: its updates are unknown, so saving it makes a copy."""

    __slots__ = ()


def copy_of_borrowed(array: NDArray) -> NDArray:
    """Copy an array, with aliased elements still aliased; return the array itself if it cannot change."""
    if array.flags.owndata and not array.flags.writeable:
        return array
    if 0 not in array.strides:
        return copy_of(array)
    index = tuple([slice(None) if stride else slice(1) for stride in array.strides])
    return np.broadcast_to(array[index].copy(), array.shape)


def save(x: Any, array: Array | None = None) -> SavedArray:
    """Save the value of `x`, as `array` if it is passed; RuntimeError for an inference tensor."""
    saved: SavedArray = _new(SavedArray)
    saved.counter = counter = x._counter
    saved.array = x._snapshot() if array is None and counter is not None else array
    saved.version = counter[0] if counter.__class__ is list else copy_saved_borrowed(saved)
    if STATE.level is not None and x._dual is not None:
        saved.array = DualArray(saved.array, x._dual)
    return saved


def copy_if_borrowed(x: Recorded) -> None:
    """Replace a borrowed array of a value by a copy."""
    if x._counter.__class__ is Borrowed:
        x.array, x._counter = copy_of_borrowed(x.array), [0]


def copy_saved_borrowed(saved: SavedArray) -> int:
    """Copy the array of a saved value whose counter is `Borrowed`, and return its version.

    RuntimeError for an inference tensor.
    """
    if saved.counter is None:
        raise of_inference()
    saved.array, saved.counter = copy_of_borrowed(saved.array), _FIXED
    return 0


def private(array: Array) -> SavedArray:
    """Save an array that nothing else can update."""
    saved: SavedArray = _new(SavedArray)
    saved.array, saved.counter, saved.version = array, _FIXED, 0
    return saved


class Packed:
    """Result of `pack` for a saved `tensor`; calling it returns the array."""

    __slots__ = ("packed", "shape", "unpack")

    def __init__(self, tensor: Any, pack: Hook, unpack: Hook):
        version, self.shape = tensor._counter[0], tensor.shape
        mode, STATE.enabled = STATE.enabled, False
        try:
            self.packed, self.unpack = pack(tensor), unpack
        finally:
            STATE.enabled = mode
        if tensor._counter[0] != version:
            raise RuntimeError(
                located("A saved tensor pack hook is modifying its input in place. Let it give back another Tensor.")
            )

    def __call__(self) -> Any:
        tensor = self.unpack(self.packed)
        if not hasattr(tensor, "_edge"):
            raise TypeError(
                located(
                    "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                    f"{type(tensor).__name__}"
                )
            )
        return tensor.array

    def protect(self, array: Array) -> None:
        """Copy a Tensor stored in the memory of `array`, which is about to be overwritten."""
        array_of_packed = getattr(self.packed, "array", None)
        if (
            isinstance(array_of_packed, np.ndarray)
            and isinstance(array, np.ndarray)
            and np.may_share_memory(array_of_packed, array)
        ):
            self.packed = rewrap(array_of_packed.copy(), None)


class RawSaved:
    """A saved value as users see it before it is unpacked: `register_hooks` packs it."""

    __slots__ = ("edge", "saved")

    def __init__(self, saved: SavedArray, edge: Any):
        self.saved, self.edge = saved, edge

    def register_hooks(self, pack_hook: Hook, unpack_hook: Hook) -> None:
        """Save `pack_hook(tensor)` instead of the value, and use the result of `unpack_hook` for it.

        RuntimeError if there are hooks already.
        """
        if self.saved.array.__class__ is Packed:
            raise RuntimeError(located("Calling register_hooks on a saved tensor whose hooks have already been set."))
        self.saved.pack(rewrap(self.saved.array, self.edge), pack_hook, unpack_hook)


def modified(array: Any, counter: Any, version: int, maker: str = "") -> RuntimeError:
    """Return the error for an in-place update of a saved array; `maker` may name the operation that made it."""
    name = array.dtype.name
    kind = "CPUBoolType" if name == "bool" else f"{TYPE_NAMES.get(name, name.capitalize())}Tensor"
    return RuntimeError(
        located(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[{kind} {list(array.shape)}]{maker} is at version {counter[0]}; expected "
            f"version {version} instead. Hint: enable anomaly detection to find the operation that failed to "
            "compute its gradient, with autograd.set_detect_anomaly(True)."
        )
    )


def of_inference() -> RuntimeError:
    """Return the error for an inference tensor that would have to be saved."""
    return RuntimeError(
        located(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
            "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use "
            "it in autograd, or use `no_grad()` instead of `inference_mode()`."
        )
    )


def describe_maker(edge: Any, counter: Any = ()) -> str:
    """Name the last recorded in-place update of a saved value's memory, or else the node that made the value."""
    if len(counter) > 1:
        return f", which is output 0 of {counter[1]},"
    node, number = edge if type(edge) is tuple else (edge, 0)
    return f", which is output {number} of {short_name(node)}," if node and node.edges else ""


def short_name(node: Node) -> str:
    """Return the name of a node for error messages: the name of the operation."""
    name: str = node.name().rstrip("0123456789")
    return name.removesuffix("Backward")
