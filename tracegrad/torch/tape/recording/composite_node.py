"""Composite node: one tape node for a function of several ops, with a small tape inside (`composite_trace`).

The backward pass sweeps the recorded ops with the compiler's reverse sweep (`ad.reverse_sweep`). If the pass is itself
recorded, the ops are applied again to Tensors. If the ops only select parts of one array, the cotangents are scattered
into one array of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import ad
from tracegrad.errors import located
from tracegrad.ops.core.op import Carrier, Op
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.recording.composite_trace import Recipe
from tracegrad.torch.tape.recording.node import (
    RELEASED,
    SECOND_TIME,
    DualArray,
    MaskedCotangent,
    Node,
    Spec,
    added,
    next_number,
    rewrap,
    unmasked,
)
from tracegrad.torch.tape.recording.node_names import saved_names, saved_options, saved_result
from tracegrad.torch.tape.recording.op_node import tied
from tracegrad.torch.tape.recording.saved_results import COPIES_INPUTS, COPIES_RESULTS, PIECEWISE_LINEAR, SAVES_RESULT
from tracegrad.torch.tape.recording.saved_tensor import Packed, SavedArray, save

if TYPE_CHECKING:
    from tracegrad.torch.tape.recording.recorded_array import Recorded
    from tracegrad.typing import Array


_ndarray = np.ndarray
_NONE: Mapping[int, Op] = {}


class CompositeNode(Node):
    """Tape node of a function of several ops.

    `values` are the values saved by its recipe, by slot, with a `Spec` for unsaved ones. `checks` lists the values that
    must stay unchanged, with the edge to the node that made each (a number for an output of this node), and whether an
    unrecorded pass reads it too. `options` are the keyword options of the function.
    """

    __slots__ = ("checks", "options", "packed", "recipe", "values")
    batches = True
    is_multi_result = True
    # Whether a recorded derivative depends on the first output, as in PyTorch.
    saves_result = False
    # Whether the derivative counts as computed from the first input, on which it depends piecewise constantly.
    piecewise_linear = False
    # Whether the node saves copies of inputs and results, so that they may be updated in place.
    copies_inputs = False
    copies_results = False
    recipe: Recipe
    values: Any
    checks: list[tuple[SavedArray, Any, bool]]
    packed: bool

    def __init__(self, recipe: Recipe, tensors: Sequence[Any], values: Sequence[Any], options: dict[str, Any]):
        self.hooks, self.recipe, self.options, self.packed = None, recipe, options, False
        edges = []
        for x, smooth in zip(tensors, recipe.smooth):
            edges.append((x._edge or x._source()) if x._requires else None if smooth else False)
        self.edges = tuple(edges)
        self.number = next_number()  # after the rebuilt node of a view
        self.checks = [(save(tensors[n], values[k]), edges[n], plain) for n, k, plain in recipe.watched]
        saved_values: list[Any] = recipe.specs.copy()
        for k in recipe.saved_slots:
            saved_values[k] = values[k]
        if self.saves_result:
            saved_values[recipe.outputs[0][0]] = values[recipe.outputs[0][0]]
        if STATE.level is not None:
            for x, k in zip(tensors, recipe.inputs):
                if x._dual is not None:
                    saved_values[k] = DualArray(values[k], x._dual)
        self.values = saved_values
        if self.copies_inputs:
            for x in tensors:
                self.protect(x)

    @property
    def count(self) -> int:  # type: ignore[override]
        """Return the number of outputs."""
        return len(self.recipe.outputs)

    def guard(self, tensors: Sequence[Recorded]) -> None:
        """Check from now on that the Tensors of the outputs stay unchanged, if the node reads them."""
        for k in {0, *self.recipe.guarded} if self.saves_result else self.recipe.guarded:
            if self.copies_results:
                self.protect(tensors[k])
            elif tensors[k]._base is None:
                self.checks.append((save(tensors[k], tensors[k].array), k, True))

    def pull(self, cts: Any, recording: bool) -> Sequence[Any]:
        values = self._values(recording)
        if recording:
            inputs: set[int] = set()
            for k, e in zip(self.recipe.inputs, self.edges):
                x = rewrap(values[k], e)
                # If two inputs are the same leaf, an alias separates their cotangents.
                values[k] = x._alias() if id(x) in inputs else x
                inputs.add(id(x))
            for (_, k, _), (saved, _, _) in zip(self.recipe.watched, self.checks):
                values[k] = saved.sharing(values[k])
            self.recipe.repeat(values)
            result = self._swept(values, cts, self._tied(values) if self.saves_result else {})
            return (
                [tied(result[0], self.edges[0], self.recipe.specs[self.recipe.inputs[0]]), *result[1:]]
                if self.piecewise_linear
                else result
            )
        placed = self._placed(cts) if self.recipe.selects else None
        return self._swept(values, cts) if placed is None else [placed]

    def _values(self, recording: bool) -> list[Any]:
        """Return the values, unpacked and checked to be unchanged."""
        if self.values is RELEASED:
            raise RuntimeError(located(SECOND_TIME))
        for saved, edge, plain in self.checks:
            if (plain or recording) and saved.counter[0] != saved.version:
                is_output = edge.__class__ is int
                raise saved.modified((self, edge) if is_output else edge, () if is_output else saved.counter)
        values = [x() if x.__class__ is Packed else x for x in self.values]
        if STATE.level is None:
            values = [x.array if x.__class__ is DualArray else x for x in values]
        if self.packed and not recording:
            self.recipe.repeat(values)
        return values

    def _tied(self, values: list[object]) -> dict[int, Op]:
        """Replace the result in the rules' inputs by the Tensor, and return the twins of the ops that read it."""
        slot = self.recipe.outputs[0][0]
        array = self.values[slot]
        if STATE.level is not None or self.packed or array.dtype.kind != "f":
            return {}
        values[slot] = rewrap(array, (self, 0))
        for saved, k, _ in self.checks:
            if k == 0 and k.__class__ is int:
                saved.sharing(values[slot])
        return self.recipe.tie(values, slot)

    def _swept(self, values: Sequence[Array], cts: Any, twins: Mapping[int, Op] = _NONE) -> list[object]:
        recipe = self.recipe
        tape = recipe.tape(values, twins)
        inputs = [values[k] for k in recipe.inputs]
        receivers = ad.receivers(tape, [x for x, e in zip(inputs, self.edges) if e])
        seeds: dict[Any, Any] = {}
        masks: dict[Any, Any] = {}
        for (slot, _), ct in zip(recipe.outputs, cts):
            if ct is not None:
                k = id(values[slot])
                masks[k] = ct.mask if ct.__class__ is MaskedCotangent and k not in seeds else None
                seeds[k] = added(seeds[k], unmasked(ct)) if k in seeds else unmasked(ct)
        result = ad.reverse_sweep(tape, receivers, seeds, masks=masks)
        return [_with_mask(result.get(id(x)), masks.get(id(x))) if e else None for x, e in zip(inputs, self.edges)]

    def _placed(self, cts: Sequence[Any]) -> Any:
        """Assemble the cotangent of the input from the cotangents of outputs that are parts of it; else None."""
        if not all(ct is None or isinstance(ct, _ndarray | np.generic) for ct in cts):
            return None
        recipe = self.recipe
        source = self.values[recipe.inputs[0]]
        total = np.zeros(source.shape, source.dtype)
        for (output, _), ct in zip(recipe.outputs, cts):
            if ct is not None:
                path = recipe.path(recipe.inputs[0], output)
                if path is None:
                    return None
                region = total
                for op, params in path:
                    region = op.impl(region, **params)
                if not np.may_share_memory(region, total):
                    return None
                region += ct
        return total

    def release(self) -> None:
        if self.checks or self.packed:
            self.values, self.checks = RELEASED, []

    def pack(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        """Save the result of `pack` for the inputs, and no other array: the others are recomputed."""
        packed = [x if x.__class__ is Spec else Spec(x.shape, x.dtype) for x in self.values]
        for k, e in zip(self.recipe.inputs, self.edges):
            if self.values[k].__class__ is not Spec:
                packed[k] = Packed(rewrap(self.values[k], e), pack, unpack)  # type: ignore[call-overload]
        for k, x in self.recipe.constants:
            packed[k] = x
        self.values, self.checks, self.packed = packed, [], True

    def protect(self, x: Any) -> None:
        if self.values is RELEASED:
            return
        array = x.array
        copies: dict[int, Any] = {}

        def safe(x: Any) -> Any:
            if x.__class__ is Packed:
                x.protect(array)
            elif x.__class__ is DualArray and isinstance(array, _ndarray) and np.may_share_memory(x.array, array):
                return copies.setdefault(id(x), x.copied())
            elif isinstance(x, _ndarray) and isinstance(array, _ndarray) and np.may_share_memory(x, array):
                return copies.setdefault(id(x), x.copy())
            elif x is array:  # a value of a trace
                return copies.setdefault(id(x), x._alias())
            return x

        self.values = [safe(v) for v in self.values]
        self.checks = [c for c in self.checks if c[0].counter is not x._counter]

    # -- attributes for users ----------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        result = self._attributes() if name.startswith("_saved_") else {}
        if name not in result:
            raise AttributeError(f"'{self.name()}' object has no attribute {name!r}")
        return result[name]()

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(self._attributes() if self.values is not RELEASED else ())]

    def _attributes(self) -> dict[str, Callable[[], object]]:
        """Return the saved values by name, as functions that return them."""
        name, values, recipe = self.name(), self._values(True), self.recipe
        if self.packed:
            recipe.repeat(values)
        inputs, outputs = [values[k] for k in recipe.inputs], [values[k] for k, _ in recipe.outputs]
        params = {k: v for _, _, args, _ in recipe.steps for k, v in args.items() if k in ("axes", "axis")}
        options = saved_options(name, {**params, **self.options}, inputs[0].shape, outputs[0].shape)
        table: dict[str, Callable[[], Any]] = {
            f"_saved_{k}": partial(_same, v) for k, v in options.items() if not isinstance(v, Carrier | _ndarray)
        }
        for called, x, e in zip(saved_names(name, len(inputs)), inputs, self.edges):
            if x.__class__ is not Spec:
                table[f"_saved_{called}"] = partial(rewrap, x, e)
        for k, x in enumerate(outputs):
            if x.__class__ is not Spec:
                table[f"_saved_{saved_result(k, self.count, x.dtype)}"] = partial(rewrap, x, (self, k))
        return table


def _same(x: bool) -> Any:
    return x


def _with_mask(ct: object, mask: Array | None) -> Any:
    return ct if ct is None or mask is None else MaskedCotangent(ct, mask)


_CLASSES: dict[str, type[CompositeNode]] = {}


def composite_class(name: str) -> type[CompositeNode]:
    """Return the class of the nodes called `name`."""
    result = _CLASSES.get(name)
    if result is None:
        traits = {
            "saves_result": name in SAVES_RESULT,
            "piecewise_linear": name in PIECEWISE_LINEAR,
            "copies_inputs": name in COPIES_INPUTS,
            "copies_results": name in COPIES_RESULTS,
        }
        result = _CLASSES.setdefault(name, type(name, (CompositeNode,), {"__slots__": (), **traits}))
    return result
