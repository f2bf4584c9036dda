"""Reverse-mode derivatives of functions (`value_and_grad`, `pull_back`), inside a trace and eagerly.

Inside a trace, `traced_vjp` runs a flat function on fresh copies of the differentiated arguments. It saves the part
of the recorded graph that depends on them: a *pullback*. A call of it sweeps that part backwards and emits the
cotangents into the same trace. A derivative is therefore more nodes of the same graph, and derivatives nest to any
order.

Outside of a trace, `tracegrad.torch.tape.backward.functional.eager_vjp` has the same meaning on the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tracegrad import ad, tree
from tracegrad.avals import is_literal, literal_of, name_of
from tracegrad.errors import DTypeError, ShapeError, TraceError, located
from tracegrad.numpy_api.protocols import require_plain
from tracegrad.ops import Carrier
from tracegrad.ops.elementwise.complex import conj
from tracegrad.ops.elementwise.table import accumulate
from tracegrad.ops.shape.linear import full, zeros_like
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.sources.describe import Description, describe, signature_of
from tracegrad.trace.values.tracer import Tracer
from tracegrad.transforms.flat_function import (
    FlatCall,
    FlatFunction,
    Tape,
    calling,
    inlined,
    is_array,
    node_of,
    on_tape,
    pair,
    part_of,
    recorded,
    what,
)

__all__ = [
    "Arguments", "Pullback", "cotangents", "positional", "positions", "pull_back", "traced_vjp", "value_and_grad",
    "vjp_at",
]  # fmt: skip


class Pullback:
    """Pullback: from cotangents of outputs to cotangents of inputs."""

    def __init__(self, builder: TraceBuilder, inputs: Sequence[Tracer], outputs: Sequence[Tracer]):
        self.inputs, self.outputs = list(inputs), [x.node for x in outputs]
        nodes = [x.node for x in inputs]
        self.tape = Tape(builder, part_of(builder.nodes, nodes, self.outputs))
        self.receivers = ad.receivers(self.tape.entries, inputs, key=node_of)

    def __call__(self, cotangents: Sequence[Any]) -> list[Any]:
        """Cotangents of the inputs, for one cotangent per output (None: zero)."""
        seeds: dict[Any, Any] = {}
        for node, ct in zip(self.outputs, cotangents):
            if ct is not None:
                seeds[node] = accumulate(seeds[node], ct) if node in seeds else ct
        result = self.tape.swept(ad.reverse_sweep, self.receivers, seeds)
        return [result[x.node] if x.node in result else zeros_like(x) for x in self.inputs]


def traced_vjp(fn: FlatFunction, primals: Sequence[Any]) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """The VJP of `fn` in the current trace: its flat outputs, and the function from their cotangents to the primals'
    cotangents."""
    builder, inside, outputs = recorded(fn, primals)
    return outputs, Pullback(builder, inside, outputs)


def vjp_at(fn: FlatFunction, primals: Sequence[Any]) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """The VJP of `fn`: its flat outputs, and the function from their cotangents to the primals' cotangents."""
    if not on_tape(primals):
        return traced_vjp(fn, primals)
    from tracegrad.torch.tape.backward.functional import eager_vjp

    return eager_vjp(fn, primals)


class Arguments:
    """The leaves of the arguments `argnums` of a call, which can be replaced."""

    def __init__(self, args: Sequence[Any], argnums: Sequence[int], who: Description):
        self.args, self.argnums = list(args), list(dict.fromkeys(argnums))
        self.structures = []
        self.leaves: list[Any] = []
        for i in self.argnums:
            leaves, structure = tree.flatten(args[i])
            for k, x in enumerate(leaves):
                _require_floating(x, who, i, structure, k)
            self.structures.append(structure)
            self.leaves += leaves

    def unflatten(self, leaves: Iterable[Any]) -> dict[int, Any]:
        """For each argnum, the argument with these leaves."""
        supply = iter(leaves)
        return {
            i: tree.unflatten(s, [next(supply) for _ in range(s.num_leaves)])
            for i, s in zip(self.argnums, self.structures)
        }

    def replaced(self, leaves: Sequence[Any]) -> list[Any]:
        """All arguments, with the leaves of the arguments `argnums` replaced."""
        changed = self.unflatten(leaves)
        return [changed.get(i, x) for i, x in enumerate(self.args)]


_PYTHON = {"f": "float", "i": "int", "b": "bool", "c": "complex"}


def _require_floating(x: Any, who: Description, argnum: int, structure: Any, leaf: int) -> None:
    require_plain(x, lambda: f"{who}: {who.argument(argnum)}{tree.paths(structure)[leaf]}")
    dtype = getattr(x, "dtype", None) if isinstance(x, np.ndarray | np.generic | Carrier) else None
    if (dtype is not None and dtype.kind in "fc") or type(x) is float:
        return
    path = who.argument(argnum) + tree.paths(structure)[leaf]
    if dtype is None and type(x) not in (int, bool):
        hint = "; numpy.complex128(...) of it can be" if type(x) is complex else ""
        text = f"{who} cannot differentiate with respect to {path}, which is a {type(x).__name__}{hint}"
        raise TraceError(located(text))
    kind = _PYTHON[dtype.kind] if dtype is not None and getattr(x, "weak", False) else dtype or type(x).__name__
    hint = " (3.0, not 3)" if str(kind) == "int" else ""
    raise DTypeError(located(f"{who} requires real- or complex-valued inputs{hint}, got {kind} at {path}"))


def value_and_grad(
    fun: Callable[..., Any], argnums: int | tuple[int, ...], has_aux: bool, holomorphic: bool = False
) -> Callable[..., Any]:
    """The function `(*args, **kwargs) -> (value, gradient)`, or `((value, aux), gradient)`; for a `holomorphic`
    function the derivative replaces the gradient."""
    several = argnums if isinstance(argnums, tuple) else (argnums,)
    who = describe(fun, "grad of ")

    def call(*args: Any, **kwargs: Any) -> Any:
        operands, keywords = positional(fun, args, kwargs)
        places = positions(several, len(operands), who)
        arguments = Arguments(operands, places, who)
        if holomorphic:
            require_complex(arguments.leaves, who, "arguments")

        def scalar(*leaves: Any) -> Any:
            result = inlined(fun)(*leaves, **keywords)
            value, aux = pair(result, who) if has_aux else (result, None)
            return _scalar(value, who, "c" if holomorphic else "f"), aux

        flat = FlatCall(scalar, arguments, who, True)
        values, pullback = vjp_at(flat, arguments.leaves)
        (value,), aux = flat.split(values)
        seed = full(shape=(), value=1.0, dtype=name_of(value.dtype))
        pulled = pullback([seed])
        gradients = arguments.unflatten(map(conj, pulled) if holomorphic else pulled)
        chosen = tuple([gradients[i] for i in places])
        gradient = chosen if isinstance(argnums, tuple) else chosen[0]
        return ((value, aux) if has_aux else value), gradient

    return call


def pull_back(
    fun: Callable[..., Any], primals: Sequence[Any], has_aux: bool
) -> tuple[Any, Callable[[Any], tuple[Any, ...]], Any]:
    """The output of `fun`, the function from its cotangent to the tuple of primal cotangents, and aux."""
    who = describe(fun, "vjp of ")
    arguments = Arguments(primals, range(len(primals)), who)
    flat = FlatCall(calling(fun), arguments, who, has_aux)
    values, pullback = vjp_at(flat, arguments.leaves)
    (outputs, rest), structure = flat.split(values), flat.structure

    def vjp_fn(cotangent: Any) -> tuple[Any, ...]:
        cts = cotangents(structure, outputs, cotangent, str(who))
        return tuple(arguments.unflatten(pullback(cts)).values())

    return tree.unflatten(structure, outputs), vjp_fn, rest


def cotangents(structure: Any, outputs: Sequence[Any], cotangent: Any, who: str) -> list[Any]:
    """The leaves of a cotangent for outputs of these shapes and dtypes; None for outputs that are not floating.

    Raises `ShapeError` for another structure or shape, TypeError for a value that is no array, and `DTypeError` for
    integers.
    """
    try:
        operands = tree.flatten_up_to(structure, cotangent, "cotangent")
    except ShapeError as error:
        raise ShapeError(located(f"{who}: {error}")) from None
    names = tree.paths(structure, "cotangent")
    return [_cotangent(*three, who) for three in zip(operands, outputs, names)]


_SORT = {"f": "floating", "c": "complex"}


def _cotangent(ct: Any, output: Any, name: str, who: str) -> Any:
    if output.dtype.kind not in "fc":
        return None
    if is_literal(ct):
        ct = full(shape=(), value=literal_of(ct, output.dtype), dtype=output.dtype.name)
    if not is_array(ct):
        raise TypeError(located(f"{who}: {name} must be an array, got {what(ct)}"))
    if ct.shape != output.shape:
        raise ShapeError(located(f"{who}: {name} has shape {ct.shape}, the output has shape {output.shape}"))
    if ct.dtype.kind not in ("f" if output.dtype.kind == "f" else "fc"):
        raise DTypeError(located(f"{who}: {name} must be {_SORT[output.dtype.kind]} as the output is, got {ct.dtype}"))
    return ct if ct.dtype == output.dtype else ct.astype(output.dtype)


def positional(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of a call by position, and the keyword-only arguments."""
    signature = signature_of(fun) if kwargs else None
    if signature is None:
        return args, kwargs
    bound = signature.bind(*args, **kwargs)
    return bound.args, bound.kwargs


def positions(argnums: Sequence[int], count: int, who: Description) -> list[int]:
    """`argnums` counted from the front; ValueError for one without an argument."""
    for i in argnums:
        if not -count <= i < count:
            raise ValueError(located(f"{who}: argnums names argument {i}, but there are {count} positional arguments"))
    places = [i % count for i in argnums]
    if len(set(places)) < len(places):
        raise ValueError(located(f"{who}: argnums names an argument twice: {tuple(argnums)}"))
    return places


class OutputError(ShapeError, TypeError):
    """Error for an output that is no scalar: a ShapeError, and the TypeError that JAX raises."""


def require_complex(values: Sequence[Any], who: Description, what: str) -> None:
    """Raise DTypeError for real values of a function declared holomorphic."""
    for x in values:
        if is_literal(x) or x.dtype.kind != "c":
            kind = type(x).__name__ if is_literal(x) else x.dtype
            raise DTypeError(located(f"{who}: the {what} of a holomorphic function are complex, got {kind}"))


def _scalar(value: Any, who: Description, kind: str = "f") -> Any:
    if type(value) is float:
        value = np.float64(value)
    if not is_array(value):
        raise TypeError(located(f"{who}: the output must be a scalar, got {what(value)}"))
    if tuple(value.shape) != ():
        raise OutputError(
            located(f"{who}: the output must be a scalar, got shape {value.shape}; use vjp, or sum the output")
        )
    if kind == "c":
        require_complex([value], who, "results")
    elif value.dtype.kind == "c":
        text = "its real part, or abs() of it, has a gradient, and with holomorphic=True it has a derivative"
        raise DTypeError(located(f"{who}: the output must be real, got {value.dtype}: {text}"))
    elif value.dtype.kind != "f":
        raise DTypeError(located(f"{who}: the output must be floating, got {value.dtype}"))
    return value
