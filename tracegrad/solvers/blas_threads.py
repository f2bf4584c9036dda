"""Thread limit of SciPy's BLAS: one thread while a solver needs no more.

SciPy's L-BFGS-B and SLSQP factor matrices of a few rows, thousands of times a second (scipy/scipy#23191). OpenBLAS
wakes its threads for each factorization, and they then wait for each other, which costs much processor time. NumPy
and compiled code use other BLAS libraries.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from tracegrad.platform.libraries import library_of
from tracegrad.platform.processes import at_fork
from tracegrad.utils.deferred_signals import uninterrupted

_OF_SHORT_FACTORS = ("", "l-bfgs-b", "slsqp")  # methods of `scipy.optimize.minimize`; "" may be any of them

_lock = threading.Lock()
_inside: set[object] = set()  # entered blocks that have not been left, in all threads
_threads = 1  # thread count of the library before the first block


def threads_for(method: str) -> AbstractContextManager[None]:
    """Return the context manager for a method of `scipy.optimize.minimize`, in lower case."""
    return one_thread() if method in _OF_SHORT_FACTORS else nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Context manager in which SciPy's OpenBLAS runs on one thread, for all Python threads.

    It has no effect if SciPy uses another BLAS.

    >>> with one_thread():
    ...     pass
    """
    library = _openblas()
    if library is None:
        yield
        return
    block = object()
    try:
        _enter(library, block)
        yield
    finally:
        _release(library, block)


def _enter(library: ctypes.CDLL, block: object) -> None:
    global _threads
    with uninterrupted(), _lock:
        if not _inside:
            _threads = library.scipy_openblas_get_num_threads()
            library.scipy_openblas_set_num_threads(1)
        _inside.add(block)


def _release(library: ctypes.CDLL, block: object) -> None:
    with uninterrupted(), _lock:
        if block in _inside:
            _inside.remove(block)
            if not _inside:
                library.scipy_openblas_set_num_threads(_threads)


@functools.cache
def _openblas() -> ctypes.CDLL | None:
    """Return the library, a dependency of a SciPy module, if its functions have the names of SciPy's wheels."""
    module = importlib.import_module("scipy.linalg.cython_blas")
    try:
        library = library_of(Path(str(module.__file__)), "openblas")
        for name in ("get", "set"):
            library[f"scipy_openblas_{name}_num_threads"]
    except (OSError, AttributeError):
        return None
    return library


at_fork(_lock.acquire, _lock.release, _lock.release)
