"""Run chunks of generated code on a small native thread pool, and configure its number of threads.

`parallel_for_address()` is the address of a C function

    void parallel_for(void (*task)(void *context, int64_t chunk), void *context, int64_t chunks);

that calls `task(context, i)` exactly once for every `i` in `range(chunks)` and returns when all calls have returned. An
atomic counter hands out chunks to the calling thread and at most `settings.thread_count() - 1` workers. The caller
partitions the work. A partition by the problem alone makes results independent of the number of threads.

Guarantees
- Writes of the caller before the call are visible to every task; writes of the tasks are visible to the caller after.
- Tasks run with the caller's floating-point control register, so bits do not depend on the thread that runs a chunk.
- Any thread may call it, at any time. While a region runs, every other call (of another thread, or within a task) runs
  its chunks serially: nesting cannot deadlock, and callers do not multiply threads.
- Nothing here takes the GIL. A task that takes it may only run in regions entered without it.
- Workers start in the first region that can use them, spin for a moment after a region, then sleep, and wake on another
  CPU than the caller's (`affinity`). They never keep a process alive, and a forked child (`os.fork`,
  `multiprocessing`) starts workers of its own.

The pool is LLVM IR, compiled when its address is first requested. Without POSIX threads (Windows) `parallel_for` is a
plain loop.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from typing import NamedTuple, SupportsIndex

from tracegrad.llvmir.template import ir_template
from tracegrad.locks import reentrant_lock
from tracegrad.platform.processes import at_fork, instruction_set
from tracegrad.platform.threads import has_cpu_sets, has_posix_threads, monotonic_clock
from tracegrad.runtime.compile import jit
from tracegrad.settings import settings
from tracegrad.target.tuning import TUNING

_SPIN_NANOSECONDS = TUNING.threads.spin_time
_CPUS = ("x86_64", "aarch64")  # those with a file of IR

_SET_LIMIT = ctypes.CFUNCTYPE(None, ctypes.c_int64)
_RESET = ctypes.CFUNCTYPE(None)


class _Pool(NamedTuple):
    """The compiled pool: its addresses and Python wrappers."""

    address: int
    limit_address: int
    set_limit: Callable[[int], None]
    reset: Callable[[], None]


_lock = reentrant_lock()
_pool: _Pool | None = None


def set_num_threads(n: SupportsIndex) -> None:
    """Set the number of threads of later parallel regions; running regions are not changed.

    Raises TypeError if `n` is not an integer, ValueError if it is not from 1 to 1024.

    >>> before = settings.thread_count()
    >>> set_num_threads(1)
    >>> settings.thread_count()
    1
    >>> set_num_threads(before)
    """
    settings.num_threads = operator.index(n)


def _limit_changed() -> None:
    with _lock:
        if _pool is not None:
            _pool.set_limit(settings.thread_count())


settings.watch("num_threads", _limit_changed)


def parallel_for_address() -> int:
    """The address of `parallel_for` (see the module's docstring); it stays valid until the process ends.

    The first call compiles the pool. Raises ValueError if TRACEGRAD_NUM_THREADS has a bad value.

    >>> task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    >>> prototype = ctypes.CFUNCTYPE(None, task_type, ctypes.c_void_p, ctypes.c_int64)
    >>> seen = []
    >>> prototype(parallel_for_address())(task_type(lambda context, chunk: seen.append(chunk)), None, 4)
    >>> sorted(seen)
    [0, 1, 2, 3]
    """
    return _shared_pool().address


def limit_address() -> int:
    """The address of `i64 get_limit(void)`, the number of threads of a parallel region; valid until exit."""
    return _shared_pool().limit_address


def _shared_pool() -> _Pool:
    global _pool
    if _pool is None:
        with _lock:
            if _pool is None:
                limit = settings.thread_count()
                code = jit.load_ir(_source, "parallel_for", "cold")
                run, get, put, reset = map(code.address, ("parallel_for", "get_limit", "set_limit", "reset"))
                pool = _Pool(run, get, _SET_LIMIT(put), _RESET(reset))
                pool.reset()
                pool.set_limit(limit)
                _pool = pool
    return _pool


def _source() -> str:
    """The LLVM IR of the pool for this system and CPU."""
    chunks = ir_template("runtime/threads/chunks.ll")
    if not has_posix_threads():
        return chunks + ir_template("runtime/threads/serial.ll")
    cpu = instruction_set()
    registers = ir_template(f"runtime/threads/cpu_{cpu if cpu in _CPUS else 'other'}.ll")
    pool = ir_template("runtime/threads/pool.ll", spin_time=TUNING.threads.spin_time)
    affinity = ir_template(f"runtime/threads/{'affinity' if has_cpu_sets() else 'no_affinity'}.ll")
    return chunks + clock_source() + registers + pool + affinity


def clock_source() -> str:
    """The LLVM IR of `i64 @now()`, nanoseconds of a monotonic clock; "" if the system has no such function.

    >>> bool(clock_source()) == has_posix_threads()
    True
    """
    clock = monotonic_clock()
    return "" if clock is None else ir_template("runtime/threads/clock.ll", clock=clock)


def _after_fork_in_child() -> None:
    _lock.release()
    if _pool is not None:
        _pool.reset()


# Under the lock, so that no child inherits an incomplete pool.
at_fork(_lock.acquire, _lock.release, _after_fork_in_child)
