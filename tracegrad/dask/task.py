"""What travels to the workers once a call: the function, by pickle, and what is the same for all chunks.

A worker knows functions by the digest of their pickle, so that of the second call on, which sends the same, it runs
what the first one has compiled.
"""

from __future__ import annotations

import hashlib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from tracegrad import api, tree
from tracegrad.dask.tree_reduction import Partial
from tracegrad.errors import ShapeError, located
from tracegrad.locks import new_lock
from tracegrad.settings import settings
from tracegrad.trace.sources.describe import describe
from tracegrad.traced_function import Traced
from tracegrad.transform_support import derived
from tracegrad.transforms import vjp_function as reverse

__all__ = ["How", "Job", "Place", "in_order", "of_chunk"]

MOST_FUNCTIONS = 16


class Place(NamedTuple):
    """Stands in the arguments of a job for what each chunk has there: its entry of this number, which users call so."""

    number: int
    name: str


tree.register_leaf(Place)


class How(NamedTuple):
    """What is derived of the function, as `tracegrad.value_and_grad` is told, and what becomes of the chunks."""

    argnums: int | tuple[int, ...]
    has_aux: bool
    holomorphic: bool
    optimize: int | None
    reduction: str

    def of(self, fun: Callable[..., Any]) -> Traced[..., Any]:
        """The function `(*args) -> (value, gradient)`. No call of it is answered by NumPy, which rounds differently;
        and it shares nothing with others of its code, which may have been called with other things."""
        given = self.argnums, self.has_aux, self.holomorphic
        return derived(fun, reverse.value_and_grad(fun, *given), api.value_and_grad, given, (False, self.optimize))


class Job:
    """A function, how it is derived, and the arguments of a call, with `Place`s where chunks differ.

    `crowded` says that other chunks are computed at the same time on the same processors.
    """

    def __init__(self, how: How, name: str, args: list[Any], keywords: dict[str, Any], chunks: int, crowded: bool):
        self.how, self.name, self.args, self.keywords = how, name, args, keywords
        self.chunks, self.crowded = chunks, crowded
        self.fun: Callable[..., Any] | None = None  # where the call was made
        self.packed: bytes | None = None
        self.function: Traced[..., Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.how, self.name, self.args, self.keywords, self.chunks, self.crowded
        return _arrived, (given, self.pack())

    def pack(self) -> bytes:
        """The function, pickled once for all workers. TypeError if it cannot be, which says what of it."""
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
        """Bytes that travel, but for some."""
        arrays = [x for x in tree.leaves((self.args, self.keywords)) if isinstance(x, np.ndarray)]
        return len(self.packed or b"") + sum(x.nbytes for x in arrays)

    def run(self, *args: Any) -> Any:
        """The function, derived and compiled."""
        if self.function is None:
            self.function = _known(self.pack(), self.how)
        return self.function(*args, **self.keywords)


def _arrived(given: Any, packed: bytes) -> Job:
    job = Job(*given)
    job.packed = packed
    return job


_functions: OrderedDict[Any, Traced[..., Any]] = OrderedDict()
_lock = new_lock()


def _known(packed: bytes, how: How) -> Traced[..., Any]:
    import cloudpickle

    key = hashlib.sha256(packed).digest(), how
    with _lock:
        if key not in _functions:
            _functions[key] = how.of(cloudpickle.loads(packed))
        _functions.move_to_end(key)
        while len(_functions) > MOST_FUNCTIONS:
            _functions.popitem(last=False)
        return _functions[key]


def of_chunk(job: Job, number: int, *entries: Any) -> Partial:
    """What the chunk with this number gives. Errors have a note that says which it was."""
    try:
        args = [_filled(x, entries) for x in job.args]
        rows = _rows(job.args, entries) if job.how.reduction == "mean" else None
        if rows == 0:
            return Partial(0, None, None, [])
        with _one_thread() if job.crowded else nullcontext():
            value, gradient = job.run(*args)
    except Exception as error:
        error.add_note(f"in chunk {number} (of {job.chunks}, from 0), {job.name}")
        raise
    value, aux = (value[0], [value[1]]) if job.how.has_aux else (value, [])
    return Partial(rows, value, gradient, aux)


def _filled(arg: Any, entries: tuple[Any, ...]) -> Any:
    """An argument with the chunk's entries in their places."""
    return tree.map(lambda x: in_order(entries[x.number]) if type(x) is Place else x, arg)


def in_order(x: Any) -> Any:
    """The pytree with its arrays in C order: sums go through elements as they lie, and pickle lays some out anew."""
    return tree.map(lambda x: np.asarray(x, order="C") if type(x) is np.ndarray else x, x)


def _rows(args: list[Any], entries: tuple[Any, ...]) -> int:
    found = {}
    for place in [x for x in tree.leaves(args) if type(x) is Place]:
        entry = entries[place.number]
        for name, leaf in zip(tree.paths(entry, place.name), tree.leaves(entry)):
            if not np.ndim(leaf):
                text = f"a mean counts the rows of chunks, and {name} has none: it is a {type(leaf).__name__}"
                raise TypeError(text)
            found[name] = np.shape(leaf)[0]
    if len(set(found.values())) != 1:
        told = ", ".join(f"{name} {rows}" for name, rows in found.items())
        raise ShapeError(f"for a mean, the arrays of a chunk must have one number of rows, got {told}")
    return int(found.popitem()[1])


class _Crowd:
    """How many chunks are being computed by this process, and what holds meanwhile."""

    count = 0
    held: Any = None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Kernels run on one thread where nobody has said on how many, as NumPy's BLAS does on Dask's workers: there is a
    chunk for each processor. Bits do not depend on it."""
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


def _culprit(fun: Any, dumps: Callable[[Any], bytes], seen: frozenset[int] = frozenset()) -> str:
    """What of that which a function has captured cannot be pickled; "" where that is not found."""
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
    for name in sorted(_names(fun.__code__)):
        if name in fun.__globals__:
            yield name, fun.__globals__[name]
    yield from ((f"a default of {fun.__name__}", x) for x in (fun.__defaults__ or ()))


def _names(code: CodeType) -> set[str]:
    inside = [_names(x) for x in code.co_consts if isinstance(x, CodeType)]
    return set(code.co_names).union(*inside)
