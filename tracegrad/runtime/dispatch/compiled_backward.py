"""Record calls of compiled functions on Tensors as autograd nodes (compiled backward).

All outputs of a call have one node, `CompiledBackward`, whose backward pass is a compiled program too. The
residuals saved by the forward pass are chosen to save memory (`tracegrad.transforms.partition`). If the backward pass
is itself recorded, it is a traced function of the arguments and the cotangents, called on Tensors again. Derivatives of
every order are therefore available.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import Graph
from tracegrad.locks import new_lock
from tracegrad.ops.shape.linear import zeros_like
from tracegrad.runtime.diagnostics.nan_origin import raise_origin
from tracegrad.runtime.dispatch.specializations import Interpreted
from tracegrad.runtime.execution.program import MISS, compile_program, conformed
from tracegrad.settings import disable_jit, leaving_out, left_out
from tracegrad.torch.modes import STATE, enable_grad
from tracegrad.torch.tape import Tensor, TracedTensor
from tracegrad.torch.tape.backward import engine
from tracegrad.torch.tape.recording.node import RELEASED, SECOND_TIME, MaskedCotangent, Node, next_number, rewrap
from tracegrad.torch.tape.recording.saved_tensor import Packed, describe_maker, modified
from tracegrad.torch.tape.tensors import inplace_updates
from tracegrad.torch.tape.tensors.tensor import of_array
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.effects.result_template import in_iteration
from tracegrad.trace.random.draws import again
from tracegrad.trace.sources.signature import BoundCall
from tracegrad.trace.sources.sources import ArgumentLeaf
from tracegrad.transforms.partition import partition
from tracegrad.tree.registry import kind_of

if TYPE_CHECKING:
    from tracegrad.typing import Array


class OnTape:
    """The data of a path for calls on Tensors: the forward graph with its residuals, the backward program, compiled
    when it is first needed, and the derived function."""

    def __init__(self, trace: Trace, name: str, body: Callable[..., Any], how: tuple[str, int] | None):
        assert trace.tape is not None
        self._left_out = left_out()
        self._how = how  # options of the compiled backward program; None if NumPy runs both
        self.trace, self.tape, self.name, self.body = trace, trace.tape, name, body
        self.graph = trace.graph
        self._lock = new_lock()
        self._backward: Any = None
        self._derived: Any = None
        self._graph: Graph | None = None
        self.saved: tuple[int, ...] = ()  # numbers of the inputs saved for the backward pass
        self.num_residuals = 0  # number of residuals among the outputs
        written = {e.holder.key for e in trace.effects if e.kind == "tensor"}
        updated = {k for source, k in self.tape.outside_tensors if source.key in written}
        if self.tape.joint is not None:
            inputs, results = len(trace.graph.inputs), len(trace.graph.outputs)
            self.graph, self._graph, values = partition(self.tape.joint, inputs, results)
            input_index = {x: k for k, x in enumerate(self.tape.joint.inputs)}
            self.saved = tuple([input_index[x] for x in values if x.op is None])
            self.num_residuals = len(values) - len(self.saved)
        tensors = {k for _, k in self.tape.outside_tensors}
        # Without and with effects: the numbers of saved inputs that may be overwritten before the backward pass reads
        # them. The owner of an ndarray may change it, and an ndarray has no version counter. A call with effects
        # overwrites the Tensors that it updates in place.
        self.copied = [
            tuple([k for k in self.saved if k not in tensors or k in overwritten])
            for overwritten in (set[int](), updated)
        ]
        # Without and with effects: for each outside Tensor, whether an unrecorded pass needs it unchanged.
        self.needed = [
            tuple([k in self.saved and k not in overwritten for _, k in self.tape.outside_tensors])
            for overwritten in (set[int](), updated)
        ]
        self.arguments = len(trace.graph.inputs) - len(trace.captures)

    @property
    def graph_back(self) -> Graph:
        """The graph of `backward`."""
        assert self._graph is not None
        return self._graph

    @property
    def backward(self) -> Any:
        """The backward program (saved inputs, residuals, cotangents) -> (cotangents of the wanted Tensors)."""
        if self._backward is not None:
            return self._backward
        with self._lock:
            if self._backward is None:
                assert self._graph is not None
                if self._how is None:
                    self._backward = Interpreted(self._graph)
                    return self._backward
                kinds = [self.trace.kinds[k] for k in self.saved]
                kinds += ["array"] * (len(self._graph.inputs) - len(kinds))
                single = len(self._graph.outputs) == 1
                name = f"{self.name} backward"
                with leaving_out(self._left_out):
                    self._backward = compile_program(self._graph, tuple(kinds), single, name, False, *self._how)
            return self._backward

    def derived(self, make: Callable[..., Any]) -> Any:
        """The traced function (args, kwargs, Tensors, cotangents) -> cotangents, called by a recorded backward pass."""
        with self._lock:
            if self._derived is None:
                self._derived = make(self._pulled, f"{self.name} backward")
                self._derived.effects = False
                if self._how is None:
                    self._derived = disable_jit()(self._derived)
            return self._derived

    def _pulled(self, args: Any, kwargs: Any, leaves: Any, cts: Any) -> tuple[Any, ...]:
        trace = current_trace()
        body = self.body if trace is None else trace.world.inline(self.body)
        if trace is not None:
            stands = {id(x): _leaf_in(trace, x) for x in leaves.values() if not isinstance(x, TracedTensor)}
            args, kwargs = tree.map(lambda x: stands.get(id(x), x), (args, kwargs))
            leaves = {k: stands.get(id(x), x) for k, x in leaves.items()}
        result = body(*args, **kwargs)
        read = [
            _outside_tensor(trace, source)
            for source, _ in self.tape.outside_tensors
            if not isinstance(source, ArgumentLeaf)
        ]
        inputs = {id(x) for x in (*leaves.values(), *read)}
        outputs = [x for x in _result_tensors(result, set()) if x.grad_fn is not None and id(x) not in inputs]
        if len(outputs) != len(cts):
            raise UnsupportedError(
                located(
                    f"a second derivative through {self.name}, which updates Tensors from outside in place; return the "
                    "new values instead"
                )
            )
        wanted = [
            leaves[s.name] if isinstance(s, ArgumentLeaf) else _outside_tensor(trace, s) for s in self.tape.wanted
        ]
        cotangents = engine.grad(outputs, wanted, list(cts), create_graph=True, allow_unused=True)
        return tuple([zeros_like(x) if ct is None else ct for x, ct in zip(wanted, cotangents)])

    # -- a call ----------------------------------------------------------------------------------------------------
    def finish(self, call: BoundCall, captured: Sequence[Any], outputs: Sequence[Any], owner: Any) -> Any:
        """Build the result of a call from the outputs of the program, and repeat the side effects."""
        node = self._node(call, captured, outputs, owner)
        if owner.effects:
            for effect in self.trace.effects:
                if effect.recorded is not None:
                    inplace_updates.check(effect.holder.read(), effect.recorded)
        return self.trace.finish(outputs, lambda array, root: tensor_of(array, root, node), owner.effects)

    def _node(self, call: BoundCall, captured: Sequence[Any], outputs: Sequence[Any], owner: object) -> Any:
        if not self.tape.roots or not STATE.enabled:
            return None
        edges = tuple([source.read()._edge_of() for source in self.tape.wanted])
        if self.tape.joint is None:
            return Spent(self.tape.spent, edges) if self.tape.spent else None
        watched = [source.read() for source, _ in self.tape.outside_tensors]
        saved = tuple(outputs[len(outputs) - self.num_residuals :])
        node = CompiledBackward(self, call, [*call.leaves, *captured], call.tensors, edges, watched, saved, owner)
        if STATE.watching:
            node.metadata["traceback_"] = traceback.format_stack()
        if STATE.saving:
            node.pack(*STATE.saving[-1])
        return node


def tensor_of(array: object, root: int, node: object) -> Tensor:
    """An output as a Tensor: differentiable output number `root` of `node`, unless `root` is negative."""
    out: Tensor = of_array(np.asarray(array))
    if root >= 0 and node is not None:
        out._requires, out._edge = True, (node, root)
    return out


def _leaf_in(trace: Any, real: Tensor) -> Tensor:
    """The stand-in of `real`, which requires grad also where the tape of `real` ends in an outside pullback."""
    stand: Tensor = trace.entered(trace.tensors.of(real))
    if real.requires_grad and not stand.requires_grad:
        stand = stand.detach()
        stand._requires = True
    return stand


def _outside_tensor(trace: Any, source: Any) -> object:
    real = source.read()
    return real if trace is None else trace.tensors.captured(real, source)


def _result_tensors(x: object, seen: set[int]) -> Iterator[Tensor]:
    """The Tensors in a result, each once, in the order in which a trace numbers them."""
    if id(x) in seen:
        return
    seen.add(id(x))
    kind = kind_of(type(x))
    if isinstance(x, Tensor):
        yield x
    elif kind is not None:
        children, aux = kind.flatten(x)
        held = list(children)
        for i in in_iteration(kind, aux, len(held)):
            yield from _result_tensors(held[i], seen)


class Spent(Node):
    """Node of a derivative that is consumed, or invalidated by an update in place."""

    __slots__ = ("why",)
    is_multi_result = True

    def __init__(self, why: str, edges: tuple[Any, ...]):
        self.why, self.edges, self.hooks, self.number = why, edges, None, next_number()

    def name(self) -> str:
        return "CompiledBackward"

    def pull(self, cts: object, recording: bool) -> Sequence[Any]:
        raise RuntimeError(self.why)


class CompiledBackward(Node):
    """Node of one call of a compiled function: its inputs, and the residuals for the backward pass."""

    __slots__ = ("call", "checks", "inputs", "owner", "path", "residuals", "tensors")
    is_multi_result = True

    def __init__(
        self,
        path: OnTape,
        call: BoundCall,
        inputs: list[Any],
        tensors: dict[int, Any],
        edges: tuple[Any, ...],
        watched: Sequence[Any],
        residuals: tuple[Any, ...],
        owner: Any,
    ):
        self.path, self.owner, self.residuals, self.edges = path, owner, residuals, edges
        self.call: Any = call  # or an equivalent one
        self.inputs: Any = inputs
        self.tensors: Any = tensors  # the Tensors among the arguments
        for k in path.copied[owner.effects]:
            if inputs[k].__class__ is np.ndarray:
                inputs[k] = inputs[k].copy()
        # The version counters, versions and arrays that must not change, and whether an unrecorded pass needs them too.
        self.checks = [
            (counter, counter[0], t.array, needed)
            for t, needed in zip(watched, path.needed[owner.effects])
            if (counter := t._counter) is not None
        ]
        self.hooks, self.number = None, next_number()

    @property
    def count(self) -> int:  # type: ignore[override]
        """The number of outputs."""
        return len(self.path.tape.roots)

    def pull(self, cts: object, recording: bool) -> Sequence[Any]:
        if self.inputs is RELEASED:
            raise RuntimeError(located(SECOND_TIME))
        for counter, version, array, needed in self.checks:
            if counter[0] != version and (needed or recording):
                raise modified(array, counter, version, describe_maker(None, counter))
        path, args = self.path, self._cotangent_arrays(cts)
        if recording:
            return self._recorded([rewrap(ct, None) if isinstance(ct, np.ndarray) else ct for ct in args])
        values = self._values(args)
        program = path.backward
        result = program.entry(*values)  # takes the saved layouts, and does not raise
        if result is MISS:
            result = program.run([conformed(x) for x in values])
        return (result,) if program.single else result

    def blame(self, cts: object, results: Sequence[object]) -> None:
        args = self._cotangent_arrays(cts)
        if not self.path.trace.effects:  # the tape of a plain Python call knows the source lines
            with enable_grad(), again(self.call):
                self.path._pulled(*self._arguments(), dict(self.tensors), [rewrap(ct, None) for ct in args])
        raise_origin(f"the derivative of {self.path.name}", self.path.graph_back, self._values(args), results)

    def _recorded(self, cts: Sequence[object]) -> Sequence[Any]:
        """The cotangents, computed by a call of the derived function on the Tensors of this call."""
        with again(self.call):  # repeats the random draws of this call
            results: Sequence[Any] = self.path.derived(self.owner.derive)(*self._arguments(), dict(self.tensors), cts)
        return results

    def _cotangent_arrays(self, cts: Any) -> list[Array]:
        """The cotangents as arrays."""
        return [
            np.zeros(a.shape, a.dtype) if ct is None else ct.ct if ct.__class__ is MaskedCotangent else ct
            for a, ct in zip(self.path.tape.roots, cts)
        ]

    def _values(self, cotangents: Sequence[object]) -> list[object]:
        """The operands of the backward program."""
        saved = [x() if x.__class__ is Packed else x for x in self.residuals]
        return [*[self.inputs[k] for k in self.path.saved], *saved, *cotangents]

    def _arguments(self) -> tuple[Any, Any]:
        """The positional and keyword arguments of the call."""
        leaves = [self.tensors.get(k, x) for k, x in enumerate(self.inputs[: self.path.arguments])]
        args, kwargs = self.call.rebuild(leaves)
        return args, kwargs

    def pack(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        self.residuals = tuple([Packed(rewrap(np.asarray(x), None), pack, unpack) for x in self.residuals])

    def release(self) -> None:
        self.inputs = self.residuals = self.call = self.tensors = RELEASED
        self.checks = []
