"""The tape: what an operation leaves behind so that a derivative can be taken later.

A `Node` stands for one operation and leads from the cotangents of its outputs to those of its inputs. Its `edges` say
where these go, one for each input: to the node that made the input (or to `AccumulateGrad` for a leaf) if that is
output 0 of it; to a pair of node and number for another output; None for an array that nothing is recorded of; False
where PyTorch has no edge at all. Nodes are numbered as they are made, so descending numbers are an order in which every
node comes before the nodes that its inputs came from.

Cotangents are arrays (ndarrays; inside a trace, its tracers), or Tensors when the backward pass is itself recorded. A
cotangent out of a `where` is `Masked`, see `tracegrad.ad`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.ad import either_mask
from tracegrad.avals import LITERALS, Aval
from tracegrad.errors import located
from tracegrad.locks import new_lock
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.elementwise.table import add
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward.hooks import Hooks, RemovableHandle

__all__ = [
    "RELEASED", "SECOND_TIME", "AccumulateGrad", "Dual", "GradientEdge", "Masked", "Moving", "Node", "Spec", "added",
    "next_number", "owned", "rewrap", "unmasked", "wrapper", "writing",
]  # fmt: skip

_numbers = itertools.count(1)
next_number = _numbers.__next__

SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)

# What stands in the place of saved values once they are freed.
RELEASED: Any = type("Released", (), {"__repr__": lambda self: "RELEASED"})()


class Spec:
    """The shape and dtype of an operand of which nothing else is needed."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: Any):
        self.shape, self.dtype = shape, dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    @property
    def aval(self) -> Aval:
        return Aval(self.shape, self.dtype)


class Dual:
    """The tangent of a Tensor in the dual level under way; None when that has ended. A `root` has a tangent of its
    own, though it may be a view; those of other views are parts of their root's."""

    __slots__ = ("__weakref__", "root", "tangent")

    def __init__(self, tangent: Any, root: bool):
        self.tangent, self.root = tangent, root
        STATE.level.duals.add(self)


class Moving:
    """An array that was saved in a dual level, with its tangent."""

    __slots__ = ("array", "dual")

    def __init__(self, array: Any, dual: Any):
        self.array, self.dual = array, dual

    def copied(self) -> Moving:
        """The same in memory of its own."""
        tangent = self.dual.tangent
        return Moving(self.array.copy(), None if tangent is None else Dual(tangent.clone(), self.dual.root))


class Masked:
    """A cotangent `ct` that is 0 wherever `mask` does not hold, whatever rules make of it later."""

    __slots__ = ("ct", "mask")

    def __init__(self, ct: Any, mask: Any):
        self.ct, self.mask = ct, mask


def unmasked(ct: Any) -> Any:
    """The cotangent itself."""
    return ct.ct if ct.__class__ is Masked else ct


def added(x: Any, y: Any) -> Any:
    """The sum of two cotangents of one value."""
    if x.__class__ is Masked or y.__class__ is Masked:
        mask = either_mask(getattr(x, "mask", None), getattr(y, "mask", None)) if x.__class__ is y.__class__ else None
        total = add(unmasked(x), unmasked(y))
        return total if mask is None else Masked(total, mask)
    if isinstance(x, Carrier) or isinstance(y, Carrier):
        return add(x, y)
    return np.add(x, y)


# Set by the Tensor: from an array and the edge to what made it, the Tensor.
wrapper: list[Callable[..., Any]] = []


def rewrap(array: Any, edge: Any) -> Any:
    """A value of the tape as a Tensor that `edge` leads to; numbers and what was not saved stay."""
    if array is None or array.__class__ is Spec or type(array) in LITERALS:
        return array
    return wrapper[0](array, edge)


class Node:
    """One operation on the tape."""

    __slots__ = ("__weakref__", "edges", "hooks", "number")
    # Whether `pull` takes a tuple of cotangents (None for zero), one for each output, instead of one cotangent.
    several = False
    # Whether `pull` takes batches of cotangents (`batched`).
    batches = False
    # How many outputs there are.
    count = 1
    edges: tuple[Any, ...]
    hooks: Hooks | None
    number: int

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        """The cotangents of the inputs, in the order of `edges`; None for zero. Tensors where `recording`."""
        raise NotImplementedError

    def ends(self, wanted: Iterable[Node]) -> None:
        """A pass that is to arrive at the `wanted` nodes has nowhere to go on from here."""

    def blame(self, ct: Any, found: Sequence[Any]) -> None:
        """Raise for nan in what `pull` found, if more is known of where it arose than the node."""

    def release(self) -> None:
        """Free what was saved."""

    def pack(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        """Keep what `pack` makes of each Tensor that was saved instead; `unpack` gives the Tensor back."""

    def protect(self, x: Any) -> None:
        """Keep what was saved of the Tensor `x`, which is going to be overwritten by the answer of this node."""

    def settle(self, old: Any, tensor: Any) -> None:
        """The answer `old` is in the memory of `tensor` from now on."""

    # -- what users see ----------------------------------------------------------------------------------------
    def __call__(self, *cotangents: Any) -> Any:
        """The cotangents of the inputs (None for zero), given those of the outputs; hooks do not run.

        One of an input, a tuple for several; recorded unless in `no_grad`. TypeError for a wrong number of arguments.
        """
        if len(cotangents) != self.count:
            raise TypeError(located(f"expected {self.count} arguments, got {len(cotangents)} instead"))
        recording = STATE.enabled or STATE.level is not None
        given = cotangents if recording else tuple([getattr(ct, "array", ct) for ct in cotangents])
        found = [unmasked(ct) for ct in self.pull(given if self.several else given[0], recording)]
        shown = tuple([rewrap(ct, None) if not recording else ct for ct, e in zip(found, self.edges) if e is not False])
        return shown[0] if len(shown) == 1 else shown

    def name(self) -> str:
        """The name PyTorch gives to the node of this operation."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """For each input, the node that it came from and the number of its output."""
        return tuple([e if type(e) is tuple else (e, 0) for e in self.edges if e is not False])

    @property
    def metadata(self) -> dict[str, Any]:
        """A dictionary for notes on this node."""
        return self._hooks().metadata

    def _hooks(self) -> Hooks:
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    def _sequence_nr(self) -> int:
        return self.number

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_inputs, grad_outputs)` after this node; it may return other grad_inputs."""
        return RemovableHandle(self._hooks().after, fn)

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_outputs)` before this node; it may return other grad_outputs."""
        return RemovableHandle(self._hooks().before, fn)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


# Gradients of leaves are added to by one thread at a time.
writing = new_lock()


def owned(ct: Any, given: set[int]) -> Any:
    """`ct` as an array that nothing else writes to or reads from; `given` are the ids of those handed out already."""
    array = ct
    if ct.__class__ is not np.ndarray:
        if isinstance(ct, Carrier):
            return ct._alias()  # type: ignore[attr-defined]
        array = np.asarray(ct)
    if not (array.flags.owndata and array.flags.c_contiguous and array.flags.writeable) or id(array) in given:
        array = np.array(array, order="C")
    given.add(id(array))
    return array


class GradientEdge(NamedTuple):
    """Where the cotangent of a Tensor arrives: output `output_nr` of `node`. It stands for the Tensor in derivatives;
    `spec`, the shape and dtype of that Tensor, may be unknown."""

    node: Node
    output_nr: int
    spec: Spec | None = None


class AccumulateGrad(Node):
    """The end of the tape at a leaf: cotangents that arrive here are added to `variable.grad`."""

    __slots__ = ("variable",)
    batches = True

    def __init__(self, variable: Any, hooks: Hooks | None):
        self.variable, self.hooks, self.edges, self.number = variable, hooks, (), next_number()

    def __call__(self, *cotangents: Any) -> Any:
        """Add a cotangent to the gradient; what comes on is nothing."""
        if len(cotangents) != 1:
            raise TypeError(located(f"expected 1 arguments, got {len(cotangents)} instead"))
        with writing:
            self.accumulate(cotangents[0] if STATE.enabled else cotangents[0].array.copy(), STATE.enabled, set())
        return ()

    def accumulate(self, ct: Any, recording: bool, given: set[int]) -> None:
        """Add `ct` to the gradient, if one is still wanted: into it where nothing is recorded, as PyTorch does."""
        variable = self.variable
        if not variable._requires:
            return
        old = variable._grad
        if recording:
            variable._grad = ct.clone().named("CopyBackwards") if old is None else old + ct
        elif old is None:
            variable._grad = wrapper[0](owned(ct, given), None)
        elif old._requires:
            variable._grad = rewrap(old.array + ct, None)
        else:
            old._store(old.array + ct)
            old._counter[0] += 1

    def _hooks(self) -> Hooks:
        # They belong to the leaf, which outlives its nodes.
        self.hooks = self.variable._leaf_hooks()
        return self.hooks
