"""`vmap`, the transform that maps a function over an axis of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad import tree
from tracegrad.control.loops import map as over_chunks
from tracegrad.errors import located
from tracegrad.runtime.dispatch.closure_families import remembered
from tracegrad.traced_function import Parameters, Traced
from tracegrad.transform_support import require_callable, standing_for, statics
from tracegrad.transforms import tensor_rules
from tracegrad.transforms import vmap as batch

if TYPE_CHECKING:
    from tracegrad.tree.pytree import TreeDef


__all__ = ["vmap", "vmap_of_dims"]


def vmap(
    fun: Callable[Parameters, Any],
    in_axes: object = 0,
    out_axes: object = 0,
    axis_size: int | None = None,
    *,
    in_dims: object = ...,
    out_dims: object = ...,
    randomness: str | None = None,
    chunk_size: int | None = None,
) -> Traced[Parameters, Any]:
    """Vectorize a function: return the function that maps it over an axis of its arguments.

    Parameters
    ----------
    fun : callable
        Function of one example. Inside it, arrays have the shapes of one example.
    in_axes : int, None, or tuple
        Batch axis of the arguments. A tuple has an entry for each positional argument: an int, None for an argument
        that all examples share, or a pytree of these. Keyword arguments are mapped along axis 0.
    out_axes : int, None, or pytree
        Position of the batch axis in the results, or a pytree prefix of positions. None is for a result that does not
        depend on mapped arguments.
    axis_size : int, optional
        Number of examples. It is necessary only if no argument is mapped.
    in_dims, out_dims : int, None or pytree, optional
        PyTorch's names of `in_axes` and `out_axes`. With one of the keywords, the function is that of `tg.func.vmap`.
    randomness, chunk_size : optional
        Options as for `tg.func.vmap`.

    Returns
    -------
    Traced
        Function of batches: all examples are computed by one program.

    Raises
    ------
    TraceError
        If Python asks for a value that depends on a mapped argument, for example in `if`. Use `tg.where` or `tg.cond`.
    ValueError
        If the sizes of mapped axes differ, an argument has no such axis, or an entry has the wrong structure.

    See Also
    --------
    map : Apply a function to rows one after the other, with the memory of one row.

    Notes
    -----
    Where arguments are Tensors and there is no `axis_size`, the rules are those of `tg.func.vmap`: examples share the
    keyword arguments, and results are Tensors.

    A dict, list or object with a mapped leaf is a separate object for each example, so writes to it belong to that
    example. Other containers are shared, and written once. If the value of one example has been written to a shared
    container, a later use of this value raises `TraceError`.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(6.0).reshape(2, 3)
    >>> print(vmap(np.sum)(x), vmap(np.dot, in_axes=(0, None))(x, np.ones(3)))
    [ 3. 12.] [ 3. 12.]
    """
    by_position = isinstance(axis_size, str)  # PyTorch's fourth parameter is `randomness`
    if by_position or randomness or chunk_size is not None or in_dims is not ... or out_dims is not ...:
        dims = in_axes if in_dims is ... else in_dims, out_axes if out_dims is ... else out_dims
        return vmap_of_dims(fun, *dims, str(axis_size) if by_position else randomness or "error", chunk_size)
    require_callable(fun, "vmap")
    of_arguments: Any = in_axes
    of_results: Any = out_axes
    batch.check_axes(of_arguments, of_results)

    def make() -> Any:
        of_arrays = batch.batched_call(fun, of_arguments, of_results, axis_size, statics(fun)[1])
        of_tensors = _body_of_dims(
            fun, tuple(in_axes) if isinstance(in_axes, list) else in_axes, out_axes, "error", None
        )

        def call(*args: object, **kwargs: object) -> Any:
            body = of_tensors if axis_size is None and tensor_rules.has_tensor((args, kwargs)) else of_arrays
            return body(*args, **kwargs)

        result = standing_for(fun, call, "vmap")
        result.recipe = vmap, (in_axes, out_axes, axis_size), {}
        return result

    return remembered(fun, ("vmap", _axes_key(in_axes), _axes_key(out_axes), axis_size), make)


def vmap_of_dims(
    fun: Callable[Parameters, Any], in_dims: object, out_dims: object, randomness: str, chunk_size: int | None
) -> Traced[Parameters, Any]:
    """Vectorize by the rules of `torch.func.vmap`, for `chunk_size` examples at a time; None for all."""
    tensor_rules.require_randomness(randomness)
    if chunk_size is not None and type(chunk_size) is not int:
        raise TypeError(located(f"vmap: chunk_size should be None or an int, got a {type(chunk_size).__name__}"))
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(located(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})"))
    require_callable(fun, "vmap")
    tensor_rules.require_dims(_name(fun), in_dims, out_dims)

    def make() -> Any:
        body = _body_of_dims(fun, in_dims, out_dims, randomness, chunk_size)
        result = standing_for(fun, body, "vmap")
        result.recipe = vmap_of_dims, (in_dims, out_dims, randomness, chunk_size), {}
        return result

    return remembered(fun, ("vmap", _axes_key(in_dims), _axes_key(out_dims), randomness, chunk_size), make)


def _name(fun: Callable[..., object]) -> str:
    name: str = getattr(fun, "__name__", repr(fun))
    return name


def _body_of_dims(
    fun: Callable[..., object], in_dims: object, out_dims: object, randomness: str, chunk_size: int | None
) -> Callable[..., Any]:
    """The function of batches by the rules of PyTorch."""
    name = _name(fun)
    of_results: Any = out_dims
    chunks = None if chunk_size is None else (chunk_size, over_chunks)
    checked = tensor_rules.checked(fun, tensor_rules.batch_results(name, out_dims))
    body = batch.batched_call(checked, in_dims, of_results, None, statics(fun)[1], chunks, None, randomness, name)

    def call(*args: object, **kwargs: object) -> Any:
        tensor_rules.require_mapped(name, in_dims, args)
        return body(*args, **kwargs)

    return call


def _axes_key(axes: Any) -> tuple[TreeDef, tuple[int, ...]]:
    leaves, structure = tree.flatten(axes)
    return structure, tuple(leaves)
