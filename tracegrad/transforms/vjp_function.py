"""Reverse-mode derivatives of functions (`value_and_grad`, `pull_back`), inside a trace and eagerly.

Inside a trace, `traced_vjp` runs a flat function on fresh copies of the differentiated arguments. It saves the part
of the recorded graph that depends on them: a *pullback*. A call of it sweeps that part backwards and emits the
cotangents into the same trace. A derivative is therefore more nodes of the same graph, and derivatives nest to any
order.

Outside of a trace, `tracegrad.torch.tape.backward.functional.eager_vjp` has the same meaning on the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import ad, tree
from tracegrad.avals import Aval, is_literal, literal_of, name_of
from tracegrad.errors import DTypeError, ShapeError, TraceError, located
from tracegrad.ir.builder import node_of
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
    dependent_nodes,
    inlined,
    is_array,
    on_tape,
    pair,
    recorded,
    type_text,
)

if TYPE_CHECKING:
    from tracegrad.tree.pytree import TreeDef
    from tracegrad.typing import Array, Number


class Pullback:
    """Pullback: from cotangents of outputs to cotangents of inputs."""

    def __init__(self, builder: TraceBuilder, inputs: Sequence[Tracer], outputs: Sequence[Tracer]):
        self.inputs, self.outputs = list(inputs), [x.node for x in outputs]
        nodes = [x.node for x in inputs]
        self.tape = Tape(builder, dependent_nodes(builder.nodes, nodes, self.outputs))
        self.receivers = ad.receivers(self.tape.entries, inputs, key=node_of)

    def __call__(self, cotangents: Sequence[Any]) -> list[Array]:
        """Cotangents of the inputs, for one cotangent per output (None: zero)."""
        seeds: dict[Any, Any] = {}
        for node, ct in zip(self.outputs, cotangents):
            if ct is not None:
                seeds[node] = accumulate(seeds[node], ct) if node in seeds else ct
        result = self.tape.swept(ad.reverse_sweep, self.receivers, seeds)
        return [result[x.node] if x.node in result else zeros_like(x) for x in self.inputs]


def traced_vjp(fn: FlatFunction, primals: Sequence[Any]) -> tuple[list[Array], Pullback]:
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


class VjpArguments:
    """The leaves of the arguments `argnums` of a call, which can be replaced."""

    def __init__(self, args: Sequence[Any], argnums: Sequence[int], label: Description):
        self.args, self.argnums = list(args), list(dict.fromkeys(argnums))
        self.structures = []
        self.leaves: list[Any] = []
        for i in self.argnums:
            leaves, structure = tree.flatten(args[i])
            for k, x in enumerate(leaves):
                _require_floating(x, label, i, structure, k)
            self.structures.append(structure)
            self.leaves += leaves

    def unflatten(self, leaves: Iterable[Any]) -> dict[int, Any]:
        """For each argnum, the argument with these leaves."""
        supply = iter(leaves)
        return {
            i: tree.unflatten(s, [next(supply) for _ in range(s.num_leaves)])
            for i, s in zip(self.argnums, self.structures)
        }

    def replaced(self, leaves: tuple[Array, ...]) -> list[Any]:
        """All arguments, with the leaves of the arguments `argnums` replaced."""
        changed = self.unflatten(leaves)
        return [changed.get(i, x) for i, x in enumerate(self.args)]


_PYTHON = {"f": "float", "i": "int", "b": "bool", "c": "complex"}


def _require_floating(x: Array | Number, label: Description, argnum: int, structure: TreeDef, leaf: int) -> None:
    require_plain(x, lambda: f"{label}: {label.argument(argnum)}{tree.paths(structure)[leaf]}")
    dtype = getattr(x, "dtype", None) if isinstance(x, np.ndarray | np.generic | Carrier) else None
    if (dtype is not None and dtype.kind in "fc") or type(x) is float:
        return
    path = label.argument(argnum) + tree.paths(structure)[leaf]
    if dtype is None and type(x) not in (int, bool):
        hint = "; numpy.complex128(...) of it can be" if type(x) is complex else ""
        text = f"{label} cannot differentiate with respect to {path}, which is a {type(x).__name__}{hint}"
        raise TraceError(located(text))
    kind = _PYTHON[dtype.kind] if dtype is not None and getattr(x, "weak", False) else dtype or type(x).__name__
    hint = " (3.0, not 3)" if str(kind) == "int" else ""
    raise DTypeError(located(f"{label} requires real- or complex-valued inputs{hint}, got {kind} at {path}"))


def value_and_grad(
    fun: Callable[..., object], argnums: int | tuple[int, ...], has_aux: bool, holomorphic: bool = False
) -> Callable[..., Any]:
    """The function `(*args, **kwargs) -> (value, gradient)`, or `((value, aux), gradient)`; for a `holomorphic`
    function the derivative replaces the gradient."""
    argnum_tuple = argnums if isinstance(argnums, tuple) else (argnums,)
    label = describe(fun, "grad of ")

    def call(*args: Any, **kwargs: object) -> Any:
        operands, keywords = positional(fun, args, kwargs)
        indices = positions(argnum_tuple, len(operands), label)
        arguments = VjpArguments(operands, indices, label)
        if holomorphic:
            require_complex(arguments.leaves, label, "arguments")

        def scalar(*leaves: object) -> Any:
            result = inlined(fun)(*leaves, **keywords)
            value, aux = pair(result, label) if has_aux else (result, None)
            return _scalar(value, label, "c" if holomorphic else "f"), aux

        flat = FlatCall(scalar, arguments, label, True)
        values, pullback = vjp_at(flat, arguments.leaves)
        (value,), aux = flat.split(values)
        seed = full(shape=(), value=1.0, dtype=name_of(value.dtype))
        pulled = pullback([seed])
        gradients = arguments.unflatten(map(conj, pulled) if holomorphic else pulled)
        selected = tuple([gradients[i] for i in indices])
        gradient = selected if isinstance(argnums, tuple) else selected[0]
        return ((value, aux) if has_aux else value), gradient

    return call


def pull_back(
    fun: Callable[..., object], primals: Sequence[Any], has_aux: bool
) -> tuple[Array, Callable[..., object], None]:
    """The output of `fun`, the function from its cotangent to the tuple of primal cotangents, and aux."""
    label = describe(fun, "vjp of ")
    arguments = VjpArguments(primals, range(len(primals)), label)
    flat = FlatCall(calling(fun), arguments, label, has_aux)
    values, pullback = vjp_at(flat, arguments.leaves)
    (outputs, rest), structure = flat.split(values), flat.structure

    def vjp_fn(cotangent: Array | Number) -> tuple[Array, ...]:
        cts = cotangents(structure, outputs, cotangent, str(label))
        return tuple(arguments.unflatten(pullback(cts)).values())

    return tree.unflatten(structure, outputs), vjp_fn, rest


def cotangents(
    structure: TreeDef, outputs: list[Array] | tuple[Aval, ...], cotangent: object, label: str
) -> list[Array | None]:
    """The leaves of a cotangent for outputs of these shapes and dtypes; None for outputs that are not floating.

    Raises `ShapeError` for another structure or shape, TypeError for a value that is no array, and `DTypeError` for
    integers.
    """
    try:
        operands = tree.flatten_up_to(structure, cotangent, "cotangent")
    except ShapeError as error:
        raise ShapeError(located(f"{label}: {error}")) from None
    names = tree.paths(structure, "cotangent")
    return [_cotangent(*three, label) for three in zip(operands, outputs, names)]


_SORT = {"f": "floating", "c": "complex"}


def _cotangent(ct: Any, output: Any, name: str, label: str) -> Any:
    if output.dtype.kind not in "fc":
        return None
    if is_literal(ct):
        ct = full(shape=(), value=literal_of(ct, output.dtype), dtype=output.dtype.name)
    if not is_array(ct):
        raise TypeError(located(f"{label}: {name} must be an array, got {type_text(ct)}"))
    if ct.shape != output.shape:
        raise ShapeError(located(f"{label}: {name} has shape {ct.shape}, the output has shape {output.shape}"))
    if ct.dtype.kind not in ("f" if output.dtype.kind == "f" else "fc"):
        raise DTypeError(
            located(f"{label}: {name} must be {_SORT[output.dtype.kind]} as the output is, got {ct.dtype}")
        )
    return ct if ct.dtype == output.dtype else ct.astype(output.dtype)


def positional(
    fun: Callable[..., object], args: Sequence[Any], kwargs: dict[str, object]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of a call by position, and the keyword-only arguments."""
    signature = signature_of(fun) if kwargs else None
    if signature is None:
        return args, kwargs
    bound = signature.bind(*args, **kwargs)
    return bound.args, bound.kwargs


def positions(argnums: Sequence[int], count: int, label: Description) -> list[int]:
    """`argnums` counted from the front; ValueError for one without an argument."""
    for i in argnums:
        if not -count <= i < count:
            raise ValueError(
                located(f"{label}: argnums names argument {i}, but there are {count} positional arguments")
            )
    indices = [i % count for i in argnums]
    if len(set(indices)) < len(indices):
        raise ValueError(located(f"{label}: argnums names an argument twice: {tuple(argnums)}"))
    return indices


class OutputError(ShapeError, TypeError):
    """Error for an output that is no scalar: a ShapeError, and the TypeError that JAX raises."""


def require_complex(values: Sequence[Array], label: Description, noun: str) -> None:
    """Raise DTypeError for real values of a function declared holomorphic."""
    for x in values:
        if is_literal(x) or x.dtype.kind != "c":
            kind = type(x).__name__ if is_literal(x) else x.dtype
            raise DTypeError(located(f"{label}: the {noun} of a holomorphic function are complex, got {kind}"))


def _scalar(value: Any, label: Description, kind: str = "f") -> Any:
    if type(value) is float:
        value = np.float64(value)
    if not is_array(value):
        raise TypeError(located(f"{label}: the output must be a scalar, got {type_text(value)}"))
    if tuple(value.shape) != ():
        raise OutputError(
            located(f"{label}: the output must be a scalar, got shape {value.shape}; use vjp, or sum the output")
        )
    if kind == "c":
        require_complex([value], label, "results")
    elif value.dtype.kind == "c":
        text = "its real part, or abs() of it, has a gradient, and with holomorphic=True it has a derivative"
        raise DTypeError(located(f"{label}: the output must be real, got {value.dtype}: {text}"))
    elif value.dtype.kind != "f":
        raise DTypeError(located(f"{label}: the output must be floating, got {value.dtype}"))
    return value
