"""Trace Tensors: inputs from outside, their updates, and the joint forward and backward graph.

Each Tensor that a traced function receives or reads has one *stand-in*: a `TracedTensor` whose array is a tracer of a
graph input. The tape inside the trace begins at the stand-ins. New values and gradients of stand-ins become *effects*,
which every call repeats on the real Tensors. The returned Tensors are swept backwards once, for cotangents that are
further inputs. The result is the *joint* graph of the forward and the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import GraphNode
from tracegrad.torch.modes import DEFAULT, STATE
from tracegrad.torch.tape import Tensor, TracedTensor
from tracegrad.torch.tape.backward import engine
from tracegrad.torch.tape.backward.functional import leads_out, reachable_nodes
from tracegrad.torch.tape.recording.node import Node as TapeNode
from tracegrad.torch.tape.recording.node import next_number
from tracegrad.torch.tape.tensors import inplace_updates
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.driver.tensor_effects import DefaultDtype, GradMode
from tracegrad.trace.effects.effects import NAMES, STATEMENTS, Effect, Template
from tracegrad.trace.effects.result_template import ResultTemplate
from tracegrad.trace.sources.sources import ArgumentLeaf, Attribute, Fixed, Source
from tracegrad.utils.lazy_dataclass import record


@record(slots=True, eq=False)
class OutsideTensor:
    """A Tensor from outside: its source, its stand-in, and the node of its value."""

    source: Source
    tensor: Any
    node: GraphNode
    edge: Any = None
    grad: Any = None  # the stand-in of its gradient, if that was read and there is one
    read: bool = False  # whether the gradient was read or replaced
    hooks: list[tuple[Any, Any]] | None = None  # after they were read: the dict and key of each outside hook

    def replaces(self) -> None:
        """Note that the gradient is replaced and that its previous value is not read."""
        self.read, self.grad = True, _UNREAD


_UNREAD = object()


class _OutsideTapeNode(TapeNode):
    """The outside tape of a Tensor that is not a leaf, as the maker of its stand-in. A backward pass into it aborts the
    trace, and plain Python continues."""

    __slots__ = ("owner", "real")

    def __init__(self, owner: Tensors, real: Tensor):
        self.edges, self.hooks, self.number = (), None, next_number()
        self.owner, self.real = owner, real

    def pull(self, ct: object, recording: bool) -> Sequence[Any]:
        raise self.owner.builder.abort("a backward pass in it goes on into what was recorded before")

    def ends(self, wanted: Iterable[TapeNode]) -> None:
        if self.owner.leads_to_wanted(self.real, wanted):
            raise self.owner.builder.abort("a derivative in it is taken through what was recorded before")


class Tensors:
    """The stand-ins of one trace."""

    def __init__(self, builder: TraceBuilder):
        self.builder = builder
        self._known: dict[int, tuple[Any, OutsideTensor]] = {}
        self._ending = False  # whether the returned Tensors are swept; their cotangents reach the outside hooks

    def close(self) -> None:
        """End the trace: release all Tensors."""
        self._known.clear()

    @property
    def any(self) -> bool:
        """Whether there are Tensors at all."""
        return bool(self._known)

    def argument(self, number: int, real: Tensor, node: GraphNode) -> TracedTensor:
        """The stand-in of the Tensor that is a leaf of the arguments; `node` is the input with its value."""
        result = self._known.get(id(real))
        if result is not None:
            self.builder.world.assume(ArgumentLeaf(None, number), "same", result[1].source)
            return result[1].tensor  # type: ignore[no-any-return]
        return self._add(real, ArgumentLeaf(None, number), node)

    def captured(self, real: Tensor, source: Source) -> TracedTensor:
        """The stand-in of a Tensor that was read from `source`."""
        result = self._known.get(id(real))
        if result is not None:
            if result[1].source.key != source.key:
                self.builder.world.assume(source, "same", result[1].source)
            return result[1].tensor  # type: ignore[no-any-return]
        world = self.builder.world
        if real._uninitialized:
            world.assume(Attribute(source, "_uninitialized"), "equals", True)
            raise self.builder.abort("a lazy module in it has no shapes yet; call the module once before")
        world.assume(Attribute(source, "requires_grad"), "equals", real.requires_grad)
        world.assume(Attribute(source, "is_leaf"), "equals", real.is_leaf)
        capture = self.builder.capture(real.array, Attribute(source, "array"))
        return self._add(real, source, capture.node)

    def note_default_dtype(self) -> None:
        """Note that the trace depends on the default dtype."""
        self.builder.world.assume(DefaultDtype(None, ""), "equals", DEFAULT.dtype.name)

    def known(self) -> list[tuple[Tensor, Source]]:
        """The Tensors from outside that have stand-ins, and their sources."""
        return [(real, result.source) for real, result in self._known.values()]

    def of(self, real: Tensor) -> TracedTensor:
        """The stand-in of a Tensor without a known source."""
        self.builder.require_open()
        result = self._known.get(id(real))
        if result is not None:
            return result[1].tensor  # type: ignore[no-any-return]
        if real.requires_grad and not leads_out(real):  # such as a saved value of an outside pullback
            real = real._like(real.array)
        return self.captured(real, Fixed(real, "a Tensor"))

    def _add(self, real: Tensor, source: Source, node: GraphNode) -> TracedTensor:
        self.builder.world.assume(GradMode(None, ""), "equals", STATE.enabled)
        tensor = TracedTensor(self.builder.value(node), real.requires_grad)
        if getattr(real, "_is_param", False):
            tensor._is_param = True  # type: ignore[attr-defined]
        if not real.is_leaf:
            tensor._edge = _OutsideTapeNode(self, real)
        result = OutsideTensor(source, tensor, node)
        tensor._outside = result
        if tensor._requires:
            result.edge = engine.edge_of(tensor)
        self._known[id(real)] = (real, result)
        return tensor

    def leads_to_wanted(self, real: Tensor, wanted: Iterable[TapeNode]) -> bool:
        """Whether the outside tape of a Tensor leads to another one whose stand-in was made by one of these nodes."""
        if self._ending:
            return False
        ends = {n: r for r, s in self._known.values() if s.edge is not None and r is not real for n in [s.edge[0]]}
        nodes = [ends[n]._edge_of() for n in wanted if n in ends]
        targets = {e[0] if type(e) is tuple else e for e in nodes}
        return bool(targets) and not targets.isdisjoint(reachable_nodes(real))

    def grad_of(self, outside: OutsideTensor) -> Any:
        """The gradient that the Tensor had when the function was called, as a stand-in, or None."""
        outside.read = True
        real = next(r for r, s in self._known.values() if s is outside)
        grad_source = Attribute(outside.source, "grad")
        if real.grad is None:
            self.builder.world.assume(grad_source, "equals", None)
            return None
        outside.grad = self.captured(real.grad, grad_source)
        return outside.grad

    def hooks_of(self, outside: OutsideTensor) -> None:
        """Run the outside hooks of a leaf, before its own hooks, in backward passes of the traced code."""
        if outside.hooks is not None or self._ending:
            return
        outside.hooks = []
        real = next(r for r, s in self._known.values() if s is outside)
        if real._hooks is None:
            self.builder.world.assume(Attribute(outside.source, "_hooks"), "equals", None)
            return
        result = self.builder.world.translate(real._hooked, Attribute(outside.source, "_hooked"))
        leaf_hooks = outside.tensor._leaf_hooks()
        for held, hooks in zip(
            (leaf_hooks.tensor.setdefault(0, {}), leaf_hooks.accumulated, leaf_hooks.before, leaf_hooks.after), result
        ):
            later = dict(held)
            held.clear()
            held.update(enumerate(hooks, -len(hooks)))
            held.update(later)
            outside.hooks += [(held, k) for k in range(-len(hooks), 0)]

    def input_positions(self, inputs: Sequence[GraphNode]) -> tuple[tuple[Source, int], ...]:
        """The sources of the Tensors, and the numbers of their values among the `inputs` (-1: not an input)."""
        numbers = {x: k for k, x in enumerate(inputs)}
        return tuple([(s.source, numbers.get(s.node, -1)) for _, s in self._known.values()])

    def real_of(self, tensor: object) -> OutsideTensor | None:
        """The Tensor that `tensor` stands for, if it is an unchanged stand-in."""
        result = getattr(tensor, "_outside", None)
        return result if isinstance(result, OutsideTensor) else None

    # -- the end of a trace ----------------------------------------------------------------------------------------
    def effects(self, template: Template, output: Callable[[object, bool], ResultTemplate]) -> Iterator[Effect]:
        """The effects on the stand-ins' Tensors; `template` makes the template of a value, `output` the template of a
        new Tensor, with or without a derivative."""
        for real, s in list(self._known.values()):
            if s.tensor.array.node is not s.node:
                derived = s.tensor.grad_fn is not None and not isinstance(s.tensor.grad_fn, _OutsideTapeNode)
                value = output(s.tensor, derived and s.tensor.requires_grad)
                yield Effect("tensor", s.source, _updates(s.tensor), value)
            if s.read and s.tensor._grad is not s.grad:
                yield Effect("field", s.source, "grad", template(s.tensor._grad))
            if real.is_leaf and s.tensor.is_leaf and s.tensor.requires_grad != real.requires_grad:
                yield Effect("field", s.source, "requires_grad", template(s.tensor.requires_grad))

    def swept(self, roots: Sequence[Any]) -> tuple[list[GraphNode], list[GraphNode], list[Source], str]:
        """The cotangent inputs of `roots`, the cotangents of the stand-ins that require grad, and their positions; or
        the reason why there are none."""
        self._ending = True
        wanted = [s for _, s in self._known.values() if s.edge is not None]
        for held, k in [hook for s in wanted for hook in s.hooks or ()]:
            del held[k]
        cts = [self.builder.cotangent(x.array) for x in roots]
        first_guard = len(self.builder.guards)
        pairs = [(x._edge_of(), ct) for x, ct in zip(roots, cts)]
        if not pairs or not wanted:
            return [], [], [], ""
        try:
            _, result = engine.run(pairs, False, True, [s.edge for s in wanted])
        except RuntimeError as error:
            return [], [], [s.source for s in wanted], str(error)
        for guard in self.builder.guards[first_guard:]:
            if guard.node.depends_on({ct.node for ct in cts}):
                raise UnsupportedError(
                    located(
                        f"{guard.query} of a gradient of what a traced function returns: it is not known while the "
                        "function runs",
                        guard.location,
                    )
                )
        reached = [(s, ct) for s, ct in zip(wanted, result) if ct is not None]
        nodes = [self.builder.lift(ct if hasattr(ct, "node") else np.asarray(ct)).node for _, ct in reached]
        return [ct.node for ct in cts], nodes, [s.source for s, _ in reached], ""


def _updates(tensor: Any) -> int:
    """The number of in-place updates of a stand-in."""
    return max(1, tensor._counter[0] if tensor._counter is not None else 1)


def _update(target: Any, times: int, new: Any) -> None:
    """Write a new value into a Tensor that the function updates `times` times; its version counts them."""
    if new._requires:
        inplace_updates.update(target, new)
    else:
        target._store(new.array)
        inplace_updates.bump(target)
    if target._counter is not None:
        target._counter[0] += times - 1


STATEMENTS["tensor"] = "update_tensor({holder}, {key}, {value})"
NAMES["update_tensor"] = _update
