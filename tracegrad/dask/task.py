"""Task payload, sent to the workers once a call: the pickled function, and the data shared by all chunks.

A worker identifies functions by the digest of their pickle. From the second call on, with the same pickle, it runs the
code that the first call has compiled.
"""

from __future__ import annotations

import hashlib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad import api, tree
from tracegrad.dask.tree_reduction import ChunkResult
from tracegrad.errors import ShapeError, located
from tracegrad.locks import new_lock
from tracegrad.settings import settings
from tracegrad.trace.bytecode.nested_code import names_in
from tracegrad.trace.sources.describe import describe
from tracegrad.traced_function import Traced
from tracegrad.transform_support import derived
from tracegrad.transforms import vjp_function

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = ["ChunkPlaceholder", "How", "Job", "in_order", "of_chunk"]

MAX_FUNCTIONS = 16


class ChunkPlaceholder(NamedTuple):
    """Placeholder in the arguments of a job for a chunk's entry of this number, with its name for messages."""

    number: int
    name: str


tree.register_leaf(ChunkPlaceholder)


class How(NamedTuple):
    """Options of the derivative, as for `tracegrad.value_and_grad`, and the reduction of the chunks."""

    argnums: int | tuple[int, ...]
    has_aux: bool
    holomorphic: bool
    optimize: int | None
    reduction: str

    def of(self, fun: Callable[..., object]) -> Traced[..., Any]:
        """Return the function `(*args) -> (value, gradient)`.

        NumPy evaluates no call of it, because it rounds differently. It shares nothing with other functions of its
        code, which may have other captures.
        """
        args = self.argnums, self.has_aux, self.holomorphic
        return derived(fun, vjp_function.value_and_grad(fun, *args), api.value_and_grad, args, (False, self.optimize))


class Job:
    """A function, how it is derived, and the arguments of a call, with placeholders for the chunks.

    `crowded` says that other chunks are computed at the same time on the same processors.
    """

    def __init__(self, how: How, name: str, args: list[Array], keywords: dict[str, object], chunks: int, crowded: bool):
        self.how, self.name, self.args, self.keywords = how, name, args, keywords
        self.chunks, self.crowded = chunks, crowded
        self.fun: Callable[..., Any] | None = None  # in the caller's process only
        self.packed: bytes | None = None
        self.function: Traced[..., Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        args = self.how, self.name, self.args, self.keywords, self.chunks, self.crowded
        return _arrived, (args, self.pack())

    def pack(self) -> bytes:
        """Pickle the function once for all workers. TypeError if that fails; it names the reason."""
        if self.packed is not None:
            return self.packed
        import cloudpickle

        assert self.fun is not None
        try:
            self.packed = cloudpickle.dumps(self.fun)
        except Exception as error:
            culprit = _culprit(self.fun, cloudpickle.dumps) or "it"
            text = f"{self.name}: {describe(self.fun)} cannot be sent to workers: {culprit} cannot be pickled ({error})"
            raise TypeError(located(text)) from error
        return self.packed

    def size(self) -> int:
        """Estimate the number of bytes that are sent."""
        arrays = [x for x in tree.leaves((self.args, self.keywords)) if isinstance(x, np.ndarray)]
        return len(self.packed or b"") + sum(x.nbytes for x in arrays)

    def run(self, *args: object) -> Any:
        """Return the function, derived and compiled."""
        if self.function is None:
            self.function = _known(self.pack(), self.how)
        return self.function(*args, **self.keywords)


def _arrived(args: Any, packed: bytes) -> Job:
    job = Job(*args)
    job.packed = packed
    return job


_functions: OrderedDict[Any, Traced[..., Any]] = OrderedDict()
_lock = new_lock()


def _known(packed: bytes, how: How) -> Traced[..., object]:
    import cloudpickle

    key = hashlib.sha256(packed).digest(), how
    with _lock:
        if key not in _functions:
            _functions[key] = how.of(cloudpickle.loads(packed))
        _functions.move_to_end(key)
        while len(_functions) > MAX_FUNCTIONS:
            _functions.popitem(last=False)
        return _functions[key]


def of_chunk(job: Job, number: int, *entries: object) -> ChunkResult:
    """Compute the result of the chunk with this number; errors have a note with the number."""
    try:
        args = [_filled(x, entries) for x in job.args]
        rows = _count_rows(job.args, entries) if job.how.reduction == "mean" else None
        if rows == 0:
            return ChunkResult(0, None, None, [])
        with _one_thread() if job.crowded else nullcontext():
            value, gradient = job.run(*args)
    except Exception as error:
        error.add_note(f"in chunk {number} (of {job.chunks}, from 0), {job.name}")
        raise
    value, aux = (value[0], [value[1]]) if job.how.has_aux else (value, [])
    return ChunkResult(rows, value, gradient, aux)


def _filled(arg: object, entries: tuple[object, ...]) -> Any:
    """Return an argument with the chunk's entries in place of the placeholders."""
    return tree.map(lambda x: in_order(entries[x.number]) if type(x) is ChunkPlaceholder else x, arg)


def in_order(x: object) -> Any:
    """Copy the arrays of a pytree to C order.

    Sums follow the memory order of elements, and pickle changes the order of some arrays.
    """
    return tree.map(lambda x: np.asarray(x, order="C") if type(x) is np.ndarray else x, x)


def _count_rows(args: list[Array], entries: tuple[Any, ...]) -> int:
    table = {}
    for placeholder in [x for x in tree.leaves(args) if type(x) is ChunkPlaceholder]:
        entry = entries[placeholder.number]
        for name, leaf in zip(tree.paths(entry, placeholder.name), tree.leaves(entry)):
            if not np.ndim(leaf):
                text = f"a mean counts the rows of chunks, and {name} has none: it is a {type(leaf).__name__}"
                raise TypeError(text)
            table[name] = np.shape(leaf)[0]
    if len(set(table.values())) != 1:
        counts = ", ".join(f"{name} {rows}" for name, rows in table.items())
        raise ShapeError(f"for a mean, the arrays of a chunk must have one number of rows, got {counts}")
    return int(table.popitem()[1])


class _Crowd:
    """Number of chunks that this process computes at present, and the settings in the meantime."""

    count = 0
    held: Any = None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run kernels on one thread unless the number of threads is set, as NumPy's BLAS does on Dask's workers.

    There is a chunk for each processor. Bits do not depend on the number of threads.
    """
    with _lock:
        if not _Crowd.count and settings.num_threads is None:
            _Crowd.held = settings.override(num_threads=1)
            _Crowd.held.__enter__()
        _Crowd.count += 1
    try:
        yield
    finally:
        with _lock:
            _Crowd.count -= 1
            if not _Crowd.count and _Crowd.held is not None:
                _Crowd.held.__exit__()
                _Crowd.held = None


def _culprit(fun: Any, dumps: Callable[[object], bytes], seen: frozenset[int] = frozenset()) -> str:
    """Name the captured object that cannot be pickled; "" if there is none."""
    inner = inspect.unwrap(fun)
    inner = getattr(inner, "__func__", inner)
    if not isinstance(inner, FunctionType) or id(inner) in seen:
        return ""
    for name, value in _captured(inner):
        try:
            dumps(value)
        except Exception:
            deeper = _culprit(value, dumps, seen | {id(inner)}) if callable(value) else ""
            return f"{deeper} in {name}" if deeper else f"{name}, a {type(value).__name__},"
    return ""


def _captured(fun: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    for name in sorted(names_in(fun.__code__)):
        if name in fun.__globals__:
            yield name, fun.__globals__[name]
    yield from ((f"a default of {fun.__name__}", x) for x in (fun.__defaults__ or ()))
