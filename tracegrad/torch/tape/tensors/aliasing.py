"""Aliasing of Tensors: a view knows its base, which owns the memory, and the steps from the base to the view."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.numpy_api.lazy.stride_tricks import view_of_indices
from tracegrad.ops.core.op import Carrier, Op
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.recording.composite_trace import Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracegrad.torch.tape.recording.recorded_array import Recorded
    from tracegrad.typing import Array, NDArray


# The kinds of views that are made without recording: in `no_grad`, and in inference mode.
_UNRECORDED = "no_grad", "inference"


def shared(view: NDArray, array: Any) -> bool:
    """Whether NumPy's result for `view` shares the memory of `array`."""
    base = view.base
    return view is array or (base is not None and (base is array or base is array.base))


def register(view: Recorded, parent: Recorded, step: object, kind: str = "") -> None:
    """Register `view` as the result of `step` on `parent`, in the same memory.

    `step` is a function, or a tuple of an op, its parameters and, for an op with several results, the result's number.
    """
    base = parent._base
    view._steps = (parent._steps, step)
    if base is None:
        base = parent
    else:
        kind = kind or parent._kind_of_view
    view._base = base
    view._counter = parent._counter
    view._kind_of_view = kind or ("" if STATE.enabled else _UNRECORDED[STATE.inference])
    known = base._views
    if known is None:
        base._views = [weakref.ref(view)]
        return
    known.append(weakref.ref(view))
    if len(known) > 32 and len(known) & (len(known) - 1) == 0:
        base._views = [r for r in known if r() is not None]


def as_view(result: Any, parent: Recorded, step: Callable[..., object], make_view: Callable[[Any], Any]) -> Any:
    """Register `result`, which `step` computed of `parent`, as a view; `make_view` makes the view of an array."""
    array = parent.array
    if isinstance(array, np.ndarray):
        array_view = make_view(array)
    else:
        index_view = make_view(np.arange(math.prod(array.shape)).reshape(array.shape))
        array_view = view_of_indices(array, result.array, index_view, make_view)
    view = parent._like(array_view)
    view._requires, view._edge, view._dual = result._requires, result._edge, result._dual
    register(view, parent, step)
    return view


def register_all(views: Sequence[Recorded], parent: Recorded, op: Op, params: dict[str, object]) -> None:
    """Register `views`, the results of `op` on `parent`, in the same memory."""
    base, steps, counter = parent._base, parent._steps, parent._counter
    base = parent if base is None else base
    kind = "several" if STATE.enabled else _UNRECORDED[STATE.inference]
    for k, view in enumerate(views):
        view._steps = (steps, (op, params, k))
        view._base, view._counter, view._kind_of_view = base, counter, kind
    known = base._views
    if known is None:
        base._views = [*map(weakref.ref, views)]
        return
    before = len(known)
    known += map(weakref.ref, views)
    if before > 16 and before.bit_length() != len(known).bit_length():
        base._views = [r for r in known if r() is not None]


def steps_of(view: Any) -> tuple[Callable[[Array], Array], ...]:
    """Return the steps from the base to a view, in order."""
    steps, rest = [], view._steps
    while rest is not None:
        rest, step = rest
        steps.append(partial(_applied, *step) if step.__class__ is tuple else step)
    return tuple(steps[::-1])


def constant_steps(view: Any) -> tuple[Any, ...] | None:
    """Return the steps from the base to a view, for `retraced`; None if traced values are among their parameters."""
    steps, rest = [], view._steps
    while rest is not None:
        rest, step = rest
        parts = step[1:] if step.__class__ is tuple else (step.args, step.keywords) if type(step) is partial else None
        if parts is None or _holds_carrier(parts):
            return None
        steps.append(step)
    return tuple(steps[::-1])


def _holds_carrier(x: object) -> bool:
    if isinstance(x, dict):
        x = tuple(x.values())
    elif isinstance(x, slice):
        x = (x.start, x.stop, x.step)
    return any(map(_holds_carrier, x)) if isinstance(x, tuple | list) else isinstance(x, Carrier)


def retraced(x: Any, steps: Sequence[Any], records: bool) -> Any:
    """Return the view of `x` that these steps lead to, made in a mode that `records` it or not."""
    mode, STATE.enabled = STATE.enabled, records
    try:
        for step in steps:
            x = _applied(*step, x) if step.__class__ is tuple else step(x)
    finally:
        STATE.enabled = mode
    return x


def _applied(op: Op, params: Mapping[str, object], *args: Array) -> Any:
    """Apply an op to the last of `args`; the first of two is the number of the result to return."""
    ans = op(args[-1], **params)
    result: Array = ans[args[0]] if len(args) > 1 else ans
    return result


def register_composite_views(outputs: Sequence[Recorded], recipe: Recipe, tensors: Sequence[object], kind: str) -> None:
    """Register results that are views of one of the `tensors`, the arguments of a composite function.

    A result that shares memory in another way is replaced by a copy.
    """
    for view, parent in zip(outputs, recipe.parents):
        if parent is None:
            continue
        if not isinstance(view.array, np.ndarray):
            view._frozen = "a view that a function of several ops gave inside a traced function"
        elif parent.__class__ is int:
            view.array = view.array.copy()
        else:
            number, steps = parent
            register(view, tensors[number], partial(_again, steps), kind)


def _again(steps: Sequence[tuple[Op, dict[str, object]]], x: NDArray) -> NDArray:
    for op, params in steps:
        x = op(x, **params)
    return x
