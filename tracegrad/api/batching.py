"""`vmap`, the transform that maps a function over an axis of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad import tree
from tracegrad.control.loops import map as over_chunks
from tracegrad.runtime.dispatch.closure_families import remembered
from tracegrad.traced_function import Parameters, Traced
from tracegrad.transform_support import require_callable, standing_for, statics
from tracegrad.transforms import vmap as batch

if TYPE_CHECKING:
    from tracegrad.tree.pytree import TreeDef


__all__ = ["vmap", "vmap_in_chunks"]


def vmap(
    fun: Callable[Parameters, Any], in_axes: object = 0, out_axes: object = 0, axis_size: int | None = None
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
    return vmap_in_chunks(fun, in_axes, out_axes, axis_size, None)


def vmap_in_chunks(
    fun: Callable[Parameters, Any], in_axes: Any, out_axes: Any, axis_size: Any, chunk_size: int | None
) -> Traced[Parameters, Any]:
    """Vectorize as `vmap`, for `chunk_size` examples at a time; None for all."""
    require_callable(fun, "vmap")
    batch.check_axes(in_axes, out_axes)
    chunks = None if chunk_size is None else (chunk_size, over_chunks)

    def make() -> Any:
        body = batch.batched_call(fun, in_axes, out_axes, axis_size, statics(fun)[1], chunks)
        result = standing_for(fun, body, "vmap")
        result.recipe = vmap_in_chunks, (in_axes, out_axes, axis_size, chunk_size), {}
        return result

    return remembered(fun, ("vmap", _axes_key(in_axes), _axes_key(out_axes), axis_size, chunk_size), make)


def _axes_key(axes: Any) -> tuple[TreeDef, tuple[int, ...]]:
    leaves, structure = tree.flatten(axes)
    return structure, tuple(leaves)
