"""The native thread pool: every chunk once, whoever calls, forks or exits; the switches of the thread count."""

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import llvmlite.binding as llvm
import numpy as np
import pytest

from tracegrad.platform.threads import has_posix_threads
from tracegrad.runtime.compile import jit
from tracegrad.runtime.threads import pool
from tracegrad.settings import settings

pytestmark = pytest.mark.usefixtures("optimized")

TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)

# `count` adds 1 to the 64-bit word `context[chunk]`; `uneven` first works the longer the higher the chunk.
COUNTING_TASKS = """
define void @count(ptr %context, i64 %chunk) {
  %word = getelementptr i64, ptr %context, i64 %chunk
  %old = atomicrmw add ptr %word, i64 1 monotonic
  ret void
}
define void @uneven(ptr %context, i64 %chunk) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %j = add i64 %i, 1
  fence seq_cst
  %some = mul i64 %chunk, 20
  %more = icmp slt i64 %j, %some
  br i1 %more, label %loop, label %done
done:
  call void @count(ptr %context, i64 %chunk)
  ret void
}
"""

X86_CONTROL = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define i32 @get() {
  %slot = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %word = load i32, ptr %slot
  ret i32 %word
}
define void @set(i32 %word) {
  %slot = alloca i32
  store i32 %word, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  ret void
}
"""

needs_posix = pytest.mark.skipif(not has_posix_threads(), reason="the pool needs POSIX threads")


@pytest.fixture(scope="module")
def counting() -> dict[str, int]:
    return dict(zip(("count", "uneven"), jit.compile_forever(COUNTING_TASKS, "count", "uneven")))


@pytest.fixture(autouse=True)
def restored_thread_count(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    monkeypatch.undo()
    settings.reload()


def parallel_for(task: int, context: int | None, chunks: int) -> None:
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    prototype(pool.parallel_for_address())(task, context, chunks)


def parallel_for_python(function, chunks: int) -> None:
    """`parallel_for` with a Python task; the first exception of a chunk is raised here."""
    errors = []

    def task(context, chunk):
        try:
            function(chunk)
        except Exception as error:
            errors.append(error)

    callback = TASK(task)
    parallel_for(ctypes.cast(callback, ctypes.c_void_p).value, None, chunks)
    if errors:
        raise errors[0]


def run_python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False
    )


def assert_succeeds(script: str, **environment: str) -> None:
    result = run_python(script, **environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "fine\n"
    assert result.stderr == ""


# A pool as a script sees it: `go(n)` runs n chunks and returns whether each ran exactly once.
SCRIPT_HEAD = """
import ctypes, os, threading
from tracegrad.runtime.compile import jit as native
from tracegrad.runtime.threads import pool as threads
from tracegrad.settings import settings
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
FOR = ctypes.CFUNCTYPE(None, TASK, ctypes.c_void_p, ctypes.c_int64)
def go(n, work=None):
    seen, names = [], set()
    def task(context, chunk):
        seen.append(chunk); names.add(threading.get_ident())
        if work: work()
    FOR(threads.parallel_for_address())(TASK(task), None, n)
    return sorted(seen) == list(range(n)) and names
"""


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("task", ["count", "uneven"])
def test_every_chunk_runs_exactly_once(counting, task, count):
    pool.set_num_threads(count)
    for chunks in [0, 1, 2, 3, 4, 5, 7, 16, 63, 64, 65, 1000]:
        for _ in range(20):
            ran = np.zeros(chunks + 1, np.int64)
            parallel_for(counting[task], ran.ctypes.data, chunks)
            assert (ran[:chunks] == 1).all()
            assert ran[chunks] == 0


def test_a_negative_number_of_chunks_runs_nothing(counting):
    ran = np.zeros(4, np.int64)
    parallel_for(counting["count"], ran.ctypes.data, -3)
    assert not ran.any()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_concurrent_callers_each_get_every_chunk_exactly_once(counting, count):
    pool.set_num_threads(count)
    failures = []

    def caller(seed: int) -> None:
        for repeat in range(300):
            chunks = 1 + (seed * 31 + repeat) % 40
            ran = np.zeros(chunks, np.int64)
            parallel_for(counting["uneven"], ran.ctypes.data, chunks)
            if not (ran == 1).all():
                failures.append((seed, repeat, ran))

    callers = [threading.Thread(target=caller, args=(seed,)) for seed in range(5)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in callers)
    assert not failures


@needs_posix
@pytest.mark.parametrize("count", [2, 4])
def test_a_region_runs_on_as_many_threads_as_were_set(count):
    pool.set_num_threads(count)
    barrier = threading.Barrier(count, timeout=20)
    for _ in range(3):
        idents = []

        def meet(chunk: int, idents: list[int] = idents) -> None:
            barrier.wait()
            idents.append(threading.get_ident())

        parallel_for_python(meet, count)
        assert len(set(idents)) == count
        assert threading.get_ident() in idents


@needs_posix
def test_a_smaller_thread_count_keeps_the_other_workers_out(counting):
    pool.set_num_threads(4)
    barrier = threading.Barrier(4, timeout=20)
    parallel_for_python(lambda chunk: barrier.wait(), 4)
    pool.set_num_threads(2)
    active, most, lock, enough = 0, 0, threading.Lock(), threading.Event()

    def task(chunk: int) -> None:
        nonlocal active, most
        with lock:
            active += 1
            most = max(most, active)
        enough.wait(0.01)
        with lock:
            active -= 1

    parallel_for_python(task, 12)
    assert most <= 2


def test_one_thread_runs_the_chunks_in_order_on_the_caller():
    pool.set_num_threads(1)
    seen = []
    parallel_for_python(lambda chunk: seen.append((chunk, threading.get_ident())), 50)
    assert seen == [(chunk, threading.get_ident()) for chunk in range(50)]


def test_a_region_within_a_task_runs_in_order_on_the_thread_of_the_task():
    pool.set_num_threads(4)
    seen: dict[int, list[tuple[int, int]]] = {}

    def outer(chunk: int) -> None:
        inner = seen.setdefault(chunk, [])
        parallel_for_python(lambda i: inner.append((i, threading.get_ident())), 9)
        assert inner == [(i, threading.get_ident()) for i in range(9)]

    parallel_for_python(outer, 8)
    assert sorted(seen) == list(range(8))


@needs_posix
def test_workers_that_sleep_wake_up():
    pool.set_num_threads(2)
    for _ in range(5):
        barrier = threading.Barrier(2, timeout=20)
        parallel_for_python(lambda chunk, barrier=barrier: barrier.wait(), 2)
        threading.Event().wait(0.005)


@needs_posix
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs sets of CPUs")
@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: [])(0)) < 2, reason="needs two CPUs")
def test_a_worker_that_wakes_on_the_cpu_of_its_caller_is_kept_off_it():
    script = """
import time
one, other, *_ = os.sched_getaffinity(0)
before = {int(x) for x in os.listdir("/proc/self/task")}
threads.set_num_threads(2)
os.sched_setaffinity(0, {one})
assert go(20)  # the worker may run where its caller may
(worker,) = {int(x) for x in os.listdir("/proc/self/task")} - before
assert os.sched_getaffinity(worker) == {one}
for _ in range(100):
    os.sched_setaffinity(0, {one})
    time.sleep(0.001)
    os.sched_setaffinity(0, {one, other})
    assert go(20)
    if os.sched_getaffinity(worker) != {one}:
        break
assert os.sched_getaffinity(worker) == {other}
assert os.sched_getaffinity(0) == {one, other}
os.sched_setaffinity(0, {other})
assert go(20) and os.sched_getaffinity(worker) == {other}  # two threads and one CPU
print("fine")
"""
    assert_succeeds(SCRIPT_HEAD + script)


def test_the_caller_sleeps_and_wakes_when_a_worker_takes_long():
    pool.set_num_threads(2)
    caller, both, done = threading.get_ident(), threading.Barrier(2, timeout=20), []

    def task(chunk: int) -> None:
        both.wait()
        if threading.get_ident() != caller:
            threading.Event().wait(0.05)
            done.append(chunk)

    parallel_for_python(task, 2)
    assert len(done) == 1


@needs_posix
@pytest.mark.skipif(not llvm.get_process_triple().startswith("x86_64"), reason="reads MXCSR")
def test_tasks_run_with_the_floating_point_control_of_the_caller():
    get_address, set_address = jit.compile_forever(X86_CONTROL, "get", "set")
    get = ctypes.CFUNCTYPE(ctypes.c_uint32)(get_address)
    put = ctypes.CFUNCTYPE(None, ctypes.c_uint32)(set_address)
    pool.set_num_threads(2)
    default = get()

    def controls() -> list[int]:
        barrier, result = threading.Barrier(2, timeout=20), []

        def task(chunk: int) -> None:
            result.append(get() & 0xFFC0)
            barrier.wait()

        parallel_for_python(task, 2)
        return result

    assert controls() == [default & 0xFFC0] * 2
    put(default | 0x8040)
    try:
        flushing = controls()
        assert get() & 0xFFC0 == flushing[0]
    finally:
        put(default)
    assert flushing == [default & 0xFFC0 | 0x8040] * 2
    assert controls() == [default & 0xFFC0] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_pool_of_its_own():
    script = """
threads.set_num_threads(3)
assert go(50)
for _ in range(3):
    child = os.fork()
    if child == 0:
        barrier = threading.Barrier(3)
        ok = go(3, lambda: barrier.wait(20)) and go(50)
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if go(50) else 1)
        ok = ok and os.waitpid(grandchild, 0)[1] == 0
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
barrier = threading.Barrier(3)
assert go(3, lambda: barrier.wait(20))
print("fine")
"""
    assert_succeeds(SCRIPT_HEAD + script)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_another_thread_runs_a_region_leaves_the_child_usable():
    # Native tasks: the threads of a region that run Python are more than a forked interpreter can answer for.
    script = """
meet, idle = native.compile_forever('''
declare i32 @sched_yield()
define void @meet(ptr %seen, i64 %chunk) {
  %mine = atomicrmw add ptr %seen, i64 1 seq_cst
  br label %look
look:
  %turn = phi i64 [0, %0], [%turns, %more]
  %turns = add i64 %turn, 1
  %yielded = call i32 @sched_yield()
  %count = load atomic i64, ptr %seen seq_cst, align 8
  %both = icmp sge i64 %count, 2
  %late = icmp sgt i64 %turns, 10000000
  br i1 %both, label %done, label %more
more:
  br i1 %late, label %alone, label %look
alone:
  %verdict = getelementptr i64, ptr %seen, i64 1
  store i64 1, ptr %verdict
  ret void
done:
  ret void
}
define void @idle(ptr %seen, i64 %chunk) { ret void }''', "meet", "idle")
run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(threads.parallel_for_address())
threads.set_num_threads(2)
stop = threading.Event()
def keep_busy():
    while not stop.is_set():
        run(idle, None, 20)
other = threading.Thread(target=keep_busy)
other.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        seen = (ctypes.c_int64 * 2)()
        run(meet, seen, 2)  # each chunk waits for the other: two threads must run them
        os._exit(seen[1])
    assert os.waitpid(child, 0)[1] == 0
stop.set()
other.join()
print("fine")
"""
    assert_succeeds(SCRIPT_HEAD + script)


@pytest.mark.parametrize("idle", ["", "import time; time.sleep(0.01)"])
def test_the_process_exits_cleanly_with_workers_that_spin_or_sleep(idle):
    for _ in range(3):
        assert_succeeds(SCRIPT_HEAD + f"threads.set_num_threads(4)\nassert go(40)\nprint('fine')\n{idle}\n")


def test_the_process_exits_cleanly_while_a_daemon_thread_runs_regions():
    """The tasks are machine code: CPython itself may crash where a thread of C calls Python while it ends."""
    script = f"""
import numpy
(task,) = native.compile_forever({COUNTING_TASKS!r}, "count")
run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(threads.parallel_for_address())
counts = (ctypes.c_int64 * 10)()
threads.set_num_threads(2)
started = threading.Event()
def keep_busy():
    while True:
        run(task, ctypes.addressof(counts), 10)
        started.set()
threading.Thread(target=keep_busy, daemon=True).start()
started.wait()
assert min(counts) > 0
print("fine")
"""
    assert_succeeds(SCRIPT_HEAD + script)


def test_importing_the_module_compiles_and_starts_nothing():
    script = """
import sys
from tracegrad.runtime.compile import jit as native
from tracegrad.runtime.threads import pool as threads
assert threads._pool is None
assert "numba" not in sys.modules
print("fine")
"""
    assert_succeeds(script)


def test_the_environment_variable_sets_the_thread_count():
    assert_succeeds(SCRIPT_HEAD + "assert settings.thread_count() == 3\nprint('fine')", TRACEGRAD_NUM_THREADS="3")
    assert_succeeds(SCRIPT_HEAD + "assert len(go(9)) == 1\nprint('fine')", TRACEGRAD_NUM_THREADS="1")


def test_without_the_variable_there_is_one_thread_a_usable_cpu(monkeypatch):
    monkeypatch.delenv("TRACEGRAD_NUM_THREADS", raising=False)
    settings.reload()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert settings.thread_count() == usable


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "1025", "9" * 5000, "²"])
def test_a_bad_value_of_the_variable_is_an_error_that_names_it(monkeypatch, text):
    monkeypatch.setenv("TRACEGRAD_NUM_THREADS", text)
    vars(settings).clear()
    with pytest.raises(ValueError, match=r"TRACEGRAD_NUM_THREADS=.*it must be a whole number from 1 to 1024"):
        settings.thread_count()


@pytest.mark.parametrize("n", [0, -1, 1025])
def test_a_thread_count_out_of_range_is_an_error(n):
    with pytest.raises(ValueError, match="from 1 to 1024"):
        pool.set_num_threads(n)


def test_a_thread_count_that_is_not_an_integer_is_an_error():
    with pytest.raises(TypeError):
        pool.set_num_threads(1.5)


@pytest.mark.parametrize(
    ("system", "machine"),
    [
        ("linux", "x86_64"),
        ("linux", "aarch64"),
        ("linux", "riscv64"),
        ("darwin", "aarch64"),
        ("win32", "x86_64"),
    ],
)
def test_the_source_is_valid_for_other_platforms(system, machine, monkeypatch):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(pool, "instruction_set", lambda: machine)
    module = llvm.parse_assembly(pool._source())
    module.verify()
    assert not module.get_function("parallel_for").is_declaration


def test_the_setting_is_the_thread_count(counting):
    pool.parallel_for_address()
    settings.num_threads = 1
    assert settings.thread_count() == 1
    seen = set()
    parallel_for_python(lambda chunk: seen.add(threading.get_ident()), 50)
    assert seen == {threading.get_ident()}
    with settings.override(num_threads=3):
        assert settings.thread_count() == 3
    assert settings.thread_count() == 1
