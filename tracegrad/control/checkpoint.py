"""Checkpoints: functions whose backward pass computes their values again instead of keeping them.

In a graph a checkpoint is a node with a region. Going forward it is as if the region stood there itself (`inlined`).
Its derivative is a checkpoint that is not: it takes the operands, what the policy lets keep, and the cotangents, and
computes everything else again. It is a step of its own in the program, so what it computes is not merged with what was
computed before, and its memory is free once it is done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import Aval, aval_of
from tracegrad.control.operands import inlined, operand, recorded, records_regions
from tracegrad.control.region_ops import require, run_region
from tracegrad.errors import located
from tracegrad.ir import Graph, Node, build
from tracegrad.ir.batch import batched
from tracegrad.ir.builder import sliced
from tracegrad.ops.core.forms import Identity, Run
from tracegrad.ops.core.op import AS_WRITTEN, Several, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import multiply, sin
from tracegrad.ops.linalg.contraction import inner, matmul, matvec
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.sources.describe import describe
from tracegrad.transforms.jvp_graph import pushed
from tracegrad.transforms.partition import between
from tracegrad.transforms.vjp_graph import joint

__all__ = ["checkpoint", "checkpoint_name", "checkpoint_policies", "remat"]


# -- the ops -----------------------------------------------------------------------------------------------------------
@primitive(Run(), on_complex=AS_WRITTEN)
def remat(*operands: Any, body: Graph, policy: tuple[str, ...], inlined: bool) -> Any:
    """The outputs of `body`, whose derivative computes its values again, but for those that the policy lets keep."""
    return tuple(run_region(body, operands))


@remat.def_aval
def _(*operands: Aval, body: Graph, policy: tuple[str, ...], inlined: bool) -> Several:
    require("checkpoint: its function takes", body.avals, operands)
    return Several(body.results)


@remat.def_vjp_all
def _(wanted: Sequence[int], cts: tuple[Any, ...], ans: Any, *operands: Any, body: Graph, policy: tuple[str, ...],
      inlined: bool) -> list[Any]:  # fmt: skip
    seeded = [k for k, ct in enumerate(cts) if ct is not None]
    both, found = joint(body, wanted, seeded)
    arguments, results = both.inputs[: len(operands)], both.outputs[len(ans) :]
    early = sliced(arguments, both.nodes, _early(both, arguments))
    kept = [x for x in early.nodes if _is_kept(x, policy)]
    backward, values = between(both, [*arguments, *kept], both.inputs[len(operands) :], results)
    known = dict(zip(arguments, operands)) | dict(zip(kept, run_region(sliced(arguments, both.nodes, kept), operands)))
    given = [*(known[x] for x in values), *(cts[k] for k in seeded)]
    pulled = dict(zip(found, remat(*given, body=backward, policy=(), inlined=False) if found else ()))
    return [pulled.get(i) for i in wanted]


def _early(graph: Graph, arguments: Sequence[Node]) -> list[Node]:
    """What is computed from the arguments alone."""
    late = set(graph.inputs).difference(arguments)
    for node in graph.nodes:
        if not late.isdisjoint(node.operands):
            late.add(node)
    return [x for x in graph.nodes if x not in late and not x.several]


def _is_kept(node: Node, policy: Sequence[str]) -> bool:
    if node.op is checkpoint_value:
        return "named" in policy and dict(node.params)["name"] in policy
    return "everything" in policy or ("contractions" in policy and node.op in (matmul, matvec, inner))


@remat.def_jvp
def _(tangents: Sequence[Any], ans: Any, *operands: Any, body: Graph, policy: tuple[str, ...],
      inlined: bool) -> tuple[Any, ...]:  # fmt: skip
    both, found = pushed(body, [i for i, t in enumerate(tangents) if t is not None])
    given = [*operands, *(t for t in tangents if t is not None)]
    results = remat(*given, body=both, policy=policy, inlined=inlined)
    ts = dict(zip(found, results[len(ans) :]))
    return tuple([ts.get(k) for k in range(len(ans))])


@remat.def_batch
def _(size: int, flags: tuple[bool, ...], *operands: Any, body: Graph, policy: tuple[str, ...],
      inlined: bool) -> tuple[Any, ...]:  # fmt: skip
    many, _ = batched(body, size, flags, [True] * len(body.outputs))
    return tuple(remat(*operands, body=many, policy=policy, inlined=inlined))


@remat.def_samples
def _() -> Any:
    avals = [aval_of(uniform((3,)))] * 2
    body = build(lambda x, y: [sin(multiply(x, y)), multiply(x, 2.0)], avals)
    for there in (True, False):
        params = {"body": body, "policy": (), "inlined": there}
        yield (uniform((3,)), uniform((3,), seed=1)), params


@primitive(Identity())
def checkpoint_value(x: Any, *, name: str) -> Any:
    """`x`, under a name that policies of checkpoints know."""
    return np.array(x)


checkpoint_value.linear_in("x")


@checkpoint_value.def_aval
def _(x: Aval, *, name: str) -> Aval:
    return x


@checkpoint_value.def_vjp("x")
def _(ct: Any, ans: Any, x: Any, *, name: str) -> Any:
    return ct


@checkpoint_value.def_samples
def _() -> Any:
    yield (uniform((3,)),), {"name": "x"}


# -- what users call ---------------------------------------------------------------------------------------------------
class checkpoint_policies:
    """What a checkpoint may keep for its backward pass, beside the arguments of the function."""

    nothing_saveable: tuple[str, ...] = ()
    dots_saveable: tuple[str, ...] = ("contractions",)
    everything_saveable: tuple[str, ...] = ("everything",)

    @staticmethod
    def save_only_these_names(*names: str) -> tuple[str, ...]:
        """The values that `checkpoint_name` has given one of these names."""
        return ("named", *names)


def checkpoint_name(x: Any, name: str) -> Any:
    """The array or pytree `x`, under a name for `checkpoint_policies.save_only_these_names`."""
    return tree.map(lambda leaf: checkpoint_value(leaf, name=name) if current_trace() else leaf, x)


def checkpoint(fun: Callable[..., Any], *, policy: tuple[str, ...] | None = None) -> Callable[..., Any]:
    """`fun`, whose derivative in compiled functions computes its values again instead of keeping them.

    This takes less memory and more time. `policy`, one of `checkpoint_policies`, says what is kept all the same: by
    default nothing. Values and derivatives are those of `fun`; arguments and results are pytrees of arrays. Outside of
    traced functions it calls `fun`.

    >>> import numpy as np
    >>> import tracegrad as tg
    >>> layer = tg.checkpoint(lambda x: np.sin(np.sin(x)))
    >>> print(tg.grad(lambda x: layer(layer(x)))(0.0))
    1.0
    """
    if not callable(fun):
        raise TypeError(located(f"checkpoint takes a function, got a {type(fun).__name__}"))
    if policy is not None and not (type(policy) is tuple and all(isinstance(x, str) for x in policy)):
        raise TypeError(located(f"checkpoint: policy must be one of checkpoint_policies, got {policy!r}"))

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not records_regions():
            return inlined(fun)(*args, **kwargs)
        leaves, structure = tree.flatten((args, kwargs))

        def flat(given: Any) -> Any:
            positional, keywords = given
            return inlined(fun)(*positional, **keywords)

        made = recorded(flat, (tree.unflatten(structure, leaves),), f"a checkpointed function ({describe(fun).name})")
        given = [operand(x, a) for x, a in zip(leaves, made.region.graph.avals)]
        graph = made.region.graph
        results = remat(*given, *made.region.captured, body=graph, policy=policy or (), inlined=True)
        return made.results(results)[0]

    return call
