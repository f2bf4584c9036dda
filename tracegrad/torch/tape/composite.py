"""The node of a function of several ops: one operation to users, a small tape of its own inside.

`composed` runs the function on *parts*, which compute and write down the ops. The backward pass sweeps what was written
down, by the sweep that the compiler uses too; where it is itself recorded, the ops are applied again to Tensors. A
function whose ops only select parts of one array (`unbind`, `split`) puts the cotangents into their places at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tracegrad import ad
from tracegrad.avals import Aval, is_literal
from tracegrad.errors import located
from tracegrad.numpy_api import ArrayMethods
from tracegrad.ops.linear import reshape, slice, transpose
from tracegrad.ops.op import Carrier, Level, Op
from tracegrad.quiet import QUIET, reset_traps, set_traps
from tracegrad.torch.tape.names import saved_names, saved_options
from tracegrad.torch.tape.opnode import made_by, modified_error, of_inference
from tracegrad.torch.tape.packing import PackedValue
from tracegrad.torch.tape.pullbacks import needs_of
from tracegrad.torch.tape.tape import RELEASED, SECOND_TIME, Masked, Node, Spec, next_number, rewrap, unmasked

__all__ = ["CompositeNode", "Part", "Recipe", "composite_class", "makers", "path"]

# Ops that NumPy computes as views.
SELECTING = frozenset({slice, reshape, transpose})


class Recipe:
    """The ops that a function applied, and the Tensors that it was applied to."""

    def __init__(self) -> None:
        self.entries: list[ad.Entry] = []
        self.tensors: list[Any] = []
        self.parts: dict[int, Part] = {}

    def part(self, tensor: Any) -> Part:
        """The part that stands for a Tensor."""
        found = self.parts.get(id(tensor))
        if found is None:
            array = tensor._snapshot()
            found = self.parts[id(tensor)] = Part(self, array.view() if isinstance(array, np.ndarray) else array)
            found.weak = tensor.weak
            self.tensors.append(tensor)
        return found

    def close(self) -> None:
        """The function has returned: let go of everything."""
        self.entries, self.tensors = [], []
        self.parts.clear()

    def array_of(self, x: Any) -> Any:
        """The array of a result of the function."""
        if hasattr(x, "_snapshot"):
            x = self.part(x)
        return x.array if isinstance(x, Part) else np.asarray(x)


class Part(ArrayMethods, Carrier):
    """An array inside a function of several ops."""

    __slots__ = ("array", "recipe", "weak")
    level = Level.PART
    _concrete_masks = True
    weak: bool

    def __init__(self, recipe: Recipe, array: Any):
        self.recipe, self.array, self.weak = recipe, array, False

    @property
    def shape(self) -> Any:
        return self.array.shape

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def aval(self) -> Aval:
        return Aval(self.array.shape, self.array.dtype)

    def concrete(self, asked: str) -> Any:
        return self.array if isinstance(self.array, np.ndarray) else self.array.concrete(asked)

    def _lift(self, x: Any) -> Part:
        if isinstance(x, Part):
            return x
        if hasattr(x, "_snapshot"):
            return self.recipe.part(x)
        return Part(self.recipe, x if isinstance(x, Carrier) else np.asarray(x).view())

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Part:
        arrays = tuple([x if is_literal(x) else self._lift(x).array for x in operands])
        token = set_traps(QUIET)
        try:
            plain = not any(isinstance(x, Carrier) for x in arrays)
            answer: Any = np.asarray(op.impl(*arrays, **params)) if plain else op(*arrays, **params)
        finally:
            reset_traps(token)
        # No two values are one object: the sweep tells them apart by it.
        if any(answer is x for x in arrays):
            answer = answer.view() if plain else answer._alias()
        self.recipe.entries.append((answer, op, arrays, params))
        return Part(self.recipe, answer)


class CompositeNode(Node):
    """What a function of several ops leaves on the tape.

    `entries` are its own tape, from the arrays it was applied to (`inputs`) to those it gave (`outputs`). In them a
    `Spec` stands for an array that no rule reads; `again` are the entries that a recorded pass applies again, to have
    what the rules read as Tensors. `checks`: a version counter, the version, the array, the edge to what made it (a
    number for an output of this node), and whether a plain pass reads it too. `options` are what the function was told
    by name.
    """

    __slots__ = ("again", "checks", "count", "entries", "inputs", "options", "outputs", "packed")
    several = True
    entries: Any
    inputs: Any
    outputs: Any
    packed: Any
    checks: list[tuple[Any, int, Any, Any, bool]]
    again: frozenset[int]
    count: int

    def __init__(self, recipe: Recipe, outputs: Sequence[Any], options: dict[str, Any]):
        self.number, self.hooks, self.packed, self.options = next_number(), None, None, options
        tensors = recipe.tensors
        self.inputs = [recipe.parts[id(x)].array for x in tensors]
        self.edges = tuple([x._edge_of() if x.array.dtype.kind in "fc" else False for x in tensors])
        self.count = len(outputs)
        read = _read(recipe.entries, [x for x, e in zip(self.inputs, self.edges) if e])
        sources = set(read)
        again = set()
        for k in reversed(range(len(recipe.entries))):
            answer, _, operands, _ = recipe.entries[k]
            if id(answer) in sources:
                again.add(k)
                sources.update([id(x) for x in operands if not is_literal(x)])
        self.again = frozenset(again)
        owners = {id(_owner(x)) for x in (*self.inputs, *(e[0] for e in recipe.entries)) if id(x) in read}
        self.checks = [
            (x._counter, x._counter and x._counter[0], a, e, id(_owner(a)) in owners)
            for x, a, e in zip(tensors, self.inputs, self.edges)
            if id(a) in sources
        ]
        if any(c[0] is None for c in self.checks):
            raise of_inference()
        kept = read | {id(x) for x in self.inputs if id(x) in sources}
        given = [*self.inputs, *(e[0] for e in recipe.entries)]
        marks = {id(x): Spec(x.shape, x.dtype) for x in given if id(x) not in kept}
        self.entries = [
            (marks.get(id(answer), answer), op, tuple([marks.get(id(x), x) for x in operands]), params)
            for answer, op, operands, params in recipe.entries
        ]
        self.inputs = [marks.get(id(x), x) for x in self.inputs]
        self.outputs = [marks.get(id(x), x) for x in outputs]

    def guard(self, tensors: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Check from now on that the Tensors that were made of the outputs stay as they are, where that matters."""
        owners = {id(_owner(answer)) for answer, _, _, _ in self.entries if answer.__class__ is not Spec}
        for k, (x, array) in enumerate(zip(tensors, arrays)):
            if id(_owner(array)) in owners and x._base is None:
                self.checks.append((x._counter, 0, array, k, True))

    def pull(self, cts: Any, recording: bool) -> Sequence[Any]:
        entries, inputs, outputs = self._values(recording)
        if recording:
            values = {id(x): rewrap(x, e) for x, e in zip(inputs, self.edges) if x.__class__ is not Spec}
            return self._swept(*_replayed(entries, inputs, outputs, values, self.again), cts)
        placed = self._placed(cts)
        return self._swept(entries, inputs, outputs, cts) if placed is None else [placed]

    def _values(self, recording: bool) -> tuple[Any, Any, Any]:
        """The entries, inputs and outputs, unpacked and found to be as they were."""
        if self.entries is RELEASED:
            raise RuntimeError(located(SECOND_TIME))
        if self.packed is not None:
            values = {id(x): unpack() for x, unpack in self.packed}
            return _replayed(self.entries, self.inputs, self.outputs, values, self.again)
        for counter, version, array, edge, plain in self.checks:
            if (plain or recording) and counter[0] != version:
                words = made_by((self, edge)) if edge.__class__ is int else made_by(edge, counter)
                raise modified_error(array, words, counter[0], version)
        return self.entries, self.inputs, self.outputs

    def _swept(self, tape: list[ad.Entry], inputs: Sequence[Any], outputs: Sequence[Any], cts: Any) -> list[Any]:
        wanted = [x for x, e in zip(inputs, self.edges) if e]
        active = ad.active_values(tape, wanted)
        seeds: dict[Any, Any] = {}
        masks: dict[Any, Any] = {}
        for x, ct in zip(outputs, cts):
            if ct is not None:
                k = id(x)
                masks[k] = ct.mask if ct.__class__ is Masked and k not in seeds else None
                seeds[k] = seeds[k] + unmasked(ct) if k in seeds else unmasked(ct)
        found = ad.reverse_sweep(tape, seeds, lambda x: id(x) in active, masks=masks)
        return [_with_mask(found.get(id(x)), masks.get(id(x))) if e else None for x, e in zip(inputs, self.edges)]

    def _placed(self, cts: Sequence[Any]) -> Any:
        """The cotangent of the input, the outputs being parts of it: theirs, each in its place; else None."""
        if len(self.inputs) != 1 or not all(op in SELECTING for _, op, _, _ in self.entries):
            return None
        if not all(ct is None or isinstance(ct, np.ndarray | np.generic) for ct in cts):
            return None
        total = np.zeros(self.inputs[0].shape, self.inputs[0].dtype)
        made = makers(self.entries)
        for output, ct in zip(self.outputs, cts):
            if ct is not None:
                steps = path(made, self.inputs[0], output)
                if steps is None:
                    return None
                place = total
                for op, params in steps:
                    place = op.impl(place, **params)
                if not np.may_share_memory(place, total):
                    return None
                place += ct
        return total

    def release(self) -> None:
        if self.checks or self.packed:
            self.entries = self.inputs = self.outputs = self.packed = RELEASED
            self.checks = []

    def pack(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        """Keep what `pack` makes of the inputs, and no other array: the others are computed again."""
        kept = [(x, e) for x, e in zip(self.inputs, self.edges) if x.__class__ is not Spec]
        arrays = [*self.inputs, *(e[0] for e in self.entries)]
        marks = {id(x): x if x.__class__ is Spec else Spec(x.shape, x.dtype) for x in arrays}
        self.packed = [(marks[id(x)], PackedValue(x, e, pack, unpack)) for x, e in kept]
        self.entries = [
            (marks[id(answer)], op, tuple([marks.get(id(x), x) for x in operands]), params)
            for answer, op, operands, params in self.entries
        ]
        self.inputs, self.outputs = ([marks[id(x)] for x in xs] for xs in (self.inputs, self.outputs))
        self.checks = []

    def protect(self, x: Any) -> None:
        array = x.array
        for _, value in self.packed or ():
            value.protect(array)
        if isinstance(array, np.ndarray):
            copies: dict[int, Any] = {}

            def kept(x: Any) -> Any:
                if isinstance(x, np.ndarray) and np.may_share_memory(x, array):
                    return copies.setdefault(id(x), x.copy())
                return x

            self.entries = [(kept(a), op, tuple([kept(v) for v in vs]), params) for a, op, vs, params in self.entries]
            self.inputs, self.outputs = ([kept(v) for v in vs] for vs in (self.inputs, self.outputs))
        self.checks = [c for c in self.checks if c[0] is not x._counter]

    # -- what users see ----------------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        found = self._attributes() if name.startswith("_saved_") else {}
        if name not in found:
            raise AttributeError(f"'{self.name()}' object has no attribute {name!r}")
        return found[name]()

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(self._attributes() if self.entries is not RELEASED else ())]

    def _attributes(self) -> dict[str, Callable[[], Any]]:
        """What is saved under which name, as functions that give it."""
        name, (entries, inputs, outputs) = self.name(), self._values(True)
        params = {k: v for _, _, _, given in entries for k, v in given.items() if k in ("axes", "axis")}
        options = saved_options(name, {**params, **self.options}, inputs[0].shape, outputs[0].shape)
        found: dict[str, Callable[[], Any]] = {
            f"_saved_{k}": partial(_same, v) for k, v in options.items() if not isinstance(v, Carrier | np.ndarray)
        }
        for called, x, e in zip(saved_names(name, len(inputs)), inputs, self.edges):
            if x.__class__ is not Spec:
                found[f"_saved_{called}"] = partial(rewrap, x, e)
        for k, x in enumerate(outputs):
            if x.__class__ is not Spec:
                called = "indices" if x.dtype.kind == "i" else "result" if self.count == 1 else f"result{k}"
                found[f"_saved_{called}"] = partial(rewrap, x, (self, k))
        return found


def _same(x: Any) -> Any:
    return x


def _owner(x: Any) -> Any:
    """The array whose memory this is."""
    return x.base if isinstance(x, np.ndarray) and x.base is not None else x


def _with_mask(ct: Any, mask: Any) -> Any:
    return ct if ct is None or mask is None else Masked(ct, mask)


def _read(entries: Sequence[ad.Entry], wanted: Sequence[Any]) -> set[int]:
    """The ids of the arrays that the rules of these entries read, for derivatives with respect to `wanted`."""
    active = {id(x) for x in wanted}
    read: set[int] = set()
    for answer, op, operands, _ in entries:
        tracked = [
            k for k, x in enumerate(operands) if not is_literal(x) and id(x) in active and op.differentiable_in(k)
        ]
        if tracked and answer.dtype.kind in "fc":
            active.add(id(answer))
            literals = tuple([k for k, x in enumerate(operands) if is_literal(x)])
            for k in tracked:
                needs = needs_of(op, k, literals)
                read.update([id(x) for i, x in enumerate(operands) if i in needs.operands and not is_literal(x)])
                if needs.answer:
                    read.add(id(answer))
    return read


def _replayed(
    entries: Any, inputs: Any, outputs: Any, values: dict[int, Any], again: frozenset[int]
) -> tuple[list[ad.Entry], list[Any], list[Any]]:
    """The entries with `values`, by id, in the place of inputs, and what follows from them in that of the others."""
    tape = []
    for k, (answer, op, operands, params) in enumerate(entries):
        given = tuple([values.get(id(x), x) for x in operands])
        if k in again:
            found = op(*given, **params)
            values[id(answer)] = found.view() if any(found is x for x in given) else found
        tape.append((values.get(id(answer), answer), op, given, params))
    return tape, [values.get(id(x), x) for x in inputs], [values.get(id(x), x) for x in outputs]


def makers(entries: Sequence[ad.Entry]) -> dict[int, ad.Entry]:
    """The entries by the ids of their answers."""
    return {id(entry[0]): entry for entry in entries}


def path(made: dict[int, ad.Entry], source: Any, output: Any) -> list[tuple[Op, dict[str, Any]]] | None:
    """The ops that make `output` a part of `source`, in order; None if others are between them."""
    steps = []
    while output is not source:
        entry = made.get(id(output))
        if entry is None or entry[1] not in SELECTING:
            return None
        steps.append((entry[1], entry[3]))
        output = entry[2][0]
    return steps[::-1]


_CLASSES: dict[str, type[CompositeNode]] = {}


def composite_class(name: str) -> type[CompositeNode]:
    """The class of the nodes called `name`."""
    found = _CLASSES.get(name)
    if found is None:
        found = _CLASSES[name] = type(name, (CompositeNode,), {"__slots__": ()})
    return found
