"""Map-reduce transforms: `tg.dask.value_and_grad` and `tg.dask.grad`."""

from __future__ import annotations

import functools
import itertools
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from tracegrad.dask.partitions import Columns, of_dask
from tracegrad.dask.task import How, Job, in_order, of_chunk
from tracegrad.dask.tree_reduction import ChunkResult, along_tree, finished, mean_of, sum_of
from tracegrad.errors import TraceError, located
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.sources.describe import describe
from tracegrad.transform_support import check
from tracegrad.transforms.vjp_function import positional, positions

__all__ = ["chunk_of", "grad", "value_and_grad"]

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]
_TOGETHER = {"sum": sum_of, "mean": mean_of}


def value_and_grad(
    fun: Function,
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    batched_argnums: Argnums,
    reduction: str = "sum",
    scheduler: object = None,
    compute: bool = True,
    optimize: int | None = None,
) -> Function:
    """Return the function to the value and the gradient of a loss over data in chunks.

    Parameters
    ----------
    fun : callable
        Loss of one chunk: a floating scalar. It must be a sum over rows, because the results are added over the chunks.
        A term that does not depend on the rows, such as a penalty, would be added once per chunk.
    argnums : int or tuple of int
        Positions of the arguments to differentiate with respect to. They are not batched.
    has_aux : bool
        Whether `fun` returns `(value, aux)`. The auxiliary result is the list of the values of all chunks; for a mean,
        of the chunks with rows.
    holomorphic : bool
        Whether `fun` is a holomorphic function, as for `tracegrad.value_and_grad`.
    batched_argnums : int or tuple of int
        Positions of the arguments in chunks. Such an argument is a Dask array in chunks along axis 0; a list of
        partitions, which are delayed values, futures, arrays or pytrees; or a pytree of these. All have the same
        chunks. `fun` is called with one chunk in their places.
    reduction : {"sum", "mean"}
        "mean": `fun` is a mean over rows, possibly with a penalty, and the chunks are weighted by their numbers of
        rows.
    scheduler : str, callable or None
        Scheduler as in `dask.compute`. The default is the cluster of the current client, or threads.
    compute : bool
        False: return a `Delayed` of the pair, and compute nothing.
    optimize : {1, 2, 3}, optional
        Optimization level, as for `trace`.

    Returns
    -------
    callable
        Function `(*args) -> (value, gradient)`; with `has_aux`, `(*args) -> ((value, aux), gradient)`. The gradient has
        the structure, shapes and dtypes of the argument `argnums`.

    Raises
    ------
    TypeError
        If an argument has no chunks, or the function cannot be pickled.
    ValueError
        If an argument of `argnums` is batched or does not exist.
    ShapeError
        If chunks do not fit together.
    RuntimeError
        If workers die repeatedly at the same chunk.
    ImportError
        If Dask is necessary and not installed.

    Notes
    -----
    The function, its captures and the arguments without chunks are sent once per call. Chunks that are plain arrays are
    computed one after the other by this process, without Dask. Kernels on workers run on one thread unless
    `TRACEGRAD_NUM_THREADS` is set.

    For the same chunks the results have the same bits, for any number of workers, if the processors are of one kind.
    The order of the chunks determines the tree along which the results are added. An exception of `fun` has a note with
    the number of the chunk. Other errors are those of `tracegrad.value_and_grad`.

    Examples
    --------
    >>> import numpy as np
    >>> def loss(w, x, y):
    ...     return np.sum((x @ w - y) ** 2)
    >>> x, y = np.eye(4, 2), np.arange(4.0)
    >>> value, gradient = value_and_grad(loss, batched_argnums=(1, 2))(np.ones(2), [x[:3], x[3:]], [y[:3], y[3:]])
    >>> print(value, gradient)
    14.0 [2. 0.]
    """
    how = How(argnums, has_aux, holomorphic, optimize, reduction)
    return _over_chunks("value_and_grad", fun, how, batched_argnums, scheduler, compute, _both)


def grad(
    fun: Function,
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    batched_argnums: Argnums,
    reduction: str = "sum",
    scheduler: object = None,
    compute: bool = True,
    optimize: int | None = None,
) -> Function:
    """Return the function to the gradient of a loss over data in chunks.

    Parameters
    ----------
    fun : callable
        Loss of one chunk, a floating scalar, as for `value_and_grad`.
    argnums : int or tuple of int
        Positions of the arguments to differentiate with respect to. They are not batched.
    has_aux : bool
        Whether `fun` returns `(value, aux)`. The auxiliary result is the list of the values of the chunks.
    holomorphic : bool
        Whether `fun` is a holomorphic function, as for `tracegrad.grad`.
    batched_argnums : int or tuple of int
        Positions of the arguments in chunks, as for `value_and_grad`.
    reduction : {"sum", "mean"}
        Whether `fun` is a sum or a mean over rows.
    scheduler : str, callable or None
        Scheduler as in `dask.compute`. The default is the cluster of the current client, or threads.
    compute : bool
        False: return a `Delayed` of the result, and compute nothing.
    optimize : {1, 2, 3}, optional
        Optimization level, as for `trace`.

    Returns
    -------
    callable
        Function `(*args) -> gradient`; with `has_aux`, `(*args) -> (gradient, aux)`.

    Raises
    ------
    TypeError, ValueError, ShapeError, RuntimeError, ImportError
        As for `value_and_grad`.

    Examples
    --------
    >>> import numpy as np
    >>> print(grad(lambda w, x: np.mean(w * x), batched_argnums=1, reduction="mean")(2.0, [np.zeros(1), np.ones(3)]))
    0.75
    """
    how = How(argnums, has_aux, holomorphic, optimize, reduction)
    return _over_chunks("grad", fun, how, batched_argnums, scheduler, compute, _gradient)


def _both(partial: ChunkResult, has_aux: bool) -> Any:
    return finished(partial, has_aux)


def _gradient(partial: ChunkResult, has_aux: bool) -> object:
    value, gradient = finished(partial, has_aux)
    return (gradient, value[1]) if has_aux else gradient


def _over_chunks(
    transform: str, fun: Function, how: How, batched: Argnums, scheduler: object, compute: bool, result: Function
) -> Function:
    check(fun, how.argnums, f"dask.{transform}", (None, how.optimize))
    if not _as_tuple(batched) or not all(type(i) is int for i in _as_tuple(batched)):
        text = f"batched_argnums must be an int or a tuple of ints, got {batched!r}"
        raise TypeError(located(f"dask.{transform}: {text}"))
    if how.reduction not in _TOGETHER:
        raise ValueError(located(f"dask.{transform}: reduction must be 'sum' or 'mean', got {how.reduction!r}"))
    name = f"tracegrad.dask.{transform} of {describe(fun).name}"
    compiled = how.of(fun)  # made once, so that later calls reuse the compiled program

    @functools.wraps(fun, updated=())
    def call(*args: object, **kwargs: object) -> Any:
        if current_trace() is not None:
            raise TraceError(located(f"{name} computes on a cluster, and cannot be called in a traced function"))
        inputs, keywords = positional(fun, args, kwargs)
        columns, placed = _placed(fun, name, how.argnums, batched, inputs)
        job = Job(how, name, placed, keywords, columns.check(), False)
        job.fun, job.function = fun, compiled
        if scheduler is None and compute and not columns.of_dask():
            chunk_entries = columns.chunk_entries()
            total = along_tree(job.chunks, lambda i: of_chunk(job, i, *chunk_entries[i]), _TOGETHER[how.reduction])
            return result(total, how.has_aux)
        return _by_dask(job, columns, scheduler, compute, result)

    return call


def _as_tuple(argnums: Argnums) -> tuple[int, ...]:
    return argnums if isinstance(argnums, tuple) else (argnums,)


def _placed(
    fun: Function, name: str, argnums: Argnums, batched: Argnums, args: Sequence[object]
) -> tuple[Columns, list[Any]]:
    """Return the chunks of a call, and its arguments with placeholders for them."""
    description, count = describe(fun, "grad of "), len(args)
    derivatives = positions(_as_tuple(argnums), count, description)
    for i in _as_tuple(batched):
        if not -count <= i < count:
            text = f"batched_argnums names argument {i}, but there are {count} positional arguments"
            raise ValueError(located(f"{name}: {text}"))
    chunks = [i % count for i in _as_tuple(batched)]
    columns, result = Columns(name), []
    for i, x in enumerate(args):
        label = description.argument(i)
        if i not in chunks:
            if of_dask(x):
                raise TypeError(located(f"{name}: {label} is Dask's; name it in batched_argnums, or compute it before"))
            result.append(in_order(x))
        elif i in derivatives:
            raise ValueError(located(f"{name}: argnums names {label}, which is batched and has no gradient to add up"))
        else:
            result.append(columns.placed(x, label))
    return columns, result


def _by_dask(job: Job, columns: Columns, scheduler: object, compute: bool, result: Function) -> Any:
    """Compute the same by Dask tasks, whose keys name their chunks."""
    dask = _dask()
    elsewhere, job.crowded = _scheduler_traits(dask, scheduler)
    if elsewhere:
        job.pack()
    chunk_entries = columns.chunk_entries()
    token = uuid.uuid4().hex[:8]

    def task(function: Function, key: str, *args: object, nout: int | None = None) -> Any:
        return dask.delayed(function, pure=False, nout=nout)(*args, dask_key_name=f"{key}-{token}")

    # The job is a task, because Dask would send data of the graph with each chunk. It is not scattered, because a
    # cluster computes a task again if its result is lost with the workers.
    sent = task(_itself, "job", job)
    serial = itertools.count()

    def leaf(i: int) -> Any:
        return task(of_chunk, f"chunk-{i}", sent, i, *chunk_entries[i])

    def together(partials: list[object]) -> Any:
        return task(_TOGETHER[job.how.reduction], f"{job.how.reduction}-{next(serial)}", partials)

    total = along_tree(job.chunks, leaf, together)
    final = task(result, "result", total, job.how.has_aux, nout=2 if result is _both or job.how.has_aux else None)
    if not compute:
        return final
    limit = "distributed.admin.large-graph-warning-threshold"
    usual = dask.utils.parse_bytes(dask.config.get(limit, "10MB"))
    died = getattr(sys.modules.get("distributed"), "KilledWorker", ())
    try:
        with dask.config.set({limit: usual + job.size()}):
            return final.compute(scheduler=scheduler)
    except died as error:
        chunk = chunk_of(str(error.task), chunk_entries, f"chunk-{{}}-{token}")
        text = f"{job.name}: the workers that computed {chunk} died, one after the other; their logs say why"
        raise RuntimeError(located(f"{text}. If it was for want of memory, make the chunks smaller")) from error


def _itself(job: Job) -> Job:
    return job


def _dask() -> Any:
    try:
        import dask.local
        import dask.threaded
        import dask.utils
    except ImportError as error:
        raise ImportError(f"this needs Dask, which is not installed: pip install tracegrad[dask] ({error})") from error
    return dask


def _scheduler_traits(dask: Any, scheduler: Any) -> tuple[bool, bool]:
    """Whether the scheduler uses other processes, and whether it computes several chunks at a time."""
    get = dask.base.get_scheduler(scheduler=scheduler) or dask.threaded.get
    return get not in (dask.local.get_sync, dask.threaded.get), get is not dask.local.get_sync


def chunk_of(key: str, chunk_entries: Sequence[tuple[object, ...]], key_format: str) -> str:
    """Return the chunk of a task, by its key, which is the chunk's key or derived from it."""
    for i, entries in enumerate(chunk_entries):
        chunk = f"chunk {i} (of {len(chunk_entries)}, from 0)"
        if key == key_format.format(i):
            return chunk
        if any(key == str(getattr(x, "key", "")) for x in entries):
            return f"the data of {chunk} ({key})"
    return f"what the {len(chunk_entries)} chunks are made of ({key})"
