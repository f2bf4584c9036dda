"""The entry point: what it accepts, what it returns, and that it neither leaks nor crashes on any way out."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from leaks import leaked_blocks
from paths import ROOT

import tracegrad as tg
from tracegrad.codegen.entry.signature import EntrySpec, InputSpec, OutputSpec, Word, descriptor_block
from tracegrad.cpython import object_layout
from tracegrad.errors import ShapeError, UnsupportedError
from tracegrad.runtime.compile import jit
from tracegrad.runtime.execution import entry_callable
from tracegrad.runtime.execution.entry_callable import MISS, make_callable, make_portable, release_arenas, watching

F64 = np.dtype(np.float64)

POINTERS = """
  %in = load ptr, ptr %p
  %out.at = getelementptr ptr, ptr %p, i64 1
  %out = load ptr, ptr %out.at
  %third.at = getelementptr ptr, ptr %p, i64 2
  %third = load ptr, ptr %third.at
  %n = load i64, ptr %v
"""
# (sum of squares, doubled); values = [size]
SQUARES = f"""
define i32 @tg_run(ptr %v, ptr %p) {{
entry:
{POINTERS}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %body]
  %acc = phi double [0.0, %entry], [%acc2, %body]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %at = getelementptr double, ptr %in, i64 %i
  %x = load double, ptr %at
  %y = fmul double %x, %x
  %acc2 = fadd double %acc, %y
  %z = fadd double %x, %x
  %to = getelementptr double, ptr %third, i64 %i
  store double %z, ptr %to
  %j = add i64 %i, 1
  br label %loop
done:
  store double %acc, ptr %out
  ret i32 0
}}
"""
# Copies the input to the output by way of the arena; values = [bytes, status to return].
# Status 77 if the arena is not aligned.
COPY = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @tg_run(ptr %v, ptr %p) {{
{POINTERS}
  %status.at = getelementptr i64, ptr %v, i64 1
  %status64 = load i64, ptr %status.at
  %status = trunc i64 %status64 to i32
  call void @llvm.memcpy.p0.p0.i64(ptr %third, ptr %in, i64 %n, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %third, i64 %n, i1 false)
  %arena = ptrtoint ptr %third to i64
  %low = and i64 %arena, 63
  %aligned = icmp eq i64 %low, 0
  %result = select i1 %aligned, i32 %status, i32 77
  ret i32 %result
}}
"""
# The status tells whether the calling thread holds the GIL.
HOLDS_GIL = """
declare i32 @PyGILState_Check()
define i32 @tg_run(ptr %v, ptr %p) {
  %held = call i32 @PyGILState_Check()
  ret i32 %held
}
"""
NOTHING = "define i32 @tg_run(ptr %v, ptr %p) { ret i32 0 }"

Maker = Callable[..., Callable[..., Any]]


@pytest.fixture(scope="module", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEGRAD_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(params=[make_callable, make_portable], ids=["native", "portable"])
def make(request: pytest.FixtureRequest) -> Maker:
    """Both ways must behave the same."""
    if request.param is make_callable:
        assert entry_callable.unsupported_reason() is None
    maker: Maker = request.param
    return maker


_loaded: dict[str, jit.NativeCode] = {}


def code(source: str) -> jit.NativeCode:
    if source not in _loaded:
        _loaded[source] = jit.load_object(jit.compile_ir(source, "test"))
    return _loaded[source]


def squares(make: Maker, n: int, **options: Any) -> Callable[..., Any]:
    spec = EntrySpec((InputSpec(F64, 1),), (OutputSpec(F64, 0), OutputSpec(F64, 1)), returns_tuple=True)
    return make(code(SQUARES), spec, input_shapes=[(n,)], output_shapes=[(), (n,)], values=[n], **options)


def copier(make: Maker, like: np.ndarray[Any, Any], *, status: int = 0, **options: Any) -> Callable[..., Any]:
    spec = EntrySpec((InputSpec(like.dtype, like.ndim),), (OutputSpec(like.dtype, like.ndim),), False)
    options.setdefault("arena_bytes", like.nbytes)
    return make(
        code(COPY),
        spec,
        input_shapes=[like.shape],
        output_shapes=[like.shape],
        values=[like.nbytes, status],
        **options,
    )


needs_linux = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="asks Linux for the memory in use")


def rss() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


# What comes back.


def test_a_call_returns_fresh_results(make: Maker) -> None:
    f = squares(make, 10)
    x = np.arange(10.0)
    total, doubled = f(x)
    assert type(total) is np.float64
    assert total == 285.0
    assert type(doubled) is np.ndarray
    assert np.array_equal(doubled, 2 * x)
    assert doubled.base is None
    assert doubled.flags.owndata
    assert doubled.flags.writeable
    assert doubled.flags.c_contiguous
    other = f(x)[1]
    assert not np.shares_memory(doubled, other)


def test_the_builtin_is_one_and_has_its_name() -> None:
    f = squares(make_callable, 10, name="loss")
    assert type(f).__name__ == "builtin_function_or_method"
    assert f.__name__ == "loss"
    with pytest.raises(TypeError, match="keyword"):
        f(x=np.arange(10.0))


def test_a_builtin_goes_after_what_it_keeps_alive() -> None:
    # As in a cycle of objects, whose parts are emptied one by one.
    results = [squares(make_callable, 10) for _ in range(100)]
    for builtin in results:
        vars(builtin.__self__).clear()  # type: ignore[attr-defined]
    junk = [(ctypes.c_char * 32)(*[255] * 32) for _ in range(10_000)]
    results.clear()
    del builtin
    gc.collect()
    assert len(junk) == 10_000


@pytest.mark.parametrize("shape", [(), (1,), (7,), (0,), (3, 0, 2), (2, 3), (2, 3, 4, 1, 2)])
@pytest.mark.parametrize("kind", "?bhilqBHILQefdgFD")
def test_every_dtype_and_rank_comes_back_as_it_went_in(make: Maker, shape: tuple[int, ...], kind: str) -> None:
    x = np.random.default_rng(0).integers(0, 2, shape).astype(np.dtype(kind))
    y = copier(make, x)(x)
    assert type(y) is (np.ndarray if shape else x.dtype.type)
    assert y.dtype == x.dtype
    assert y.shape == shape
    assert np.array_equal(x, y)


def test_a_python_float_is_passed_by_value(make: Maker) -> None:
    spec = EntrySpec((InputSpec(F64, 0, "float"),), (OutputSpec(F64, 0),), returns_tuple=False)
    f = make(code(COPY), spec, input_shapes=[()], output_shapes=[()], values=[8, 0], arena_bytes=8)
    for x in (1.5, -0.0, float("inf"), 5e-324):
        assert f(x).hex() == x.hex()
    assert np.isnan(f(float("nan")))
    for other in (1, True, np.float64(1.5), np.array(1.5), "1.5", None):
        assert f(other) is MISS


def test_no_inputs_and_no_outputs(make: Maker) -> None:
    nothing = make(code(NOTHING), EntrySpec((), (), True), input_shapes=[], output_shapes=[])
    assert nothing() == ()
    assert nothing(1) is MISS
    one = make(code(NOTHING), EntrySpec((), (OutputSpec(F64, 1),), True), input_shapes=[], output_shapes=[(0,)])
    (empty,) = one()
    assert empty.shape == (0,)


def test_many_arguments_and_results(make: Maker) -> None:
    count = 40
    spec = EntrySpec(
        tuple(InputSpec(F64, k % 4) for k in range(count)),
        tuple(OutputSpec(F64, k % 3) for k in range(count)),
        returns_tuple=True,
    )
    shapes_in = [(2, 3, 4)[: k % 4] for k in range(count)]
    shapes_out = [(5, 6)[: k % 3] for k in range(count)]
    f = make(code(NOTHING), spec, input_shapes=shapes_in, output_shapes=shapes_out)
    arguments = [np.zeros(shape) for shape in shapes_in]
    assert [np.shape(y) for y in f(*arguments)] == shapes_out
    for k in range(count):
        wrong = [*arguments[:k], np.zeros((7, 7, 7, 7)), *arguments[k + 1 :]]
        assert f(*wrong) is MISS, f"argument {k}"


# What is refused.


class Subclass(np.ndarray):  # type: ignore[type-arg]
    pass


def misfits() -> dict[str, tuple[Any, ...]]:
    x = np.arange(12.0).reshape(3, 4)
    bytes_of_one_more = np.zeros(x.nbytes + 1, np.uint8)[1:]
    return {
        "too few": (),
        "too many": (x, x),
        "a list": (x.tolist(),),
        "a scalar": (1.0,),
        "none": (None,),
        "a type": (np.ndarray,),
        "other dtype": (x.astype(np.float32),),
        "other dtype, same size": (x.astype(np.int64),),
        "byte-swapped": (x.astype(">f8"),),
        "fewer dimensions": (x.ravel(),),
        "more dimensions": (x[None],),
        "no dimensions": (np.array(1.0),),
        "first size": (np.zeros((4, 4)),),
        "last size": (np.zeros((3, 5)),),
        "transposed order": (np.asfortranarray(x),),
        "strided": (np.zeros((3, 8))[:, ::2],),
        "reversed": (x[::-1],),
        "misaligned": (bytes_of_one_more.view(F64).reshape(3, 4),),
        "broadcast": (np.broadcast_to(1.0, (3, 4)),),
        "subclass": (x.view(Subclass),),
        "masked": (np.ma.masked_array(x),),
        "object dtype": (x.astype(object),),
        "text": (x.astype("U8"),),
    }


@pytest.mark.parametrize("label", misfits())
def test_what_does_not_fit_is_a_miss(make: Maker, label: str) -> None:
    x = np.arange(12.0).reshape(3, 4)
    f = copier(make, x)
    arguments = misfits()[label]
    assert f(*arguments) is MISS
    assert np.array_equal(f(x), x), "a miss must not disturb the next call"


def test_read_only_and_sliced_inputs_fit(make: Maker) -> None:
    x = np.arange(24.0).reshape(6, 4)
    frozen = x[:3].copy()
    frozen.flags.writeable = False
    f = copier(make, frozen)
    assert np.array_equal(f(frozen), frozen)
    assert np.array_equal(f(x[3:]), x[3:])
    assert f(frozen).flags.writeable


def test_a_status_is_a_miss(make: Maker) -> None:
    x = np.arange(5.0)
    assert copier(make, x, status=1)(x) is MISS
    assert copier(make, np.array(1.0), status=-5)(np.array(1.0)) is MISS


def test_specs_and_shapes_that_make_no_sense_are_refused(make: Maker) -> None:
    for dtype in ("O", "U3", "M8[s]", ">f8", "V4", "G", [("a", "f8")]):
        with pytest.raises(UnsupportedError):
            InputSpec(np.dtype(dtype), 1)
        with pytest.raises(UnsupportedError):
            OutputSpec(np.dtype(dtype), 1)
    with pytest.raises(UnsupportedError, match="float64"):
        InputSpec(np.dtype(np.float32), 0, "float")
    with pytest.raises(UnsupportedError, match="tuple"):
        EntrySpec((), (), returns_tuple=False)
    spec = EntrySpec((InputSpec(F64, 1),), (OutputSpec(F64, 1),), returns_tuple=False)
    with pytest.raises(ShapeError):
        make(code(NOTHING), spec, input_shapes=[(1, 2)], output_shapes=[(1,)])
    with pytest.raises(ShapeError):
        make(code(NOTHING), spec, input_shapes=[], output_shapes=[(1,)])


# The arena.


@pytest.mark.parametrize("count", [1, 512, 513, 100_000])
def test_the_arena_is_aligned_and_large_enough(make: Maker, count: int) -> None:
    """512 float64 are the largest arena on the stack."""
    x = np.arange(float(count))
    f = copier(make, x)
    for _ in range(3):
        assert np.array_equal(f(x), x)


@needs_linux
def test_a_large_arena_is_kept_between_calls_and_freed_with_the_callable() -> None:
    release_arenas()  # or it would have one that was there
    x = np.ones(4_000_000)
    f = copier(make_callable, x)
    assert arena_of(f) == 0
    f(x)
    arena = arena_of(f)
    assert arena != 0
    f(x)
    assert arena_of(f) == arena
    gc.collect()
    before = rss()
    del f
    gc.collect()
    assert before - rss() > 20_000_000


def test_small_arenas_stay_on_the_stack() -> None:
    x = np.ones(512)
    f = copier(make_callable, x)
    f(x)
    assert arena_of(f) == 0


def arena_of(f: Any) -> int:
    """The address of the arena that a callable keeps."""
    return ctypes.c_int64.from_address(int(f.__self__[Word.ARENA])).value


def test_the_callables_of_one_program_have_one_arena() -> None:
    x = np.ones(400_000)
    f = copier(make_callable, x)
    f(x)
    g = watching(f, [], [], None)
    arena = arena_of(f)
    assert arena == arena_of(g) != 0
    g(x)
    assert arena_of(f) == arena
    del f
    gc.collect()
    assert np.array_equal(g(x), x)


@needs_linux
def test_arenas_are_given_back_on_request_and_taken_again() -> None:
    x = np.ones(4_000_000)
    f = copier(make_callable, x)
    f(x)
    before = rss()
    release_arenas()
    assert before - rss() > 20_000_000
    assert arena_of(f) == 0
    assert np.array_equal(f(x), x)
    assert arena_of(f) != 0


def test_a_new_program_takes_over_an_arena_of_its_size() -> None:
    release_arenas()
    x = np.ones(400_000)
    f = copier(make_callable, x)
    f(x)
    arena = arena_of(f)
    larger, smaller = copier(make_callable, np.ones(401_000)), copier(make_callable, np.ones(300_000))
    assert (arena_of(f), arena_of(larger), arena_of(smaller)) == (arena, 0, 0)
    g = copier(make_callable, x)
    assert (arena_of(f), arena_of(g)) == (0, arena)
    assert np.array_equal(g(x), x)
    assert np.array_equal(f(x), x)
    assert arena_of(f) not in (0, arena)
    assert arena_of(g) == arena


@needs_linux
def test_a_larger_program_takes_over_a_smaller_arena_that_has_room_for_it() -> None:
    release_arenas()
    x, y, z = (np.ones(n * 2**17) for n in (8, 14, 20))  # of which some are only in memory when they are touched
    f = copier(make_callable, x)
    f(x)
    saved, before = arena_of(f), rss()
    g = copier(make_callable, y)
    assert (arena_of(f), arena_of(g)) == (0, saved)
    assert np.array_equal(g(y), y)
    assert rss() - before < 2 * y.nbytes - x.nbytes + 2**22  # the result, and what is new of the arena
    assert arena_of(copier(make_callable, z)) == 0  # which has no room in that
    h = copier(make_callable, y)
    assert (arena_of(g), arena_of(h)) == (0, saved)
    assert np.array_equal(h(y), y)
    assert np.array_equal(f(x), x)
    assert arena_of(f) not in (0, saved)


def test_many_programs_do_not_keep_more_than_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    release_arenas()
    arrays = [np.ones(int(140_000 * 2.1**k)) for k in range(6)]  # none fits into the arena of another
    monkeypatch.setattr(entry_callable, "_IDLE_ARENAS", sum(x.nbytes for x in arrays[3:]) + 5000)
    results = []
    for x in arrays:
        results.append(copier(make_callable, x))
        assert np.array_equal(results[-1](x), x)
    saved = [bool(arena_of(f)) for f in results]
    assert saved == [False, False, False, True, True, True]  # the oldest first
    assert all(np.array_equal(f(x), x) for f, x in zip(results, arrays))


@pytest.mark.parametrize("release_gil", [False, True])
def test_many_threads_may_call_one_callable(make: Maker, release_gil: bool) -> None:
    """Large arenas, so that threads contend for the one that is kept."""
    n = 60_000
    f = copier(make, np.zeros(n), release_gil=release_gil)
    errors: list[object] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal(n)
        for _ in range(60):
            y = f(x)
            if y is MISS or not np.array_equal(x, y):
                errors.append(y)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.parametrize(("release_gil", "answer"), [(False, MISS), (True, ())])
def test_the_gil_is_released_on_request_only(make: Maker, release_gil: bool, answer: object) -> None:
    spec = EntrySpec((), (), returns_tuple=True)
    f = make(code(HOLDS_GIL), spec, input_shapes=[], output_shapes=[], release_gil=release_gil)
    assert f() == answer


# Memory.


def test_too_large_an_output_is_a_memory_error(make: Maker) -> None:
    spec = EntrySpec((), (OutputSpec(F64, 1), OutputSpec(F64, 1)), returns_tuple=True)
    f = make(code(NOTHING), spec, input_shapes=[], output_shapes=[(10,), (2**45,)])
    for _ in range(3):
        with pytest.raises(MemoryError):
            f()


def test_too_large_an_arena_is_a_memory_error(make: Maker) -> None:
    spec = EntrySpec((), (OutputSpec(F64, 1),), returns_tuple=True)
    f = make(code(NOTHING), spec, input_shapes=[], output_shapes=[(10,)], arena_bytes=2**52)
    for _ in range(3):
        with pytest.raises(MemoryError):
            f()


def refusing(f: Callable[[], object]) -> Callable[[], None]:
    def action() -> None:
        try:
            f()
        except MemoryError:
            return
        raise AssertionError("no MemoryError")

    return action


def test_no_way_out_leaks_objects() -> None:
    x, wrong = np.arange(40.0), np.arange(41.0)
    fine, failing = squares(make_callable, 40), copier(make_callable, x, status=3)
    two = EntrySpec((), (OutputSpec(F64, 1), OutputSpec(F64, 1)), returns_tuple=True)
    huge = make_callable(code(NOTHING), two, input_shapes=[], output_shapes=[(10,), (2**45,)])
    arena = make_callable(code(NOTHING), two, input_shapes=[], output_shapes=[(10,), (9,)], arena_bytes=2**52)
    actions: dict[str, Callable[[], object]] = {
        "success": lambda: fine(x),
        "miss": lambda: fine(wrong),
        "miss of type": lambda: fine(None),
        "status": lambda: failing(x),
        "no memory for an output": refusing(huge),
        "no memory for the arena": refusing(arena),
    }
    for label, action in actions.items():
        assert abs(leaked_blocks(action)) < 50, label


def counts_in(pairs: list[Any]) -> set[int]:
    return {sys.getrefcount(x) for pair in pairs for x in pair}


def test_reference_counts_of_what_calls_touch_stay() -> None:
    x = np.arange(40.0)
    value = float("2.25")
    fine, failing = squares(make_callable, 40), copier(make_callable, x, status=3)
    watched: list[object] = [x, MISS, np.ndarray, F64, np.float64, value, fine]
    before = [sys.getrefcount(thing) for thing in watched]
    results = [fine(x) for _ in range(500)]
    assert counts_in(results) == counts_in([(object(), object())])  # nothing but its tuple refers to a result
    del results
    for _ in range(500):
        fine(x[:3])
        fine(value)
        failing(x)
    after = [sys.getrefcount(thing) for thing in watched]
    assert [b - a for a, b in zip(before, after, strict=True)] == [0] * len(watched)


@needs_linux
def test_repeated_calls_and_repeated_making_hold_no_memory() -> None:
    x = np.ones(200_000)
    f = copier(make_callable, x)
    for _ in range(20):
        f(x)
    gc.collect()
    before = rss()
    for _ in range(300):
        f(x)
    assert rss() - before < 8_000_000
    for _ in range(100):
        copier(make_callable, x)(x)  # each with an arena of 1.6 MB
    gc.collect()
    assert rss() - before < 16_000_000


def test_a_dropped_callable_lets_its_code_go() -> None:
    own = jit.load_object(jit.compile_ir(NOTHING, "own"))
    gone = weakref.ref(own)
    f = make_callable(own, EntrySpec((), (), True), input_shapes=[], output_shapes=[])
    del own
    gc.collect()
    assert f() == ()
    assert gone() is not None
    del f
    gc.collect()
    assert gone() is None


# The block, the build, the process.


def test_shapes_share_one_machine_code(make: Maker) -> None:
    for n in (1, 3, 10, 1000):
        x = np.arange(float(n))
        total, doubled = squares(make, n)(x)
        assert total == (x * x).sum()
        assert np.array_equal(doubled, x + x)


def test_the_block_is_laid_out_as_documented() -> None:
    spec = EntrySpec(
        (InputSpec(F64, 2), InputSpec(F64, 0, "float")),
        (OutputSpec(np.dtype(np.int8), 1),),
        returns_tuple=True,
    )
    words = descriptor_block(spec, [(3, 4), ()], [(5,)], [7, -8], arena_bytes=65, release_gil=True)
    assert words[: Word.HEADER].tolist() == [3, 0, words.ctypes.data + 8 * (len(words) - 2), 2, 1, 128, *[0] * 8]
    assert words[Word.HEADER :].tolist() == [
        *(id(np.ndarray), words[Word.HEADER + 1], 2, 3, 4),
        *(id(float), 0, 0),
        *(np.dtype(np.int8).num, id(np.dtype(np.int8)), 1, 5),
        *(7, -8),
    ]
    told = words[Word.HEADER + 1].tobytes()
    assert (told[:3], int.from_bytes(told[4:], sys.byteorder)) == (b"fd=", F64.num)


def test_another_array_layout_means_the_portable_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(object_layout.OFFSETS, "ND", 28)
    entry_callable.unsupported_reason.cache_clear()
    try:
        assert "layout of NumPy" in str(entry_callable.unsupported_reason())
        f = squares(make_callable, 10)
        assert type(f).__name__ == "function"
        assert f(np.arange(10.0))[0] == 285.0
    finally:
        monkeypatch.undo()
        entry_callable.unsupported_reason.cache_clear()
    assert entry_callable.unsupported_reason() is None


def test_the_entry_point_is_kept_on_disk(tmp_path: Any) -> None:
    root = str(ROOT)
    program = (
        "import sys\n"
        "from tracegrad.codegen.entry.signature import EntrySpec\n"
        "from tracegrad.runtime.compile import jit as native\n"
        "from tracegrad.runtime.execution import entry_callable as entry\n"
        "compile_ir, made = native.compile_ir, []\n"
        "native.compile_ir = lambda *args: made.append(args) or compile_ir(*args)\n"
        "code = native.load_object(sys.stdin.buffer.read())\n"
        "f = entry.make_callable(code, EntrySpec((), (), True), input_shapes=[], output_shapes=[])\n"
        "print(f(), type(f).__name__, len(made) > 0)\n"
    )
    environment = {**os.environ, "TRACEGRAD_CACHE_DIR": str(tmp_path / "cache")}
    outputs = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            input=jit.compile_ir(NOTHING, "nothing"),
            env=environment,
            cwd=root,
            capture_output=True,
            check=True,
        ).stdout.decode()
        for _ in range(2)
    ]
    assert outputs == [f"() builtin_function_or_method {compiled}\n" for compiled in (True, False)]


def test_pointers_and_values_arrive_as_documented() -> None:
    """tg_run seen from Python: pointers of inputs, outputs, arena; values beside the block's other words."""
    seen: list[tuple[Any, ...]] = []

    @ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_size_t))
    def run(values: Any, pointers: Any) -> int:
        seen.append((values[0], values[1], pointers[0], pointers[2] % 64))
        return 0

    jit.define_symbol("tg_test_run", ctypes.cast(run, ctypes.c_void_p).value or 0)
    forward = jit.load_object(
        jit.compile_ir(
            "declare i32 @tg_test_run(ptr, ptr)\n"
            "define i32 @tg_run(ptr %v, ptr %p) { %r = call i32 @tg_test_run(ptr %v, ptr %p)\n ret i32 %r }",
            "forward",
        )
    )
    x = np.arange(3.0)
    spec = EntrySpec((InputSpec(F64, 1),), (OutputSpec(F64, 1),), returns_tuple=False)
    f = make_callable(forward, spec, input_shapes=[(3,)], output_shapes=[(2,)], values=[11, -12])
    assert f(x).shape == (2,)
    assert seen == [(11, -12, x.ctypes.data, 0)]


def test_a_pointer_that_changes_makes_a_call_miss():
    value = 1.5

    def outer():
        k = 2.0

        def f(x):
            return x * k * value

        def change(new):
            nonlocal k
            k = new

        return f, change

    f, change = outer()
    g = tg.trace(f)
    x = np.ones(3)
    for k in (2.0, 3.0, 2.0, np.full(3, 4.0)):
        change(k)
        np.testing.assert_array_equal(g(x), x * k * 1.5)
        np.testing.assert_array_equal(g(x), x * k * 1.5)


def test_an_equal_value_that_is_another_object_is_no_other_path():
    k = float("2.5")

    @tg.trace
    def f(x):
        return x * k

    x = np.ones(3)
    for _ in range(3):
        k = float("2.5")
        np.testing.assert_array_equal(f(x), x * 2.5)
    assert f.cache_info()[:2] == (1, 0)


def test_code_that_is_replaced_makes_a_call_miss():
    def f(x):
        return x + 1

    def other(x):
        return x - 1

    g = tg.trace(f)
    x = np.ones(3)
    for code in (f.__code__, other.__code__, f.__code__):
        f.__code__ = code
        for _ in range(2):
            np.testing.assert_array_equal(g(x), f(x))
