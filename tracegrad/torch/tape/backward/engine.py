"""Autograd engine: compute derivatives along the tape, and return them or accumulate them into `grad`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.avals import Size, name_of
from tracegrad.errors import located
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.shape.linear import broadcast_to, cast, concatenate, full, reshape
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward.backward_pass import Edge, Sweep, run
from tracegrad.torch.tape.backward.batched_grad import Batched
from tracegrad.torch.tape.recording.node import AccumulateGrad, GradientEdge, Spec, owned, rewrap, writing

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = ["Edge", "Sweep", "backward", "edge_of", "grad", "run"]


def backward(
    tensors: object,
    grad_tensors: object = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: object = None,
) -> None:
    """Add the derivative of a weighted sum of Tensors to the `grad` of the leaves.

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
        Tensors to differentiate, which require grad.
    grad_tensors : Tensor or sequence of Tensor, optional
        Weights, with the shapes of `tensors`. A scalar needs no weight.
    retain_graph : bool, optional
        Whether to keep the saved values of the tape for another backward pass. The default is `create_graph`.
    create_graph : bool
        Whether the gradients are recorded, so that they can be differentiated.
    inputs : Tensor or sequence of Tensor, optional
        Tensors whose `grad` changes. The default is all leaves.

    Raises
    ------
    RuntimeError
        If a Tensor does not require grad, a weight has another shape, a Tensor with several elements has no weight, the
        tape has been freed, or a saved value has been updated in place.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x = tensor([1.0, 2.0], requires_grad=True)
    >>> backward((x * x).sum())
    >>> x.grad
    tensor([2., 4.])
    """
    outs = _listed(tensors)
    ins = None if inputs is None else _listed(inputs)
    if ins is not None and not ins:
        raise RuntimeError(located("`inputs` argument to `backward()` cannot be empty."))
    retain = STATE.retains_tape or (create_graph if retain_graph is None else retain_graph)
    roots = _roots(outs, _weights(outs, grad_tensors), create_graph)
    if create_graph:
        warnings.warn(located(_CYCLE), UserWarning, stacklevel=2)
    if ins is None:
        work, _ = run(roots, create_graph, retain)
        work.write()
        return
    edges = [edge_of(x) for x in ins]
    for x in ins:
        if not isinstance(x, GradientEdge) and not x.is_leaf:
            x.retain_grad()
    work, _ = run(roots, create_graph, retain, edges, accumulate=True)
    work.write()


def grad(
    outputs: object,
    inputs: object,
    grad_outputs: object = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Compute the derivatives of a weighted sum of Tensors with respect to inputs.

    Parameters
    ----------
    outputs : Tensor or sequence of Tensor
        Tensors to differentiate.
    inputs : Tensor, GradientEdge, or sequence of them
        Tensors to differentiate with respect to.
    grad_outputs : Tensor or sequence of Tensor, optional
        Weights, with the shapes of `outputs`. A scalar needs no weight.
    retain_graph : bool, optional
        Whether to keep the saved values of the tape for another backward pass. The default is `create_graph`.
    create_graph : bool
        Whether the derivatives are recorded, so that they can be differentiated.
    only_inputs : bool
        Without effect, as in PyTorch.
    allow_unused : bool, optional
        Whether an input that the outputs do not depend on has the derivative None. Otherwise it is an error.
    is_grads_batched : bool
        Whether `grad_outputs` have a batch axis in front. The derivatives then have one, too.
    materialize_grads : bool
        Whether such an input has a derivative of zeros instead of None.

    Returns
    -------
    tuple of Tensor
        Derivatives, with the shapes of `inputs`.

    Raises
    ------
    RuntimeError
        As for `backward`, and if an input is not used.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x = tensor(3.0, requires_grad=True)
    >>> (g,) = grad(x * x * x, x, create_graph=True)
    >>> g, grad(g, x)
    (tensor(27., grad_fn=<AddBackward0>), (tensor(18.),))
    """
    outs, ins = _listed(outputs), _listed(inputs)
    if not ins:
        raise RuntimeError(located("`inputs` argument to `grad()` cannot be empty."))
    if materialize_grads and allow_unused is False:
        raise ValueError(
            located(
                "Expected allow_unused to be True or not passed when materialize_grads=True, "
                "but got: allow_unused=False."
            )
        )
    if is_grads_batched:
        return _batched(outs, ins, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads)
    edges = [edge_of(x) for x in ins]
    retain = STATE.retains_tape or (create_graph if retain_graph is None else retain_graph)
    roots = _roots(outs, _weights(outs, grad_outputs), create_graph)
    work, result = run(roots, create_graph, retain, edges)
    with writing:
        work.write_retained()
    if work.callbacks:
        work.call_back()
    blank = _Blank(allow_unused, materialize_grads, create_graph)
    return tuple([_gradient_or_blank(i, x, ct, blank, work.referenced) for i, (x, ct) in enumerate(zip(ins, result))])


def _batched(
    outs: Sequence[Any],
    ins: Sequence[Any],
    grad_outputs: Any,
    retain_graph: Any,
    create_graph: bool,
    allow_unused: Any,
    materialize: bool,
) -> tuple[object, ...]:
    """Run one pass for all weights; one for each weight if a node does not take batches."""
    weights = _listed(grad_outputs)
    for i, (x, w) in enumerate(zip(outs, weights)):
        like = _like(x)
        if w is not None and like is not None and w.shape[1:] != like.shape:
            raise RuntimeError(
                located(
                    "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                    "dimension. The sizes of the remaining dimensions are expected to match the shape of the output: "
                    f"grad_output[{i}] has a shape of {_size(w)} and output[{i}] has a shape of {_size(like)}."
                )
            )
    sizes = [w.shape[0] for w in weights if w is not None]
    if not sizes:
        raise ValueError(located("is_grads_batched=True needs grad_outputs, which have a batch dimension in front"))
    size = min(sizes)
    options = create_graph, allow_unused, materialize
    if size and _takes_batches(outs):
        return _in_one_pass(outs, ins, weights, size, create_graph if retain_graph is None else retain_graph, *options)
    rows = []
    for k in range(size):
        retain = True if k < size - 1 else retain_graph
        some = [None if w is None else w[k] for w in weights]
        rows.append(grad(outs, ins, some, retain, create_graph, True, allow_unused, False, materialize))
    if not rows:
        return tuple([rewrap(full(shape=(0, *x.shape), value=0.0, dtype=x.dtype.name), None) for x in ins])
    return tuple([None if column[0] is None else _stacked(column) for column in zip(*rows)])


def _takes_batches(outs: Sequence[object]) -> bool:
    """Whether all nodes before these Tensors take batched cotangents, and no hook sees them."""
    roots = [edge_of(x)[0] for x in outs]
    nodes = Sweep(False, True).reachable([(node, 0) for node in roots])
    return not STATE.watching and all(node.batches and node.hooks is None for node in (*nodes, *roots))


def _in_one_pass(
    outs: Sequence[Any],
    ins: Sequence[Any],
    weights: Sequence[Any],
    size: int,
    retain: bool,
    create_graph: bool,
    allow_unused: object,
    materialize: bool,
) -> tuple[Array, ...]:
    edges = [edge_of(x) for x in ins]
    roots = []
    for i, (x, w) in enumerate(zip(outs, _weights(outs, weights))):
        like = _like(x)
        if w is None:
            one = _one(like)
            roots.append((edge_of(x), rewrap(one, None) if create_graph else one))
        else:
            weight = _weight(i, None if like is None else Spec((size, *like.shape), like.dtype), w[:size])
            roots.append((edge_of(x), Batched(weight if create_graph else weight._snapshot())))
    _, result = run(roots, create_graph, retain, edges)
    batches = [ct.array if isinstance(ct, Batched) else ct if ct is None else _repeated(ct, size) for ct in result]
    like = [x if (one := _like(x)) is None else Spec((size, *one.shape), one.dtype) for x in ins]
    blank = _Blank(allow_unused, materialize, create_graph)
    return tuple([_gradient_or_blank(i, x, ct, blank, set()) for i, (x, ct) in enumerate(zip(like, batches))])


def _like(x: Any) -> Any:
    """Return an object with the shape and dtype of an output; None for an edge without them."""
    return x.spec if isinstance(x, GradientEdge) else x


def _repeated(x: Array, size: int) -> Array:
    return broadcast_to(x, shape=(size, *x.shape))


def _stacked(column: Sequence[Array]) -> Array:
    return concatenate(*[reshape(x, shape=(1, *x.shape)) for x in column], axis=0)


class _Blank(NamedTuple):
    """Gradient of an input that no cotangent reaches: None, zeros (differentiable if `recorded`), or an error."""

    allowed: Any
    zeros: bool
    recorded: bool


def _gradient_or_blank(i: int, x: Any, ct: Any, blank: _Blank, referenced: set[int]) -> Any:
    if ct is not None:
        return ct if hasattr(ct, "_edge") else rewrap(owned(ct, referenced), None)
    if blank.zeros:
        if isinstance(x, GradientEdge):
            text = "materialize_grads cannot be used when the given input is a GradientEdge"
            raise RuntimeError(located(text))
        zeros = rewrap(full(shape=x.shape, value=0.0, dtype=x.dtype.name), None)
        return zeros.requires_grad_() if blank.recorded and zeros.dtype.kind in "fc" else zeros
    if not blank.allowed:
        raise RuntimeError(
            located(
                f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            )
        )
    return None


def _listed(x: Any) -> list[Any]:
    """Convert one or several Tensors or edges to a list."""
    is_sequence = isinstance(x, tuple | list) and not isinstance(x, GradientEdge)
    return list(x) if is_sequence or hasattr(x, "__next__") else [x]


def edge_of(x: Any) -> Edge:
    """Return the edge that a cotangent of `x`, a Tensor or a `GradientEdge`, arrives along."""
    if isinstance(x, GradientEdge):
        return x.node, x.output_nr
    if not hasattr(x, "_edge_of"):
        raise RuntimeError(located(f"all inputs have to be Tensors or GradientEdges, but got {type(x).__name__}"))
    if not x.requires_grad:
        raise RuntimeError(located("One of the differentiated Tensors does not require grad"))
    e = x._edge_of() or AccumulateGrad(x, None)
    return e if e.__class__ is tuple else (e, 0)


def _weights(outs: Sequence[Any], weights: Any) -> list[Any]:
    args = [None] * len(outs) if weights is None else _listed(weights)
    if len(args) != len(outs):
        raise RuntimeError(located(f"got {len(outs)} tensors and {len(args)} gradients"))
    return args


def _roots(outs: Sequence[object], weights: Sequence[object], create_graph: bool) -> list[tuple[Any, Any]]:
    """Return the start of the pass: the edges of the outputs, and their cotangents."""
    roots: list[tuple[Any, Any]] = []
    like: Any
    for i, (x, ct) in enumerate(zip(outs, weights)):
        if isinstance(x, GradientEdge):
            edge, like = (x.node, x.output_nr), x.spec
        elif not isinstance(x, Carrier):
            raise TypeError(located(f"expected Tensors, but element {i} of tensors is of type {type(x).__name__}"))
        elif not x._requires:  # type: ignore[attr-defined]
            raise RuntimeError(located(f"element {i} of tensors does not require grad and does not have a grad_fn"))
        else:
            edge, like = x._edge_of(), x  # type: ignore[attr-defined]
        if ct is None:
            one = _one(like)
            roots.append((edge, rewrap(one, None) if create_graph else one))
        else:
            weight = _weight(i, like, ct)
            roots.append((edge, weight if create_graph else weight._snapshot()))
    return roots


def _one(x: Array) -> Array:
    """Return the implicit cotangent 1 of a scalar output, as an array."""
    if x is None or math.prod(x.shape) != 1:
        raise RuntimeError(located("grad can be implicitly created only for scalar outputs"))
    if x.dtype.kind == "c":
        raise RuntimeError(located(f"grad can be implicitly created only for real scalar outputs but got {x.dtype}"))
    if isinstance(getattr(x, "array", None), np.ndarray):
        return np.ones(x.shape, x.dtype) if x.shape else np.array(1, x.dtype)
    return full(shape=x.shape, value=1.0, dtype=name_of(x.dtype))


def _weight(i: int, x: Any, ct: Any) -> Any:
    """Return the cotangent `ct` of `x` as a Tensor."""
    if not hasattr(ct, "_edge"):
        if not isinstance(ct, np.ndarray | np.generic | Carrier):
            raise TypeError(located(f"gradients can be either Tensors or None, but got {type(ct).__name__}"))
        ct = rewrap(ct if isinstance(ct, Carrier) else np.asarray(ct), None)
    if x is None:
        return ct
    if ct.shape != x.shape:
        raise RuntimeError(
            located(
                f"Mismatch in shape: grad_output[{i}] has a shape of {_size(ct)} "
                f"and output[{i}] has a shape of {_size(x)}."
            )
        )
    if ct.dtype != x.dtype and "c" in (ct.dtype.kind, x.dtype.kind):
        raise RuntimeError(
            located(
                "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in "
                f"dtype: grad_output[{i}] has a dtype of {ct.dtype} and output[{i}] has a dtype of {x.dtype}."
            )
        )
    return ct if ct.dtype == x.dtype else cast(ct, dtype=x.dtype.name)


def _size(x: Array) -> str:
    return str(Size(x.shape))


_CYCLE = (
    "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient "
    "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you "
    "have to use this function, make sure to reset the .grad fields of your parameters to None after use to break the "
    "cycle and avoid the leak."
)
