"""The backward pass: from Tensors back along the tape, by the sweep that the compiler uses too."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from tracegrad.ad import Entry, active_values, reverse_sweep
from tracegrad.avals import is_literal
from tracegrad.eager.modes import enable_grad, no_grad
from tracegrad.eager.tape import AccumulateGrad, Node
from tracegrad.errors import located
from tracegrad.ops.op import Carrier

__all__ = ["backward", "grad"]

_SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)


def backward(
    tensors: Sequence[Any],
    grad_tensors: Sequence[Any] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Add the derivative of the sum of `tensors`, weighted by `grad_tensors`, to the `grad` of the leaves."""
    seeds = _seeds(tensors, grad_tensors, create_graph)
    nodes, leaves = _reachable(tensors)
    active: set[Hashable] = {id(x) for node in nodes for x, p in zip(node.operands, node.parents) if p is not None}
    cotangents = _sweep(nodes, seeds, active, create_graph)
    if not (create_graph if retain_graph is None else retain_graph):
        _release(nodes)
    given: set[int] = {id(ct) for ct in seeds.values()}
    for leaf in leaves:
        ct = cotangents.get(id(leaf.answer))
        if ct is not None:
            _accumulate(leaf.variable, ct, given)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The derivatives of the sum of `outputs`, weighted by `grad_outputs`, with respect to `inputs`.

    With `create_graph` they are recorded, so that derivatives of any order can be taken. An input that the outputs do
    not depend on raises RuntimeError, or gives None with `allow_unused`, or zeros with `materialize_grads`.

    >>> from tracegrad.eager import tensor
    >>> x = tensor(3.0, requires_grad=True)
    >>> (g,) = grad(x * x * x, x, create_graph=True)
    >>> g, grad(g, x)
    (tensor(27., grad_fn=<AddBackward0>), (tensor(18.),))
    """
    outs, ins = (list(v) if isinstance(v, tuple | list) else [v] for v in (outputs, inputs))
    cts = grad_outputs if grad_outputs is None or isinstance(grad_outputs, tuple | list) else [grad_outputs]
    if any(not x.requires_grad for x in ins):
        raise RuntimeError(located("One of the differentiated Tensors does not require grad"))
    seeds = _seeds(outs, cts, create_graph)
    nodes, _ = _reachable(outs)
    if any(node.released for node in nodes):
        raise RuntimeError(located(_SECOND_TIME))
    tape = [(node.answer, node.op, node.operands, node.params) for node in nodes]
    active = active_values(tape, [x.array for x in ins])
    cotangents = _sweep(nodes, seeds, active, create_graph)
    if not (create_graph if retain_graph is None else retain_graph):
        _release(nodes)
    return tuple(_found(x, cotangents, allow_unused, materialize_grads) for x in ins)


def _found(x: Any, cotangents: dict[Hashable, Any], allow_unused: bool | None, materialize: bool) -> Any:
    ct = cotangents.get(id(x.array))
    if ct is not None:
        return ct if isinstance(ct, Carrier) else x.of(_owned(ct))
    if materialize:
        return x.of(np.zeros_like(x.array))
    if not allow_unused:
        raise RuntimeError(
            located(
                "One of the differentiated Tensors appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            )
        )
    return None


# -- the pieces ------------------------------------------------------------------------------------------------------
def _seeds(tensors: Sequence[Any], cts: Sequence[Any] | None, create_graph: bool) -> dict[Hashable, Any]:
    """The cotangents of `tensors` by the identity of their values."""
    seeds: dict[Hashable, Any] = {}
    if cts is not None and len(cts) != len(tensors):
        raise RuntimeError(located(f"got {len(tensors)} tensors and {len(cts)} gradients"))
    for i, x in enumerate(tensors):
        if not x.requires_grad:
            raise RuntimeError(located(f"element {i} of tensors does not require grad and does not have a grad_fn"))
        ct = _seed(i, x, None if cts is None else cts[i])
        seed = ct if create_graph else ct.array
        seeds[id(x.array)] = seeds[id(x.array)] + seed if id(x.array) in seeds else seed
    return seeds


def _seed(i: int, x: Any, ct: Any) -> Any:
    if ct is None:
        if x.array.size != 1:
            raise RuntimeError(located("grad can be implicitly created only for scalar outputs"))
        return x.of(np.ones_like(x.array))
    ct = ct if isinstance(ct, Carrier) else x.of(np.asarray(ct))
    if ct.shape != x.shape:
        raise RuntimeError(
            located(
                f"Mismatch in shape: grad_output[{i}] has a shape of {ct.shape} "
                f"and output[{i}] has a shape of {x.shape}."
            )
        )
    return ct if ct.dtype == x.dtype else ct.astype(x.dtype)


def _reachable(tensors: Sequence[Any]) -> tuple[list[Node], list[AccumulateGrad]]:
    """The nodes that `tensors` were computed by, in the order they were made, and the leaves they end at."""
    stack = [x.node() for x in tensors]
    seen: dict[int, Any] = {}
    leaves: dict[int, AccumulateGrad] = {}
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen[id(node)] = node
        if isinstance(node, AccumulateGrad):
            leaves[id(node)] = node
            continue
        if node.released:
            raise RuntimeError(located(_SECOND_TIME))
        stack.extend(node.parents)
    nodes = [n for n in seen.values() if isinstance(n, Node)]
    nodes.sort(key=lambda n: n.number)
    return nodes, list(leaves.values())


def _sweep(
    nodes: list[Node], seeds: dict[Hashable, Any], active: set[Hashable], create_graph: bool
) -> dict[Hashable, Any]:
    if not create_graph:
        tape: list[Entry] = [(n.answer, n.op, n.operands, n.params) for n in nodes]
        with no_grad():
            return reverse_sweep(tape, seeds, lambda x: id(x) in active)
    values: dict[int, Any] = {}
    of = next(iter(seeds.values())).of
    tape = [(_value(n.answer, n, values, of), n.op, _values(n, values, of), n.params) for n in nodes]
    with enable_grad():
        return reverse_sweep(tape, seeds, lambda x: _identity(x) in active, key=_identity)


def _identity(x: Any) -> Hashable:
    return id(getattr(x, "array", x))


def _values(node: Node, values: dict[int, Any], of: Any) -> tuple[Any, ...]:
    """The operands of a node as Tensors on the tape."""
    pairs = zip(node.operands, node.parents)
    return tuple(x if is_literal(x) else _value(x, p, values, of) for x, p in pairs)


def _value(array: Any, node: Any, values: dict[int, Any], of: Any) -> Any:
    if node is None and id(array) not in values:
        return array
    if id(array) not in values:
        values[id(array)] = of(array, node)
    return values[id(array)]


def _release(nodes: list[Node]) -> None:
    for node in nodes:
        node.release()


def _owned(ct: Any) -> np.ndarray[Any, Any]:
    """`ct` as an array that nothing else writes to or reads from."""
    return ct if ct.flags.owndata and ct.flags.c_contiguous else np.array(ct, order="C")


def _accumulate(leaf: Any, ct: Any, given: set[int]) -> None:
    """Add `ct` to the gradient of `leaf`. Arrays that users may have taken from there before stay as they are."""
    old = leaf.grad
    if isinstance(ct, Carrier):
        leaf.grad = ct if old is None else old + ct
    elif old is None:
        leaf.grad = leaf.of(ct.copy() if id(ct) in given else _owned(ct))
        given.add(id(leaf.grad.array))
    elif old.grad_fn is None:
        old.array = old.array + ct
    else:
        leaf.grad = leaf.of(old.array + ct)
