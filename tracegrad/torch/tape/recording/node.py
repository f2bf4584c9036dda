"""Tape nodes: the record of an operation from which a derivative is computed later.

A `Node` represents one operation. It maps the cotangents of its outputs to the cotangents of its inputs. Its `edges`,
one for each input, are the targets of the input cotangents. The edge to output 0 of a node is the node itself; the edge
to a leaf is its `AccumulateGrad`. The edge to another output is a pair of node and number. None stands for an array
without a record, False for an input for which PyTorch has no edge. Nodes are numbered in the order of creation. In
descending order every node therefore comes before the nodes that made its inputs.

Cotangents are arrays (ndarrays, or tracers inside a trace), or Tensors if the backward pass is itself recorded. The
cotangent that the rule of a `where` computes is `MaskedCotangent`, see `tracegrad.ad`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.ad import either_mask
from tracegrad.avals import LITERALS, Aval
from tracegrad.errors import located
from tracegrad.locks import new_lock
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.elementwise.table import add
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward.hooks import Hooks, RemovableHandle
from tracegrad.typing import DType

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


_numbers = itertools.count(1)
next_number = _numbers.__next__

SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)

# Replaces the saved values of a node after they are freed.
RELEASED: Any = type("Released", (), {"__repr__": lambda self: "RELEASED"})()


class Spec:
    """Shape and dtype of an operand whose values are not needed."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: DType):
        self.shape, self.dtype = shape, dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    @property
    def aval(self) -> Aval:
        return Aval(self.shape, np.dtype(self.dtype))


class Dual:
    """Tangent of a Tensor in the active dual level; None after its end.

    A `root` has its own tangent, even if it is a view. The tangents of other views are parts of their root's tangent.
    """

    __slots__ = ("__weakref__", "root", "tangent")

    def __init__(self, tangent: Any, root: bool):
        self.tangent, self.root = tangent, root
        STATE.level.duals.add(self)


class DualArray:
    """An array saved in a dual level, with its tangent."""

    __slots__ = ("array", "dual")

    def __init__(self, array: Any, dual: Any):
        self.array, self.dual = array, dual

    def copied(self) -> DualArray:
        """Copy the array and its tangent to separate memory."""
        tangent = self.dual.tangent
        return DualArray(self.array.copy(), None if tangent is None else Dual(tangent.clone(), self.dual.root))


class MaskedCotangent:
    """A cotangent `ct` that is 0 wherever `mask` is False, even if a rule computes another value there."""

    __slots__ = ("ct", "mask")

    def __init__(self, ct: Any, mask: Any):
        self.ct, self.mask = ct, mask


def unmasked(ct: Any) -> Any:
    """Return the cotangent without its mask."""
    return ct.ct if ct.__class__ is MaskedCotangent else ct


def added(x: Any, y: Any) -> Any:
    """Add two cotangents of one value."""
    if x.__class__ is MaskedCotangent or y.__class__ is MaskedCotangent:
        mask = either_mask(getattr(x, "mask", None), getattr(y, "mask", None)) if x.__class__ is y.__class__ else None
        total = add(unmasked(x), unmasked(y))
        return total if mask is None else MaskedCotangent(total, mask)
    if isinstance(x, Carrier) or isinstance(y, Carrier):
        return add(x, y)
    return np.add(x, y)


# One function, set by the module of Tensor: it makes a Tensor of an array and the edge to the node that made it.
wrapper: list[Callable[..., Any]] = []


def rewrap(array: Operand | Spec | None, edge: Any) -> Any:
    """Wrap a value of the tape as a Tensor with the history `edge`; numbers and unsaved values stay unchanged."""
    if array is None or array.__class__ is Spec or type(array) in LITERALS:
        return array
    return wrapper[0](array, edge)


class Node:
    """One operation on the tape: the `grad_fn` of its results.

    Attributes
    ----------
    next_functions : tuple of (Node, int)
        For each input, the node that it came from and the number of its output.
    metadata : dict
        Dictionary for notes on the node.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> node = (tensor(2.0, requires_grad=True) * 3.0).grad_fn
    >>> node.name(), node.next_functions[0][0].name()
    ('MulBackward0', 'torch::autograd::AccumulateGrad')
    """

    __slots__ = ("__weakref__", "edges", "hooks", "number")
    # Whether `pull` takes a tuple of cotangents (None for zero), one for each output, instead of one cotangent.
    is_multi_result = False
    # Whether `pull` takes batches of cotangents (`batched_grad`).
    batches = False
    # The number of outputs.
    count = 1
    edges: tuple[Any, ...]
    hooks: Hooks | None
    number: int

    def pull(self, ct: Any, recording: bool) -> Sequence[Array]:
        """Compute the cotangents of the inputs, in the order of `edges`; None for zero. Tensors if `recording`."""
        raise NotImplementedError

    def ends(self, wanted: Iterable[Node]) -> None:
        """Note that a pass to the `wanted` nodes cannot continue from here."""

    def blame(self, ct: Array, results: Sequence[Array]) -> None:
        """Raise for nan in a result of `pull`, if the operation inside the node that made it is known."""

    def release(self) -> None:
        """Free the saved values."""

    def pack(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        """Save the result of `pack` for each saved Tensor instead; `unpack` returns the Tensor."""

    def protect(self, x: Array) -> None:
        """Copy the values saved of the Tensor `x`, before the result of this node overwrites it."""

    def relocate_result(self, old: Array, tensor: Array) -> None:
        """Note that the result `old` has been written into the memory of `tensor`."""

    # -- interface for users -----------------------------------------------------------------------------------
    def __call__(self, *cotangents: Any) -> Any:
        """Compute the cotangents of the inputs (None for zero) from those of the outputs; hooks do not run.

        One input gives a value, several a tuple. The computation is recorded unless in `no_grad`. TypeError for a wrong
        number of arguments.
        """
        if len(cotangents) != self.count:
            raise TypeError(located(f"expected {self.count} arguments, got {len(cotangents)} instead"))
        recording = STATE.enabled or STATE.level is not None
        args = cotangents if recording else tuple([getattr(ct, "array", ct) for ct in cotangents])
        results = [unmasked(ct) for ct in self.pull(args if self.is_multi_result else args[0], recording)]
        shown = tuple(
            [rewrap(ct, None) if not recording else ct for ct, e in zip(results, self.edges) if e is not False]
        )
        return shown[0] if len(shown) == 1 else shown

    def name(self) -> str:
        """Return the name that PyTorch gives to the node of this operation.

        Returns
        -------
        str
            Name, for example "MulBackward0".
        """
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """Return, for each input, the node that it came from and the number of its output."""
        return tuple([e if type(e) is tuple else (e, 0) for e in self.edges if e is not False])

    @property
    def metadata(self) -> dict[str, Any]:
        """Return a dictionary for notes on this node."""
        return self._hooks().metadata

    def _hooks(self) -> Hooks:
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    def _sequence_nr(self) -> int:
        return self.number

    def register_hook(self, fn: Callable[..., object]) -> RemovableHandle:
        """Call a function after each backward pass through this node.

        Parameters
        ----------
        fn : callable
            Function `fn(grad_inputs, grad_outputs)`. It may return other grad_inputs.

        Returns
        -------
        RemovableHandle
            Handle whose `remove()` removes the hook.
        """
        return RemovableHandle(self._hooks().after, fn)

    def register_prehook(self, fn: Callable[..., object]) -> RemovableHandle:
        """Call a function before each backward pass through this node.

        Parameters
        ----------
        fn : callable
            Function `fn(grad_outputs)`. It may return other grad_outputs.

        Returns
        -------
        RemovableHandle
            Handle whose `remove()` removes the hook.
        """
        return RemovableHandle(self._hooks().before, fn)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"


# Lock: one thread at a time adds to the gradients of leaves.
writing = new_lock()


def owned(ct: Any, referenced: set[int]) -> Any:
    """Return `ct` as an array that nothing else refers to; `referenced` are the ids of arrays that may have
    references."""
    array = ct
    if ct.__class__ is not np.ndarray:
        if isinstance(ct, Carrier):
            return ct._alias()  # type: ignore[attr-defined]
        array = np.asarray(ct)
    if not (array.flags.owndata and array.flags.c_contiguous and array.flags.writeable) or id(array) in referenced:
        array = np.array(array, order="C")
    referenced.add(id(array))
    return array


class GradientEdge(NamedTuple):
    """Edge at which the cotangent of a Tensor arrives. It stands for the Tensor in derivatives.

    Parameters
    ----------
    node : Node
        Operation that computes the Tensor.
    output_nr : int
        Number of the output of `node`.
    spec : Spec, optional
        Shape and dtype of the Tensor, if they are known.

    Examples
    --------
    >>> from tracegrad import autograd, tensor
    >>> x = tensor(2.0, requires_grad=True)
    >>> autograd.grad(x * x, autograd.graph.get_gradient_edge(x))
    (tensor(4.),)
    """

    node: Node
    output_nr: int
    spec: Spec | None = None


class AccumulateGrad(Node):
    """The end of the tape at a leaf: cotangents that arrive here are added to `variable.grad`."""

    __slots__ = ("variable",)
    batches = True

    def __init__(self, variable: Any, hooks: Hooks | None):
        self.variable, self.hooks, self.edges, self.number = variable, hooks, (), next_number()

    def __call__(self, *cotangents: Any) -> tuple[object, ...]:
        """Add a cotangent to the gradient; the result is empty, because a leaf has no inputs."""
        if len(cotangents) != 1:
            raise TypeError(located(f"expected 1 arguments, got {len(cotangents)} instead"))
        with writing:
            self.accumulate(cotangents[0] if STATE.enabled else cotangents[0].array.copy(), STATE.enabled, set())
        return ()

    def name(self) -> str:
        """Return the name that PyTorch gives to this node."""
        return "torch::autograd::AccumulateGrad"

    def accumulate(self, ct: Any, recording: bool, referenced: set[int]) -> None:
        """Add `ct` to the gradient of a leaf that still requires it; in place if not `recording`, as in PyTorch."""
        variable = self.variable
        if not variable._requires:
            return
        old = variable._grad
        if recording:
            variable._grad = ct.clone().named("CopyBackwards") if old is None else old + ct
        elif old is None:
            variable._grad = wrapper[0](owned(ct, referenced), None)
        elif old._requires:
            variable._grad = rewrap(old.array + ct, None)
        else:
            old._store(old.array + ct)
            old._counter[0] += 1

    def _hooks(self) -> Hooks:
        # The hooks belong to the leaf, which outlives its nodes.
        self.hooks = self.variable._leaf_hooks()
        return self.hooks
