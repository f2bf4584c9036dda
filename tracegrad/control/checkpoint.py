"""Checkpoint functions: recompute their values in the backward pass instead of saving them (rematerialization).

In a graph a checkpoint is a node with a region. In the forward pass its region is inlined (`inlined`). Its derivative
is a checkpoint that is not inlined. It takes the operands, the values that the policy saves and the cotangents, and
recomputes all other values. It is a separate step of the program, so its computation is not merged with the forward
computation, and its memory is freed after it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import Aval, aval_of
from tracegrad.control.operands import inlined, operand, recorded, records_regions
from tracegrad.control.region_ops import require, run_region
from tracegrad.errors import located
from tracegrad.ir import Graph, GraphNode, build
from tracegrad.ir.batch import batched
from tracegrad.ir.builder import sliced
from tracegrad.ops.core.forms import IdentityForm, Run
from tracegrad.ops.core.op import AS_WRITTEN, ResultAvals, multi_result, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import multiply, sin
from tracegrad.ops.linalg.contraction import inner, matmul, matvec
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.sources.describe import describe
from tracegrad.transforms.jvp_graph import pushed
from tracegrad.transforms.partition import between
from tracegrad.transforms.vjp_graph import joint
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Carrier, Operand


# -- the ops -----------------------------------------------------------------------------------------------------------
@multi_result(Run(), on_complex=AS_WRITTEN)
def remat(*operands: NDArray, body: Graph, policy: tuple[str, ...], inlined: bool) -> tuple[NDArray, ...]:
    """Compute the outputs of `body`; its derivative recomputes its values, except the ones saved by the policy."""
    return tuple(run_region(body, operands))


@remat.def_aval
def _(*operands: Aval, body: Graph, policy: tuple[str, ...], inlined: bool) -> ResultAvals:
    require("checkpoint: its function takes", body.avals, operands)
    return ResultAvals(body.results)


@remat.def_vjp_all
def _(
    wanted: Sequence[int],
    cts: tuple[Operand | None, ...],
    ans: Any,
    *operands: Any,
    body: Graph,
    policy: tuple[str, ...],
    inlined: bool,
) -> list[Any]:
    seeded = [k for k, ct in enumerate(cts) if ct is not None]
    both, result = joint(body, wanted, seeded)
    arguments, results = both.inputs[: len(operands)], both.outputs[len(ans) :]
    early = sliced(arguments, both.nodes, _early(both, arguments))
    saved = [x for x in early.nodes if _is_saveable(x, policy)]
    backward, values = between(both, [*arguments, *saved], both.inputs[len(operands) :], results)
    known = dict(zip(arguments, operands)) | dict(
        zip(saved, run_region(sliced(arguments, both.nodes, saved), operands))
    )
    args = [*(known[x] for x in values), *(cts[k] for k in seeded)]
    pulled = dict(zip(result, remat(*args, body=backward, policy=(), inlined=False) if result else ()))
    return [pulled.get(i) for i in wanted]


def _early(graph: Graph, arguments: Sequence[GraphNode]) -> list[GraphNode]:
    """The nodes computed from the arguments alone."""
    late = graph.dependents(set(graph.inputs).difference(arguments))
    return [x for x in graph.nodes if x not in late and not x.is_multi_result]


def _is_saveable(node: GraphNode, policy: Sequence[str]) -> bool:
    if node.op is checkpoint_value:
        return "named" in policy and dict(node.params)["name"] in policy
    return "everything" in policy or ("contractions" in policy and node.op in (matmul, matvec, inner))


@remat.def_jvp
def _(
    tangents: tuple[Array | None, ...], ans: Any, *operands: Any, body: Graph, policy: tuple[str, ...], inlined: bool
) -> tuple[Any, ...]:
    both, result = pushed(body, [i for i, t in enumerate(tangents) if t is not None])
    args = [*operands, *(t for t in tangents if t is not None)]
    results = remat(*args, body=both, policy=policy, inlined=inlined)
    ts = dict(zip(result, results[len(ans) :]))
    return tuple([ts.get(k) for k in range(len(ans))])


@remat.def_batch
def _(
    size: int, flags: tuple[bool, ...], *operands: Any, body: Graph, policy: tuple[str, ...], inlined: bool
) -> tuple[Any, ...]:
    batched_body, _ = batched(body, size, flags, [True] * len(body.outputs))
    return tuple(remat(*operands, body=batched_body, policy=policy, inlined=inlined))


@remat.def_samples
def _() -> Any:
    avals = [aval_of(uniform((3,)))] * 2
    body = build(lambda x, y: [sin(multiply(x, y)), multiply(x, 2.0)], avals)
    for is_inlined in (True, False):
        params = {"body": body, "policy": (), "inlined": is_inlined}
        yield (uniform((3,)), uniform((3,), seed=1)), params


@primitive(IdentityForm())
def checkpoint_value(x: NDArray, *, name: str) -> NDArray:
    """`x`, with a name for checkpoint policies."""
    return np.array(x)


checkpoint_value.linear_in("x")


@checkpoint_value.def_aval
def _(x: Aval, *, name: str) -> Aval:
    return x


@checkpoint_value.def_vjp("x")
def _(ct: NDArray | Carrier, ans: object, x: object, *, name: str) -> Any:
    return ct


@checkpoint_value.def_samples
def _() -> Any:
    yield (uniform((3,)),), {"name": "x"}


# -- public functions --------------------------------------------------------------------------------------------------
class checkpoint_policies:
    """Policies of `checkpoint`: the values that are saved for the backward pass besides the arguments of the function.

    Attributes
    ----------
    nothing_saveable
        Save no intermediate value.
    dots_saveable
        Save the results of matrix products.
    everything_saveable
        Save all intermediate values.

    Examples
    --------
    >>> import numpy as np
    >>> import tracegrad as tg
    >>> layer = tg.checkpoint(lambda w, x: np.tanh(x @ w), policy=tg.checkpoint_policies.dots_saveable)
    >>> print(tg.grad(lambda w: np.sum(layer(w, np.ones(2))))(np.zeros(2)))
    [1. 1.]
    """

    nothing_saveable: tuple[str, ...] = ()
    dots_saveable: tuple[str, ...] = ("contractions",)
    everything_saveable: tuple[str, ...] = ("everything",)

    @staticmethod
    def save_only_these_names(*names: str) -> tuple[str, ...]:
        """Return the policy that saves the values with one of these names.

        Parameters
        ----------
        *names : str
            Names that `checkpoint_name` gives to values.

        Returns
        -------
        tuple of str
            Policy for `checkpoint`.
        """
        return ("named", *names)


def checkpoint_name(x: object, name: str) -> object:
    """Name an array or pytree for `checkpoint_policies.save_only_these_names`.

    Parameters
    ----------
    x : pytree of arrays
        Values to name.
    name : str
        Name that policies know.

    Returns
    -------
    pytree of arrays
        `x`, unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> import tracegrad as tg
    >>> policy = tg.checkpoint_policies.save_only_these_names("angle")
    >>> f = tg.checkpoint(lambda x: np.sin(tg.checkpoint_name(2.0 * x, "angle")), policy=policy)
    >>> print(tg.grad(f)(0.0))
    2.0
    """
    return tree.map(lambda leaf: checkpoint_value(leaf, name=name) if current_trace() else leaf, x)


def checkpoint(fun: Callable[..., Any], *, policy: tuple[str, ...] | None = None) -> Callable[..., object]:
    """Rematerialize a function: its derivative recomputes intermediate values instead of saving them.

    Parameters
    ----------
    fun : callable
        Function of pytrees of arrays to a pytree of arrays.
    policy : tuple of str, optional
        One of `checkpoint_policies`: the intermediate values that are saved. The default saves none.

    Returns
    -------
    callable
        Function with the values and derivatives of `fun`.

    Raises
    ------
    TypeError
        If `fun` is not callable, or `policy` is not one of `checkpoint_policies`.

    Notes
    -----
    The backward pass takes less memory and more time. Outside traced functions, the result calls `fun`.

    Examples
    --------
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

        def flat(arguments: Any) -> Any:
            positional, keywords = arguments
            return inlined(fun)(*positional, **keywords)

        result = recorded(flat, (tree.unflatten(structure, leaves),), f"a checkpointed function ({describe(fun).name})")
        operands = [operand(x, a) for x, a in zip(leaves, result.region.graph.avals)]
        graph = result.region.graph
        results = remat(*operands, *result.region.captured, body=graph, policy=policy or (), inlined=True)
        return result.results(results)[0]

    return call
