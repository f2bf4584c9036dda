"""Composite traces: record the ops of a function once, and replay them for other values.

`record_recipe` runs the function on *parts*, which compute and record the ops. The record is a *recipe*: the op of each
step, its *slots* (the inputs, and the results of earlier steps), and the values to save. The ops are the same for
arrays with other elements. The recipe is therefore cached, and the next call with equal shapes, dtypes and options runs
the ops alone. For example, `mse_loss(x, y)` is `subtract`, `square` and `mean`, and the node saves the difference. A
function is not cached if it read values, drew random numbers, or has arguments that cannot be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import ad
from tracegrad.avals import LITERALS, Size, is_literal
from tracegrad.errors import ShapeError
from tracegrad.numpy_api import ArrayMethods
from tracegrad.ops.core.dispatch import Holder
from tracegrad.ops.core.op import Carrier, DispatchLevel, Op
from tracegrad.ops.elementwise.table import where
from tracegrad.ops.shape.linear import reshape
from tracegrad.torch.functions.core.dims import as_pytorchs
from tracegrad.torch.functions.core.generator import drawn
from tracegrad.torch.functions.core.promotion import common_dtype, in_one_dtype
from tracegrad.torch.modes import DEFAULT
from tracegrad.torch.tape.recording.generated_vjps import needs_of
from tracegrad.torch.tape.recording.node import Spec
from tracegrad.torch.tape.recording.saved_results import twin_of
from tracegrad.torch.tape.recording.saved_tensor import copy_if_borrowed, copy_of_borrowed
from tracegrad.typing import NDArray
from tracegrad.utils.errstate import QUIET, restore_traps, set_traps, traps

if TYPE_CHECKING:
    from tracegrad.typing import Array


_ndarray, _asarray = np.ndarray, np.asarray
_NONE: Mapping[int, Op] = {}

RecordedStep = tuple[Op, tuple[Any, ...], dict[str, Any], Any]


class Slot(int):
    """Number of a slot, which replaces an array operand in a recipe."""

    __slots__ = ()


# -- writing a recipe down ---------------------------------------------------------------------------------------------
class RecipeRecorder:
    """The ops that a function has applied so far, the Tensors that it was applied to, and all values by slot."""

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self.values: list[Any] = []
        self.tracers: dict[int, CompositeTracer] = {}
        self.inputs: list[int] = []
        self.constants: list[int] = []
        self.steps: list[RecordedStep] = []
        # Whether the key of the call determines the recorded ops, so that the recipe can be cached.
        self.repeats = True
        self.drawn = drawn[0]
        # Whether a Tensor is among the inputs, so that dtypes are promoted as in PyTorch.
        self.as_pytorch = False

    def tracer_of(self, tensor: Any) -> CompositeTracer:
        """Return the part that replaces a Tensor."""
        result = self.tracers.get(id(tensor))
        self.as_pytorch = self.as_pytorch or tensor.common_dtype is not None
        if result is None:
            copy_if_borrowed(tensor)
            array = tensor._snapshot()
            result = CompositeTracer(self, array.view() if isinstance(array, _ndarray) else array)
            result.weak = tensor.weak
            self.tracers[id(tensor)] = result
            self.tensors.append(tensor)
            self.inputs.append(result.slot)
            # A Tensor that first appears after an op is not an argument.
            self.repeats = self.repeats and not self.steps
        else:
            self.repeats = self.repeats and bool(self.steps)
        return result

    def constant(self, array: Any) -> CompositeTracer:
        """Make a part of an array that is not a Tensor, with its current value."""
        tracer = CompositeTracer(self, array if isinstance(array, Carrier) else copy_of_borrowed(_asarray(array)))
        self.constants.append(tracer.slot)
        return tracer

    def as_tracers(self, x: Any) -> Any:
        """Replace the Tensors in `x` by parts."""
        if hasattr(x, "_snapshot"):
            return self.tracer_of(x)
        if type(x) in (list, tuple):
            return type(x)([self.as_tracers(v) for v in x])
        return x

    def slot_of(self, x: Any) -> int:
        """Return the slot of a result of the function."""
        if hasattr(x, "_snapshot"):
            return self.tracer_of(x).slot
        return x.slot if isinstance(x, CompositeTracer) else self.constant(x).slot

    def close(self) -> None:
        """Free the arrays and Tensors after the function has returned."""
        self.tensors, self.values = [], []
        self.tracers.clear()


class CompositeTracer(ArrayMethods, Holder):
    """An array inside a function of several ops."""

    __slots__ = ("array", "recorder", "slot", "weak")
    level = DispatchLevel.COMPOSITE
    _concrete_masks = True
    weak: bool

    def __init__(self, recorder: RecipeRecorder, array: Any):
        self.recorder, self.array, self.weak, self.slot = recorder, array, False, Slot(len(recorder.values))
        recorder.values.append(array)

    @property
    def common_dtype(self) -> Any:
        return common_dtype if self.recorder.as_pytorch else None

    def concrete(self, query: str) -> NDArray:
        self.recorder.repeats = False
        return self.array if isinstance(self.array, _ndarray) else self.array.concrete(query)

    def _lift(self, x: object) -> CompositeTracer:
        if isinstance(x, CompositeTracer):
            return x
        return self.recorder.tracer_of(x) if hasattr(x, "_snapshot") else self.recorder.constant(x)

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        lifted = tuple([x if is_literal(x) else self._lift(x) for x in operands])
        if self.recorder.as_pytorch:
            lifted = in_one_dtype(op, lifted)
        arrays = tuple([x.array if isinstance(x, CompositeTracer) else x for x in lifted])
        ans = _computed(op, arrays, params)
        is_multi = ans.__class__ is tuple
        results = tuple([CompositeTracer(self.recorder, x) for x in (ans if is_multi else (ans,))])
        slots = tuple([x.slot for x in results])
        args = tuple([x.slot if isinstance(x, CompositeTracer) else x for x in lifted])
        self.recorder.steps.append((op, args, params, slots if is_multi else slots[0]))
        return results if is_multi else results[0]


def _computed(op: Op, arrays: tuple[Any, ...], params: Mapping[str, object]) -> Any:
    """Compute the result of `op` for ndarrays and arrays of a trace.

    The result is an object of its own, not an operand, because the sweep identifies values by `id`.
    """
    plain = not any(isinstance(x, Carrier) for x in arrays)
    before = traps()
    try:
        set_traps(QUIET)
        ans = op.impl(*arrays, **params) if plain else op(*arrays, **params)
    finally:
        restore_traps(before)
    if ans.__class__ is tuple:
        return tuple([_asarray(x).view() if plain else x for x in ans])
    ans = _asarray(ans) if plain else ans
    if any(ans is x for x in arrays):
        ans = ans.view() if plain else ans._alias()  # type: ignore[union-attr]
    return ans


# -- recipes -----------------------------------------------------------------------------------------------------------
class Recipe:
    """Recorded ops of a composite function, for arguments of certain shapes and dtypes.

    `steps` are its ops, with slots as array operands. `specs` are the shape and dtype of each slot, and `saved_slots`
    the slots whose values the node saves. `watched` are the inputs among the saved values: their number, slot, and
    whether an unrecorded pass reads them too. `guarded` are the outputs whose memory holds a saved value. `again` are
    the steps that a recorded pass applies again, to have the rules' inputs as Tensors. `parents` has an entry for each
    of the `outputs`: for a view, the number of its input and the path from there; None for separate memory; a number
    alone for memory that is shared in another way.
    """

    def __init__(self, recorder: RecipeRecorder, result: Any):
        self.steps, self.inputs = recorder.steps, recorder.inputs
        # The type of the tuple or list of results; None for one result.
        self.kind: Any = type(result) if isinstance(result, tuple | list) else None
        slots = [recorder.slot_of(x) for x in (result if self.kind is not None else (result,))]
        values = recorder.values
        self.outputs = [(k, values[k].dtype.kind in "fc") for k in slots]
        active = [x._requires for x in recorder.tensors]
        self.smooth = [x.dtype.kind in "fc" for x in recorder.tensors]
        self.constants = [(k, values[k]) for k in recorder.constants]
        read = self._read(values, {k for k, e in zip(self.inputs, active) if e})
        sources, again = set(read), set()
        for n, (_, operands, _, slot) in reversed([*enumerate(self.steps)]):
            if not sources.isdisjoint(_slots(slot)):
                again.add(n)
                sources.update([x for x in operands if x.__class__ is Slot])
        self.again = frozenset(again)
        saved_slots = read | {k for k in self.inputs if k in sources} | set(recorder.constants)
        self.saved_slots = sorted(saved_slots)
        self.specs = [Spec(x.shape, x.dtype) for x in values]
        owners = {id(_owner(values[k])) for k in read}
        self.watched = [(n, k, id(_owner(values[k])) in owners) for n, k in enumerate(self.inputs) if k in sources]
        results = {id(_owner(values[k])) for step in self.steps for k in _slots(step[3]) if k in saved_slots}
        self.guarded = [n for n, k in enumerate(slots) if id(_owner(values[k])) in results]
        self.makers = {k: step for step in self.steps for k in _slots(step[3])}
        self.parents = [self._parent(values, k) for k in slots]
        self.has_views = any(parent is not None for parent in self.parents)
        self.selects = len(self.inputs) == 1 and all(op.view_update is not None for op, _, _, _ in self.steps)
        self.template, self.program = self._program(values)
        self.repeats = (
            recorder.repeats and recorder.drawn == drawn[0] and not _overlap([values[k] for k in self.inputs])
        )

    def _read(self, values: Sequence[Any], active: set[int]) -> set[int]:
        """Return the slots that the rules of the steps read, for derivatives with respect to slots in `active`."""
        active, read = set(active), set[int]()
        for op, operands, params, slot in self.steps:
            tracked = [k for k, x in enumerate(operands) if x in active and _is_slot(x) and op.differentiable_in(k)]
            slots = _slots(slot)
            floating = [k for k in slots if values[k].dtype.kind in "fc"]
            if tracked and floating:
                active.update(floating)
                args = [values[x] if _is_slot(x) else x for x in operands]
                needs = needs_of(op, tuple(tracked), args, params)
                read.update([x for i, x in enumerate(operands) if i in needs.operands and _is_slot(x)])
                read.update([slots[k] for k in needs.results])
        return read

    def _parent(self, values: Sequence[Array], output: int) -> Any:
        paths = [(n, path) for n, k in enumerate(self.inputs) if (path := self.path(k, output)) is not None]
        if paths:
            return paths[0]
        array = values[output]
        for n, k in enumerate(self.inputs):
            if isinstance(array, _ndarray) and np.may_share_memory(array, values[k]):
                return n
        return None

    def path(self, source: int, output: int) -> list[tuple[Op, dict[str, Any]]] | None:
        """Return the selecting ops from `source` to `output`, in order; None if another op is among them."""
        ops = []
        while output != source:
            step = self.makers.get(output)
            if step is None or step[0].view_update is None:
                return None
            ops.append((step[0], step[2]))
            output = step[1][0]
        return ops[::-1]

    def _program(self, values: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """Return the initial values of `run`, the constants and numbers by slot, and its instructions.

        An instruction has a function, a getter of its operands (one or a tuple), its parameters, the slot of its
        result, and whether the result is one of the operands.
        """
        template: list[Any] = [None] * len(values)
        for k, array in self.constants:
            template[k] = array
        program = []
        for op, operands, params, slot in self.steps:
            indices = []
            for x in operands:
                if not _is_slot(x):
                    template.append(x)
                indices.append(int(x) if _is_slot(x) else len(template) - 1)
            args = [values[x] for x in operands if _is_slot(x)]
            same = slot.__class__ is not tuple and any(_is_same(values[slot], x) for x in args)
            program.append((op.impl, itemgetter(*indices), len(indices) == 1, params, slot, same))
        return template, program

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Compute the values of all slots for the input `arrays`."""
        values = self.template.copy()
        for k, array in zip(self.inputs, arrays):
            values[k] = array.view()
        before = traps()
        try:
            set_traps(QUIET)
            for function, args, single, params, slot, same in self.program:
                ans = function(args(values), **params) if single else function(*args(values), **params)
                if ans.__class__ is not _ndarray:
                    if ans.__class__ is tuple:
                        for k, x in zip(slot, ans):
                            values[k] = _asarray(x).view()
                        continue
                    ans = _asarray(ans)
                values[slot] = ans.view() if same else ans
        finally:
            restore_traps(before)
        return values

    def tape(self, values: Sequence[Array], twins: Mapping[int, Op] = _NONE) -> list[ad.Entry]:
        """Return the tape entries for these values; `twins` replaces the ops of steps, by the slot of their result."""
        return [
            (
                tuple([values[k] for k in slot]) if slot.__class__ is tuple else values[slot],
                twins.get(slot, op),
                tuple([values[x] if x.__class__ is Slot else x for x in operands]),
                params,
            )
            for op, operands, params, slot in self.steps
        ]

    def tie(self, values: list[Any], output: Any) -> dict[int, Op]:
        """Replace the values that `output` is reshaped from, or chosen from by `where` with a number, by Tensors.

        The Tensors are computed from `values[output]`. Returns the twin of the op that made it, by its slot.
        """
        x = values[output]
        while (step := self.makers.get(output)) is not None:
            op, operands, _, _ = step
            if op is reshape:
                output = operands[0]
                values[output] = x = reshape(x, shape=self.specs[output].shape)
            elif op is where and is_literal(operands[1]) and _is_slot(operands[2]):
                chosen, output = values[operands[0]], operands[2]
                values[output] = x = where(chosen, 1.0, x)
            else:
                twin = twin_of(op, operands, at_end=True)
                return {} if twin is None else {output: twin}
        return {}

    def repeat(self, values: list[Array], step_numbers: Sequence[int] | None = None) -> None:
        """Apply the steps `step_numbers` (default: those of a recorded pass) to the inputs in `values`; store the
        results."""
        for n in sorted(self.again) if step_numbers is None else step_numbers:
            op, operands, params, slot = self.steps[n]
            args = [values[x] if x.__class__ is Slot else x for x in operands]
            ans = op(*args, **params)
            if slot.__class__ is tuple:
                for k, x in zip(slot, ans):
                    values[k] = x
            else:
                values[slot] = ans.view() if any(ans is x for x in args) else ans


def _is_same(x: object, y: object) -> bool:
    """Whether a result has exactly the memory of an operand, because it is a view that `_computed` made."""
    return isinstance(x, _ndarray) and isinstance(y, _ndarray) and x.__array_interface__ == y.__array_interface__


def _is_slot(x: Slot | float) -> bool:
    return x.__class__ is Slot


def _slots(slot: Any) -> tuple[Any, ...]:
    return slot if slot.__class__ is tuple else (slot,)


def _owner(x: Any) -> Any:
    """Return the array that owns the memory of `x`."""
    return x.base if isinstance(x, _ndarray) and x.base is not None else x


def _overlap(arrays: Sequence[Array]) -> bool:
    """Whether two arrays share memory, or one is not an ndarray."""
    if not all(isinstance(x, _ndarray) for x in arrays):
        return True
    return any(np.may_share_memory(x, y) for k, x in enumerate(arrays) for y in arrays[:k])


def record_recipe(fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> tuple[Recipe, list[Any], list[Any]]:
    """Return the recipe of a call, its inputs, and the values by slot."""
    recorder = RecipeRecorder()
    try:
        result = fn(*recorder.as_tracers(args), **kwargs)
        recipe = Recipe(recorder, result)
        return recipe, recorder.tensors, recorder.values
    except ShapeError as error:
        raise (as_pytorchs(error, ()) if recorder.as_pytorch else error) from None
    finally:
        recorder.close()


# -- which recipe ------------------------------------------------------------------------------------------------------
RECIPES: dict[Any, Recipe] = {}
_MAX_RECIPES = 8192


def key_of(
    cls: type, fn: Callable[..., object], args: object, kwargs: Mapping[str, object], tensors: list[Array]
) -> Any:
    """Return the cache key of a call's recipe, or None if it has no key.

    Tensor arguments, instances of the class `cls`, are appended to `tensors`.
    """
    function, inputs = _known_by(fn), _arguments(args, cls, tensors)
    if function is None or inputs is None:
        return None
    if not kwargs:
        return function, inputs, DEFAULT.dtype
    named = _arguments(tuple(kwargs.values()))
    return None if named is None else (function, inputs, DEFAULT.dtype, tuple(kwargs), named)


def _arguments(args: Any, public_class: type | None = None, tensors: Any = ()) -> tuple[Any, ...] | None:
    """Return a hashable key of arguments, which may include Tensors of the class `public_class`; None if there is no
    key."""
    results: list[Any] = [args.__class__]
    for x in args:
        cls = type(x)
        if cls is public_class:
            array = x.array
            # Whether NumPy returns a view depends on the strides.
            if array.__class__ is not _ndarray or not array.flags.c_contiguous:
                return None
            tensors.append(x)
            results += (array.dtype, array.shape, x._requires)
        elif cls in _PLAIN:
            results += (cls, x)
        else:
            known = _arguments(x, public_class, tensors) if cls in _CONTAINERS else _known_by(x)
            if known is None:
                return None
            results.append(known)
    return tuple(results)


_CONTAINERS = frozenset({list, tuple, Size})
_PLAIN = frozenset({int, bool, str, type(None)})


def _known_by(x: Any) -> Any:
    """Return a hashable key of an option, or None."""
    cls = type(x)
    if cls is FunctionType:
        if x.__closure__ is None:
            return x if x.__defaults__ or x.__kwdefaults__ else x.__code__
        cells = _arguments([cell.cell_contents for cell in x.__closure__])
        return None if cells is None else (x.__code__, cells, x.__defaults__)
    if cls in LITERALS:
        return cls, repr(x)
    if isinstance(x, dict):
        values = _arguments(tuple(x.values()))
        return None if values is None else (tuple(x), values)
    return x if isinstance(x, Op | np.dtype | type) else None


def any_requires(args: Any) -> bool:
    """Whether a Tensor among arguments requires grad."""
    for x in args:
        if isinstance(x, list | tuple):
            if any_requires(x):
                return True
        elif hasattr(type(x), "_requires") and x._requires:
            return True
    return False


def remember(key: object, recipe: Recipe) -> None:
    """Cache a recipe, if the key determines its ops."""
    if key is not None and recipe.repeats:
        if len(RECIPES) >= _MAX_RECIPES:
            RECIPES.clear()
        RECIPES[key] = recipe
