"""Recycled output memory: reused when dead, never while alive, bounded, safe to the end of the process."""

from __future__ import annotations

import gc
import itertools
import random
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from leaks import leaked_blocks
from numpy._core.multiarray import get_handler_name
from paths import ROOT

from tracegrad.codegen.entry.signature import EntrySpec, OutputSpec, Word
from tracegrad.codegen.plan.arena import LINE, PAGE
from tracegrad.runtime.compile import jit
from tracegrad.runtime.execution import entry_callable
from tracegrad.runtime.execution.entry_callable import make_callable
from tracegrad.runtime.memory import allocator

LARGE = allocator.LARGE_BYTES // 8
F64 = np.dtype(np.float64)

pytestmark = pytest.mark.skipif(entry_callable.unsupported_reason() is not None, reason="no native entry point here")


@pytest.fixture(scope="module", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEGRAD_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def nothing_idle() -> Iterator[None]:
    gc.collect()
    allocator.release_idle()
    assert allocator.idle_bytes() == 0
    yield
    assert allocator.idle_bytes() <= allocator.IDLE_BYTES


_nothing: list[jit.NativeCode] = []


def maker(*shapes: tuple[int, ...]) -> Callable[[], tuple[Any, ...]]:
    """A callable that returns new arrays of these shapes, with whatever their memory held."""
    if not _nothing:
        source = "define i32 @tg_run(ptr %v, ptr %p) { ret i32 0 }"
        _nothing.append(jit.load_object(jit.compile_ir(source, "nothing")))
    spec = EntrySpec((), tuple(OutputSpec(F64, len(shape)) for shape in shapes), returns_tuple=True)
    return make_callable(_nothing[0], spec, input_shapes=[], output_shapes=shapes)


def address(x: np.ndarray[Any, Any]) -> int:
    return int(x.ctypes.data)


def test_a_large_output_is_an_ordinary_array() -> None:
    (x,) = maker((LARGE,))()
    assert get_handler_name(x) == "tracegrad"
    assert x.flags.owndata
    assert x.flags.writeable
    assert x.base is None
    assert address(x) % 64 == 0


def test_large_outputs_begin_at_different_places_of_a_page() -> None:
    """What reads one and writes another, a few lines ahead in its page, would wait for what it has written."""
    allocator.release_idle()
    arrays = maker((LARGE,), (2 * LARGE,), (LARGE + 1,), (2**20,))()
    places = [address(x) % PAGE // LINE for x in arrays]
    for a, b in itertools.combinations(places, 2):
        assert min((a - b) % 64, (b - a) % 64) >= 7
    for x in arrays:
        x[:] = 1.0  # all of it is there


def test_programs_with_small_outputs_only_use_numpys_memory() -> None:
    f = maker((LARGE - 1,), (3,))
    assert f.__self__[Word.HANDLER] == 0  # type: ignore[attr-defined]
    assert [get_handler_name(x) for x in f()] == ["default_allocator"] * 2


def test_dead_memory_is_handed_out_again() -> None:
    f = maker((1000, 200))
    (x,) = f()
    first = address(x)
    del x
    assert allocator.idle_bytes() >= 8 * 200_000
    (y,) = f()
    assert address(y) == first
    assert allocator.idle_bytes() == 0


def test_memory_of_a_view_lives_as_long_as_the_view() -> None:
    f = maker((LARGE,))
    view = f()[0][10:20]
    view[:] = 7.0
    others = [f()[0] for _ in range(3)]
    for other in others:
        other[:] = 0.0
    assert (view == 7.0).all()


def test_much_smaller_outputs_do_not_take_large_blocks() -> None:
    maker((10 * LARGE,))()
    idle = allocator.idle_bytes()
    (x,) = maker((8 * LARGE,))()
    assert allocator.idle_bytes() == idle
    del x


def test_live_outputs_never_share_memory() -> None:
    """Outputs of many sizes, each filled with its own number, dropped in random order."""
    choose = random.Random(0)
    makers = [maker((size,)) for size in (1, 100, LARGE, LARGE + 1, LARGE + 2000, 2 * LARGE, 3 * LARGE)]
    makers.append(maker((LARGE,), (5,), (2 * LARGE,)))
    alive: list[tuple[float, np.ndarray[Any, Any]]] = []
    for step in range(3000):
        for x in choose.choice(makers)():
            x[:] = step
            alive.append((step, x))
        while len(alive) > choose.randrange(1, 40):
            value, x = alive.pop(choose.randrange(len(alive)))
            assert (x == value).all()


def test_what_is_kept_is_bounded() -> None:
    sizes = [allocator.IDLE_BYTES // 8 // parts for parts in (3, 4, 5, 6, 7)]
    arrays = [maker((size,))()[0] for size in sizes for _ in range(3)]
    arrays.extend(maker((LARGE + 10_000 * k,))()[0] for k in range(2 * allocator.SLOTS))
    while arrays:
        arrays.pop()
        assert allocator.idle_bytes() <= allocator.IDLE_BYTES
    assert allocator.idle_bytes() > 0


def test_an_output_beyond_the_bound_is_freed_at_once() -> None:
    maker((allocator.IDLE_BYTES // 8 + 1,))()
    assert allocator.idle_bytes() == 0


def test_resizing_keeps_the_contents() -> None:
    (x,) = maker((LARGE,))()
    x[:] = np.arange(LARGE)
    x.resize(3 * LARGE, refcheck=False)
    assert np.array_equal(x[:LARGE], np.arange(LARGE))
    assert not x[LARGE:].any()
    x.resize(10, refcheck=False)
    assert np.array_equal(x, np.arange(10))


def test_numpys_handler_is_back_after_a_call_and_after_a_failure() -> None:
    maker((LARGE,))()
    assert get_handler_name() == "default_allocator"
    with pytest.raises(MemoryError):
        maker((LARGE,), (2**45,))()
    assert get_handler_name() == "default_allocator"
    assert get_handler_name(np.empty(LARGE)) == "default_allocator"


def test_a_failed_call_gives_back_what_it_made() -> None:
    f = maker((LARGE,), (2**45,))

    def fail() -> None:
        try:
            f()
        except MemoryError:
            return
        raise AssertionError("no MemoryError")

    assert abs(leaked_blocks(fail, runs=500)) < 50


def test_the_handler_is_not_leaked() -> None:
    f, handler = maker((LARGE,)), allocator.memory_handler()
    f()
    before = sys.getrefcount(handler)
    for _ in range(100):
        f()
    assert sys.getrefcount(handler) == before


def test_threads_may_allocate_and_free_at_once() -> None:
    f = maker((LARGE,), (2 * LARGE,))
    shared: list[Any] = []
    wrong: list[float] = []

    def work(number: int) -> None:
        for _ in range(200):
            for x in f():
                x[:] = number
                shared.append((number, x))
            value, y = shared.pop(0)
            if not (y == value).all():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_tracemalloc_sees_large_outputs() -> None:
    f = maker((20 * LARGE,))
    tracemalloc.start()
    try:
        x = f()
        during = tracemalloc.get_traced_memory()[0]
        del x
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert during > 20 * LARGE * 8
    assert after < LARGE


def test_outputs_may_outlive_everything_else() -> None:
    """Arrays in a module, in a cycle, in `builtins`: freed at the very end, without a crash."""
    program = (
        "import builtins, sys\n"
        "import numpy as np\n"
        "from tracegrad.codegen.entry.signature import EntrySpec, OutputSpec\n"
        "from tracegrad.runtime.compile import jit as native\n"
        "from tracegrad.runtime.execution import entry_callable as entry\n"
        "code = native.load_object(sys.stdin.buffer.read())\n"
        "spec = EntrySpec((), (OutputSpec(np.dtype('f8'), 1),), False)\n"
        "f = entry.make_callable(code, spec, input_shapes=[], output_shapes=[(300_000,)])\n"
        "class Late:\n"
        "    def __init__(self): self.x, self.f, self.me = f(), f, self\n"
        "    def __del__(self): self.x = self.f()\n"
        "in_module, in_cycle = f(), Late()\n"
        "builtins.in_builtins, sys.in_sys = [f(), Late()], f()\n"
        "print('done')\n"
    )
    source = "define i32 @tg_run(ptr %v, ptr %p) { ret i32 0 }"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "faulthandler", "-c", program],
        input=jit.compile_ir(source, "nothing"),
        cwd=str(ROOT),
        capture_output=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"done\n", b"")
