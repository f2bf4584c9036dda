"""Copy-on-write of saved arrays: an update through NumPy's interface leaves the old memory to the tape.

PyTorch's Tensors raise an error in the backward pass instead. NumPy's arrays may be updated at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.cpython.references import COUNT_OF_ATTRIBUTE, reference_count
from tracegrad.ops.core.memory_order import with_strides_of
from tracegrad.torch.tape.tensors.aliasing import steps_of

if TYPE_CHECKING:
    from tracegrad.torch.tape.recording.recorded_array import Recorded


def is_saved(x: Recorded) -> bool:
    """Whether a node has saved a value in the memory of `x`: then its version counter has further references."""
    base = x if x._base is None else x._base
    views = sum(r() is not None for r in base._views or ())
    return reference_count(base._counter) > views + COUNT_OF_ATTRIBUTE


def move(x: Any) -> None:
    """Move `x` and its views and base to new memory, and leave the old memory to the saved values."""
    base = x if x._base is None else x._base
    base.array, base._counter = with_strides_of(base.array), [0]
    for reference in base._views or ():
        view = reference()
        if view is None:
            continue
        array = base.array
        for step in steps_of(view):
            array = step(array)
        array.flags.writeable = view.array.flags.writeable
        view.array, view._counter = array, base._counter
