"""Check arguments and results of the transforms of `torch.func` as PyTorch does, where they are Tensors.

Functions of ndarrays keep the rules of the transforms themselves. The checks run while a function is recorded, so a
call of a compiled function does not repeat them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.errors import located
from tracegrad.numpy_api.faces import represented_type
from tracegrad.ops import Carrier
from tracegrad.ops.core.dispatch import TensorCarrier
from tracegrad.ops.shape.batching import axes_of_leaves
from tracegrad.trace.values.tracer import Tracer
from tracegrad.transforms.flat_function import inlined
from tracegrad.transforms.vmap import of_one

Function = Callable[..., Any]
Check = Callable[[object], None]


def has_tensor(value: object) -> bool:
    """Whether a Tensor is among the leaves of `value`."""
    return any(isinstance(x, TensorCarrier) for x in tree.leaves(value))


def checked(fun: Function, check: Check) -> Function:
    """Return `fun`, of which `check` sees each result that Tensors take part in."""

    def call(*args: object, **kwargs: object) -> Any:
        result = inlined(fun)(*args, **kwargs)
        if has_tensor((args, kwargs)) or has_tensor(result):
            check(result)
        return result

    return functools.update_wrapper(call, fun, ("__name__", "__qualname__", "__doc__"), ())


def _leaves(value: object) -> Iterator[object]:
    """Yield the leaves of `value`, None included."""
    if value is None or not tree.is_node(value):
        yield value
    else:
        for child in tree.children(value):
            yield from _leaves(child)


def _class_of(x: object) -> type:
    return represented_type(x) if isinstance(x, Tracer) else x.__class__


def _first_other(value: object) -> type | None:
    """Return the class of the first leaf that is no Tensor."""
    return next((_class_of(x) for x in _leaves(value) if not isinstance(x, TensorCarrier)), None)


# -- argnums -----------------------------------------------------------------------------------------------------------
def require_argnums(argnums: object) -> None:
    """Raise RuntimeError unless `argnums` is an int, or a tuple of different ints."""
    if isinstance(argnums, bool) or not isinstance(argnums, int | tuple):
        raise RuntimeError(located(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}"))
    if not isinstance(argnums, tuple):
        return
    if not argnums:
        raise RuntimeError(located("argnums must be non-empty"))
    for i in argnums:
        if type(i) is not int:
            raise RuntimeError(located(f"argnum must be int, got: {type(i)}"))
    _require_different(argnums)


def _require_different(argnums: tuple[int, ...]) -> None:
    if len(set(argnums)) < len(argnums):
        raise RuntimeError(located(f"argnums elements must be unique, got {argnums}"))


def require_differentiable(args: Sequence[object], argnums: int | tuple[int, ...], real: str = "") -> None:
    """Raise RuntimeError if `argnums` names no argument of the call, or one whose dtype has no derivative.

    An argument with a Tensor has no other leaves (ValueError). For the transform with the name `real` it is real.
    """
    positions = argnums if isinstance(argnums, tuple) else (argnums,)
    for i in positions:
        if not -len(args) <= i < len(args):
            raise RuntimeError(located(f"Got argnum={i}, but only {len(args)} positional inputs"))
    _require_different(tuple([i % len(args) for i in positions]))
    primals = [args[i] for i in positions]
    require_primals(primals)
    if real and has_tensor(primals):
        _require_real(real, "inputs", primals)


def _require_real(name: str, what: str, value: object) -> None:
    """Raise RuntimeError for a complex leaf."""
    for k, x in enumerate(tree.leaves(value)):
        if x.dtype.kind == "c":
            text = f"{name}: Expected all {what} to be real but received complex tensor at flattened input idx: {k}"
            raise RuntimeError(located(text))


def require_primals(primals: Sequence[object]) -> None:
    """Raise ValueError if there are Tensors and other leaves, RuntimeError for a dtype without derivatives."""
    if not has_tensor(primals):
        return
    other = _first_other(primals)
    if other is not None:
        raise ValueError(located(f"Thing passed to transform API must be Tensor, got {other}"))
    for x in tree.leaves(primals):
        if x.dtype.kind not in "fc":
            raise RuntimeError(located(f"only Tensors of floating point dtype can require gradients, got {x.dtype}"))


# -- results -----------------------------------------------------------------------------------------------------------
def _of_pair(what: str, result: object) -> object:
    """Return the output, of which the auxiliary result has been checked."""
    if not isinstance(result, tuple) or len(result) != 2:
        text = f"{what}: output of function f should be a tuple: (output, aux) if has_aux is True"
        raise RuntimeError(located(text))
    other = _first_other(result[1])
    if other is not None:
        raise RuntimeError(located(f"Expected tensors, got unsupported type {other}"))
    return result[0]


def scalar_result(has_aux: bool) -> Check:
    """Return the check of the results of a function whose gradient is wanted: RuntimeError unless a scalar Tensor."""
    what = "grad_and_value(f)(*args)"

    def check(result: object) -> None:
        value: Any = _of_pair(what, result) if has_aux else result
        if not isinstance(value, TensorCarrier):
            raise RuntimeError(located(f"{what}: Expected f(*args) to return a Tensor, got {_class_of(value)}"))
        if value.shape:
            text = f"{what}: Expected f(*args) to return a scalar Tensor, got tensor with {len(value.shape)} dims"
            raise RuntimeError(located(f"{text}. Maybe you wanted to use the vjp or jacrev APIs instead?"))

    return check


def tensor_results(what: str, has_aux: bool, floating: bool = False, strict: bool = False, real: str = "") -> Check:
    """Return the check of the results of a function for `vjp` or `jvp`: RuntimeError unless there are Tensors only.

    They are `floating` or complex; with `strict`, all depend on the inputs. For the transform with the name `real` they
    are real.
    """

    def check(result: object) -> None:
        output = _of_pair(what, result) if has_aux else result
        leaves: list[Any] = list(_leaves(output))
        if leaves in ([], [None]):
            text = f"{what}: Expected f to be a function that has non-empty output (got output = {leaves})"
            raise RuntimeError(located(text))
        other = _first_other(output)
        if other is not None:
            text = f"{what}: expected f(*primals) to return only tensors, got unsupported type {other}"
            raise RuntimeError(located(text))
        if real:
            _require_real(real, "outputs", output)
        for x in leaves:
            if floating and x.dtype.kind not in "fc":
                text = "All outputs of f must be floating-point or complex Tensors, got Tensor with dtype"
                raise RuntimeError(located(f"vjp(f, ...): {text} {x.dtype}"))
            if strict and not x.requires_grad:
                text = "The output of f is independent of the inputs. This is not allowed with strict=True."
                raise RuntimeError(located(f"jvp(f, primals, tangents, strict=True): {text}"))

    return check


# -- cotangents and tangents -------------------------------------------------------------------------------------------
def require_cotangent(output: object, cotangent: object) -> None:
    """Raise RuntimeError unless the cotangent has the structure and the shapes of the output."""
    of_cotangent, of_output = tree.structure(cotangent), tree.structure(output)
    if not tree.alike(of_cotangent, of_output):
        text = "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function."
        raise RuntimeError(located(f"{text} cotangents: {of_cotangent}, primal output: {of_output}"))
    for k, (ct, x) in enumerate(zip(tree.leaves(cotangent), tree.leaves(output))):
        if isinstance(ct, TensorCarrier) and tuple(ct.shape) != tuple(x.shape):
            text = f"grad_output[{k}] has a shape of {ct.shape} and output[{k}] has a shape of {x.shape}."
            raise RuntimeError(located(f"Mismatch in shape: {text}"))


def require_tangents(primals: object, tangents: object) -> None:
    """Raise RuntimeError unless primals and tangents are tuples of Tensors with one structure and the same shapes.

    Integers have no tangents (ValueError).
    """
    what = "jvp(f, primals, tangents): Expected primals"
    if not isinstance(primals, tuple):
        raise RuntimeError(located(f"{what} to be a tuple. E.g. it should be valid to call f(*primals)."))
    of_primals, of_tangents = tree.structure(primals), tree.structure(tangents)
    if not tree.alike(of_primals, of_tangents):
        text = "For example, if primals is a tuple of 3 tensors, tangents also must be."
        kinds = f"Got primals with structure {of_primals} and tangents with structure {of_tangents}"
        raise RuntimeError(located(f"{what} and tangents to have the same python structure. {text} {kinds}"))
    if not tree.leaves(primals):
        raise RuntimeError(located(f"{what} to contain at least one Tensor."))
    other = _first_other((primals, tangents))
    if other is not None:
        raise RuntimeError(located(f"{what} to only contain Tensors, got {other}"))
    for x, t in zip(tree.leaves(primals), tree.leaves(tangents)):
        if x.dtype.kind not in "fc":
            raise ValueError(located(f"Expected primal to be floating point or complex, but got: {x.dtype}"))
        if tuple(x.shape) != tuple(t.shape):
            text = "Trying to set a forward gradient that has a different size than that of the original Tensor, this "
            sizes = f"Tensor is of size {list(x.shape)} while the given forward gradient is of size {list(t.shape)}."
            raise RuntimeError(located(f"{text}is not supported. {sizes}"))


def require_linear_tangents(primals: tuple[object, ...], tangents: tuple[object, ...]) -> None:
    """Raise RuntimeError unless the tangents for a linearized function have the kinds of the primals."""
    of_primals, of_tangents = tree.structure(primals), tree.structure(tangents)
    if not tree.alike(of_primals, of_tangents):
        text = f"to have the same argspec as the primals {of_primals}"
        raise RuntimeError(located(f"Expected the tangents {of_tangents} {text}"))
    for k, (x, t) in enumerate(zip(tree.leaves(primals), tree.leaves(tangents))):
        for kind in ("shape", "dtype"):
            wanted, present = getattr(x, kind, None), getattr(t, kind, None)
            if isinstance(t, TensorCarrier) and wanted is not None and wanted != present:
                text = f"doesn't match the {kind} {wanted} of the corresponding primal."
                raise RuntimeError(located(f"tangent:{k} with {kind} {present} in flattened pytree {text}"))


# -- batches -----------------------------------------------------------------------------------------------------------
def require_dims(name: str, in_dims: object, out_dims: object) -> None:
    """Raise ValueError unless `in_dims` and `out_dims` consist of ints and None."""
    call = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>):"
    if in_dims is not None and type(in_dims) is not int and not isinstance(in_dims, tuple):
        text = "expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got:"
        raise ValueError(located(f"{call} {text} {type(in_dims)}."))
    for x in tree.leaves(in_dims):
        if type(x) is not int:
            text = f"Got in_dim={x} for an input but in_dim must be either an integer dimension or None."
            raise ValueError(located(f"{call} {text}"))
    if any(type(x) is not int for x in tree.leaves(out_dims)):
        text = "`out_dims` must be an int, None or a python collection of ints representing where in the outputs the "
        text = f"{text}vmapped dimension should appear."
        raise ValueError(located(f"vmap({name}, ..., out_dims={out_dims}): {text}"))


def require_randomness(randomness: str) -> None:
    """Raise RuntimeError for an unknown word."""
    if randomness not in ("error", "different", "same"):
        text = f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}"
        raise RuntimeError(located(text))


def require_mapped(name: str, in_dims: object, args: tuple[object, ...]) -> None:
    """Raise ValueError unless `in_dims` fits the positional arguments, of which at least one array is mapped."""
    if not args:
        text = (
            "got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function with no inputs."
        )
        raise ValueError(located(f"vmap({name})(<inputs>): {text} The latter is unsupported."))
    call = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>):"
    dims = axes_of_leaves(in_dims, args)
    if dims is None:
        kinds = f"in_dims has structure {tree.structure(in_dims)} but inputs has structure {tree.structure(args)}."
        raise ValueError(located(f"{call} in_dims is not compatible with the structure of `inputs`. {kinds}"))
    sizes = []
    for dim, x in zip(dims, tree.leaves(args), strict=True):
        if dim is None:
            continue
        kind = _class_of(x)
        if not isinstance(x, Carrier | np.ndarray) or issubclass(kind, int | float | complex):
            text = f"Got in_dim={dim} for an input but the input is of type {kind}. We cannot vmap over"
            raise ValueError(located(f"{call} {text} non-Tensor arguments, please use None as the respective in_dim"))
        rank = len(x.shape)
        if not -rank <= dim < rank:
            text = f"Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {rank}"
            raise ValueError(located(f"{call} {text} so expected in_dim to satisfy -{rank} <= in_dim < {rank}."))
        sizes.append(x.shape[dim])
    if not sizes:
        raise ValueError(located("vmap: Expected at least one Tensor to vmap over"))
    if any(size != sizes[0] for size in sizes):
        text = "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes"
        raise ValueError(located(f"{text} {sizes} for the mapped dimension"))


def _require_tensors(name: str, result: object, dims: object) -> None:
    """Raise ValueError for a result that is no Tensor, unless it has the dimension None."""
    if dims is None:
        return
    if result is not None and tree.is_node(result) and tree.is_node(dims):
        for each in zip(tree.children(result), tree.children(dims)):
            _require_tensors(name, *each)
        return
    other = _first_other(result)
    if other is not None:
        text = f"`{name}` must only return Tensors, got type {other}. Did you mean to set out_dims= to None for output?"
        raise ValueError(located(f"vmap({name}, ...): {text}"))


def batch_results(name: str, out_dims: object) -> Check:
    """Return the check of the results of a function of one example: ValueError unless they are Tensors.

    Results with None in `out_dims` may be anything. `out_dims` fits the results, else ValueError or IndexError.
    """

    def check(result: object) -> None:
        _require_tensors(name, result, out_dims)
        dims = axes_of_leaves(of_one(out_dims, result), result)
        if dims is None:
            of_dims, of_result = tree.structure(out_dims), tree.structure(result)
            text = "out_dims is not compatible with the structure of `outputs`. out_dims has structure"
            call = f"vmap({name}, ..., out_dims={out_dims})(<inputs>)"
            raise ValueError(located(f"{call}: {text} {of_dims} but outputs has structure {of_result}."))
        for dim, x in zip(dims, tree.leaves(result), strict=True):
            rank = len(getattr(x, "shape", ())) + 1
            if dim is not None and not -rank <= dim < rank:
                text = f"(expected to be in range of [{-rank}, {rank - 1}], but got {dim})"
                raise IndexError(located(f"Dimension out of range {text}"))

    return check
