"""Run chunks of generated code on a small native thread pool, and configure its number of threads.

`parallel_for_address()` is the address of a C function

    void parallel_for(void (*task)(void *context, int64_t chunk), void *context, int64_t chunks);

that calls `task(context, i)` exactly once for every `i` in `range(chunks)` and returns when all calls have returned. An
atomic counter hands out chunks to the calling thread and at most `num_threads() - 1` workers. The caller partitions the
work. A partition by the problem alone makes results independent of the number of threads.

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
import os
import platform
import sys
import threading
from collections.abc import Callable
from string import Template
from typing import NamedTuple, SupportsIndex

from tracegrad.runtime.compile import jit
from tracegrad.runtime.threads.affinity import placement_source
from tracegrad.settings import MOST_THREADS, settings
from tracegrad.target.tuning import TUNING

__all__ = ["clock_source", "limit_address", "num_threads", "parallel_for_address", "set_num_threads"]

_SPIN_NANOSECONDS = TUNING.threads.spin_time

_RUN = """
; Take chunks from a counter and run them until none is left.
define internal void @run(ptr %counter, ptr %task, ptr %context, i64 %chunks) {
  br label %take
take:
  %chunk = atomicrmw add ptr %counter, i64 1 monotonic
  %left = icmp slt i64 %chunk, %chunks
  br i1 %left, label %call, label %done
call:
  call void %task(ptr %context, i64 %chunk)
  br label %take
done:
  ret void
}
"""

_WITHOUT_POOL = """
define void @parallel_for(ptr %task, ptr %context, i64 %chunks) {
  %counter = alloca i64
  store i64 0, ptr %counter
  call void @run(ptr %counter, ptr %task, ptr %context, i64 %chunks)
  ret void
}
define i64 @get_limit() { ret i64 1 }
define void @set_limit(i64 %threads) { ret void }
define void @reset() { ret void }
"""

# Nanoseconds of a monotonic clock.
_CLOCK = """
declare i32 @clock_gettime(i32, ptr)

define internal i64 @now() {
  %time = alloca [2 x i64]                           ; seconds and nanoseconds: struct timespec
  %status = call i32 @clock_gettime(i32 $clock, ptr %time)
  %seconds = load i64, ptr %time
  %fraction = getelementptr i64, ptr %time, i32 1
  %nanoseconds = load i64, ptr %fraction
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %nanoseconds
  ret i64 %sum
}
"""

# One word, @state, decides who may touch a region: (epoch << 17) | (closed << 16) | active workers. The
# caller opens a region by a new epoch, and closes it before it waits for the active workers. A worker joins
# by compare-and-swap on the whole word. A worker that wakes late can therefore neither join a region that is
# over, nor read the description of a region (@task to @control) while the next caller writes it.
#
# Sleep is Dekker's protocol: the sleeper (@await) announces itself, then looks at @state; the waker changes
# @state, then (@wake) looks for sleepers. All accesses are sequentially consistent, so one thread sees the other.
# The waker passes through the mutex, which a sleeper holds from its announcement until it waits.
#
# A spinning thread yields now and then, because the system may run it on the CPU of the thread that it waits for.
# Words that several threads write sit 128 bytes apart: a cache line, or the pair that x86 prefetches together.
_POOL = Template("""
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @sched_yield()
declare i64 @llvm.smin.i64(i64, i64)
$declare_cpu

@mutex = internal global [128 x i8] zeroinitializer, align 128
@work = internal global [128 x i8] zeroinitializer, align 128     ; condition: a region was opened
@over = internal global [128 x i8] zeroinitializer, align 128     ; condition: the last active worker left
@state = internal global [16 x i64] zeroinitializer, align 128
@next = internal global [16 x i64] zeroinitializer, align 128     ; the chunk to hand out next
@busy = internal global [16 x i64] zeroinitializer, align 128     ; a caller owns the pool
@sleepers = internal global [16 x i64] zeroinitializer, align 128 ; workers that sleep on @work
@waiting = internal global [16 x i64] zeroinitializer, align 128  ; the caller sleeps on @over
@handles = internal global [1024 x ptr] zeroinitializer           ; of the workers; guarded by @busy
@limit = internal global i64 1, align 128                         ; threads in a region, the caller included
@started = internal global i64 0                                  ; workers that exist; guarded by @busy
@task = internal global ptr null, align 128                       ; the region, from here on
@context = internal global ptr null
@chunks = internal global i64 0
@helpers = internal global i64 0                                  ; workers that may join
@control = internal global i64 0                                  ; the caller's floating-point control

; One turn of a spin; true when the time is up. Most turns only pause: cheaper than to ask the system.
define internal i1 @spin(i64 %turn, i64 %deadline) {
  $pause
  %sixteenth = and i64 %turn, 15
  %quick = icmp ne i64 %sixteenth, 0
  br i1 %quick, label %again, label %ask
again:
  ret i1 false
ask:
  %yielded = call i32 @sched_yield()
  %time = call i64 @now()
  %expired = icmp sgt i64 %time, %deadline
  ret i1 %expired
}

define internal i64 @get_control() {
$get_control
  ret i64 %control
}

define internal void @set_control(i64 %control) {
$set_control
  ret void
}

; True once @state has a region open that is not the worker's last, %seen.
define internal i1 @is_new(i64 %state, i64 %seen) {
  %closed = and i64 %state, 65536
  %open = icmp eq i64 %closed, 0
  %epoch = lshr i64 %state, 17
  %unseen = icmp ne i64 %epoch, %seen
  %new = and i1 %open, %unseen
  ret i1 %new
}

define internal i1 @is_empty(i64 %state, i64 %unused) {
  %active = and i64 %state, 65535
  %empty = icmp eq i64 %active, 0
  ret i1 %empty
}

; Return a @state with %test(@state, %argument): spin first, then sleep on %condition, counted in %sleepers.
define internal i64 @await(ptr %test, i64 %argument, ptr %sleepers, ptr %condition) {
entry:
  %start = call i64 @now()
  %deadline = add i64 %start, $spin
  br label %look
look:
  %turn = phi i64 [ 0, %entry ], [ %turns, %pause ]
  %state = load atomic i64, ptr @state acquire, align 8
  %holds = call i1 %test(i64 %state, i64 %argument)
  br i1 %holds, label %done, label %pause
pause:
  %turns = add i64 %turn, 1
  %expired = call i1 @spin(i64 %turns, i64 %deadline)
  br i1 %expired, label %sleep, label %look
sleep:
  %locked = call i32 @pthread_mutex_lock(ptr @mutex)
  %others = atomicrmw add ptr %sleepers, i64 1 seq_cst
  br label %check
check:
  %state_now = load atomic i64, ptr @state seq_cst, align 8
  %holds_now = call i1 %test(i64 %state_now, i64 %argument)
  br i1 %holds_now, label %wake, label %wait
wait:
  %waited = call i32 @pthread_cond_wait(ptr %condition, ptr @mutex)
  br label %check
wake:
  %rest = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  %unlocked = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %done
done:
  %answer = phi i64 [ %state, %look ], [ %state_now, %wake ]
  ret i64 %answer
}

; Wake up to %most of the threads that sleep on %condition, counted in %sleepers.
define internal void @wake(ptr %sleepers, ptr %condition, i64 %most) {
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %count = call i64 @llvm.smin.i64(i64 %asleep, i64 %most)
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %pass, label %done
pass:
  %locked = call i32 @pthread_mutex_lock(ptr @mutex)
  %unlocked = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %signal
signal:
  %left = phi i64 [ %count, %pass ], [ %rest, %signal ]
  %signalled = call i32 @pthread_cond_signal(ptr %condition)
  %rest = sub i64 %left, 1
  %more = icmp sgt i64 %rest, 0
  br i1 %more, label %signal, label %done
done:
  ret void
}

; The life of a worker.
define internal ptr @worker(ptr %number) {
entry:
  %worker = ptrtoint ptr %number to i64
  br label %await
await:
  %seen = phi i64 [ -1, %entry ], [ %epoch, %await ], [ %seen, %join ], [ %epoch, %help ], [ %epoch, %tell ]
  %state = call i64 @await(ptr @is_new, i64 %seen, ptr @sleepers, ptr @work)
  call void @note_cpu(i64 %worker)
  %epoch = lshr i64 %state, 17
  %active = and i64 %state, 65535
  %helpers = load atomic i64, ptr @helpers monotonic, align 8
  %wanted = icmp slt i64 %active, %helpers
  br i1 %wanted, label %join, label %await
join:
  %one_more = add i64 %state, 1
  %swap = cmpxchg ptr @state, i64 %state, i64 %one_more acq_rel acquire
  %joined = extractvalue { i64, i1 } %swap, 1
  br i1 %joined, label %help, label %await
help:
  %control = load i64, ptr @control
  call void @set_control(i64 %control)
  %task = load ptr, ptr @task
  %context = load ptr, ptr @context
  %chunks = load i64, ptr @chunks
  call void @run(ptr @next, ptr %task, ptr %context, i64 %chunks)
  %before = atomicrmw sub ptr @state, i64 1 seq_cst
  %active_before = and i64 %before, 65535
  %last = icmp eq i64 %active_before, 1
  br i1 %last, label %tell, label %await
tell:
  call void @wake(ptr @waiting, ptr @over, i64 1)
  br label %await
}

; Make sure that %helpers workers exist. The owner of the pool calls it.
define internal void @start_workers(i64 %helpers) {
  br label %check
check:
  %started = load i64, ptr @started
  %missing = icmp slt i64 %started, %helpers
  br i1 %missing, label %create, label %done
create:
  %thread = getelementptr ptr, ptr @handles, i64 %started
  %number = inttoptr i64 %started to ptr
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %number)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %give_up, label %created
created:
  %handle = load ptr, ptr %thread
  %detached = call i32 @pthread_detach(ptr %handle)
  %more = add i64 %started, 1
  store i64 %more, ptr @started
  br label %check
give_up:                                             ; the system has no more threads: ask for no more
  %threads = add i64 %started, 1
  store atomic i64 %threads, ptr @limit monotonic, align 8
  br label %done
done:
  ret void
}

define void @parallel_for(ptr %task, ptr %context, i64 %chunks) {
  %limit = load atomic i64, ptr @limit monotonic, align 8
  %usable = call i64 @llvm.smin.i64(i64 %limit, i64 %chunks)
  %helpers = sub i64 %usable, 1
  %worth = icmp sgt i64 %helpers, 0
  br i1 %worth, label %acquire, label %alone
acquire:
  %swap = cmpxchg ptr @busy, i64 0, i64 1 acquire monotonic
  %owned = extractvalue { i64, i1 } %swap, 1
  br i1 %owned, label %open, label %alone
open:
  call void @start_workers(i64 %helpers)
  call void @keep_apart(i64 %helpers)
  %control = call i64 @get_control()
  store ptr %task, ptr @task
  store ptr %context, ptr @context
  store i64 %chunks, ptr @chunks
  store i64 %control, ptr @control
  store atomic i64 %helpers, ptr @helpers monotonic, align 8
  store atomic i64 0, ptr @next monotonic, align 8
  %old = load atomic i64, ptr @state monotonic, align 8
  %full = or i64 %old, 131071
  %fresh = add i64 %full, 1                          ; the next epoch, open, no worker active
  store atomic i64 %fresh, ptr @state seq_cst, align 8
  call void @wake(ptr @sleepers, ptr @work, i64 %helpers)
  call void @run(ptr @next, ptr %task, ptr %context, i64 %chunks)
  %closed = atomicrmw or ptr @state, i64 65536 acq_rel
  %empty = call i64 @await(ptr @is_empty, i64 0, ptr @waiting, ptr @over)
  store atomic i64 0, ptr @busy release, align 8
  ret void
alone:
  %counter = alloca i64
  store i64 0, ptr %counter
  call void @run(ptr %counter, ptr %task, ptr %context, i64 %chunks)
  ret void
}

define i64 @get_limit() {
  %limit = load atomic i64, ptr @limit monotonic, align 8
  ret i64 %limit
}

define void @set_limit(i64 %threads) {
  store atomic i64 %threads, ptr @limit monotonic, align 8
  ret void
}

; Before the first use and in a forked child: no workers, no region, and locks as new.
define void @reset() {
  %mutex = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %work = call i32 @pthread_cond_init(ptr @work, ptr null)
  %over = call i32 @pthread_cond_init(ptr @over, ptr null)
  store i64 65536, ptr @state
  store i64 0, ptr @busy
  store i64 0, ptr @sleepers
  store i64 0, ptr @waiting
  store i64 0, ptr @started
  ret void
}
""")

# The CPU's names of its spin-wait hint and its floating-point control register.
_X86 = {
    "declare_cpu": "declare void @llvm.x86.sse2.pause()"
    " declare void @llvm.x86.sse.stmxcsr(ptr) declare void @llvm.x86.sse.ldmxcsr(ptr)",
    "pause": "call void @llvm.x86.sse2.pause()",
    "get_control": """  %slot = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %word = load i32, ptr %slot
  %control = zext i32 %word to i64""",
    "set_control": """  %slot = alloca i32
  %word = trunc i64 %control to i32
  store i32 %word, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)""",
}
_ARM = {
    "declare_cpu": "declare void @llvm.aarch64.hint(i32)"
    " declare i64 @llvm.aarch64.get.fpcr() declare void @llvm.aarch64.set.fpcr(i64)",
    "pause": "call void @llvm.aarch64.hint(i32 1)",
    "get_control": "  %control = call i64 @llvm.aarch64.get.fpcr()",
    "set_control": "  call void @llvm.aarch64.set.fpcr(i64 %control)",
}
_OTHER = {"declare_cpu": "", "pause": "", "get_control": "  %control = add i64 0, 0", "set_control": ""}
_CPUS = {"x86_64": _X86, "aarch64": _ARM, "arm64": _ARM}

_SET_LIMIT = ctypes.CFUNCTYPE(None, ctypes.c_int64)
_RESET = ctypes.CFUNCTYPE(None)


class _Pool(NamedTuple):
    """The compiled pool: its addresses and Python wrappers."""

    address: int
    limit_address: int
    set_limit: Callable[[int], None]
    reset: Callable[[], None]


_lock = threading.Lock()
_pool: _Pool | None = None


def num_threads() -> int:
    """The number of threads of a parallel region, including the calling thread: `settings.num_threads`.

    It is the number set last, or the environment variable TRACEGRAD_NUM_THREADS; without either, the number of CPUs
    this process may run on. Raises ValueError if the variable is not a whole number from 1 to 1024.

    >>> num_threads() >= 1
    True
    """
    return settings.num_threads or min(_usable_cpus(), MOST_THREADS)


def set_num_threads(n: SupportsIndex) -> None:
    """Set the number of threads of later parallel regions; running regions are not changed.

    Raises TypeError if `n` is not an integer, ValueError if it is not from 1 to 1024.

    >>> before = num_threads()
    >>> set_num_threads(1)
    >>> num_threads()
    1
    >>> set_num_threads(before)
    """
    settings.num_threads = operator.index(n)


def _limit_changed() -> None:
    with _lock:
        if _pool is not None:
            _pool.set_limit(num_threads())


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
                limit = num_threads()
                code = jit.load_ir(_source, "parallel_for", "cold")
                run, get, put, reset = map(code.address, ("parallel_for", "get_limit", "set_limit", "reset"))
                pool = _Pool(run, get, _SET_LIMIT(put), _RESET(reset))
                pool.reset()
                pool.set_limit(limit)
                _pool = pool
    return _pool


def _usable_cpus() -> int:
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _source(system: str = sys.platform, machine: str = platform.machine()) -> str:
    """The LLVM IR of the pool for a platform."""
    if system == "win32":
        return _RUN + _WITHOUT_POOL
    cpu = _CPUS.get(machine, _OTHER)
    return _RUN + clock_source(system) + _POOL.substitute(cpu, spin=_SPIN_NANOSECONDS) + placement_source(system)


def clock_source(system: str = sys.platform) -> str:
    """The LLVM IR of `i64 @now()`, nanoseconds of a monotonic clock; "" if the system has no such function.

    >>> "@now" in clock_source("linux"), clock_source("win32")
    (True, '')
    """
    return "" if system == "win32" else _CLOCK.replace("$clock", "6" if system == "darwin" else "1")


def _after_fork_in_child() -> None:
    _lock.release()
    if _pool is not None:
        _pool.reset()


if hasattr(os, "register_at_fork"):
    # Under the lock, so that no child inherits an incomplete pool.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork_in_child)
