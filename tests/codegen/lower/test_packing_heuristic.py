"""Arguments whose elements lie apart in memory are read where they are: with NumPy's results, nothing that is not
theirs, and few programs."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import tracegrad as tg
from tracegrad import llvmir as ir
from tracegrad.codegen.kernels.scalar_kernel import kernel_function
from tracegrad.runtime.dispatch import specializations
from tracegrad.runtime.execution import strided_inputs
from tracegrad.runtime.execution.program import Program
from tracegrad.target.cpu import features

WHOLE = (12, 10, 24)
# By name, views of an array of that shape; and whether programs read them where they are.
VIEWS = {
    "every other": (lambda w: w.reshape(-1)[::2], True),
    "every third, from the second on": (lambda w: w.reshape(-1)[1::3], True),
    "every 50th": (lambda w: w.reshape(-1)[7::50], True),
    "backwards": (lambda w: w.reshape(-1)[::-1], True),
    "every other backwards": (lambda w: w.reshape(-1)[::-2], True),
    "a column": (lambda w: w.reshape(-1, 8)[:, 3], True),
    "a column, backwards": (lambda w: w.reshape(-1, 8)[::-1, 7], True),
    "some columns": (lambda w: w.reshape(120, 24)[:, :5], True),
    "the last columns": (lambda w: w.reshape(120, 24)[:, 11:], True),
    "every other column": (lambda w: w.reshape(120, 24)[:, ::2], True),
    "every other of an odd number of columns": (lambda w: w.reshape(-1)[:2835].reshape(135, 21)[:, ::2], True),
    "every third row and column": (lambda w: w.reshape(120, 24)[1::3, 2::3], True),
    "columns backwards": (lambda w: w.reshape(120, 24)[:, ::-1], True),
    "a corner, transposed": (lambda w: w.reshape(120, 24)[:70, :9].T, True),
    "transposed": (lambda w: w.reshape(120, 24).T, True),
    "a block": (lambda w: w[2:, 3:7, ::2], True),
    "a block, its axes in another order": (lambda w: w[::-1, 3:7, ::2].transpose(2, 0, 1), True),
    "an axis of one element": (lambda w: w[:, 4:5, ::2], True),
    "a row repeated": (lambda w: np.broadcast_to(w[0, 0], (30, 24)), True),
    "a column repeated": (lambda w: np.broadcast_to(w.reshape(-1, 8)[:, 2:3], (360, 8)), True),
    "one element repeated": (lambda w: np.broadcast_to(w[1, 2, 3], (20, 30)), True),
    "windows": (lambda w: sliding_window_view(w.reshape(-1), 7), False),
    "rows that reach into each other": (lambda w: as_strided(w, (50, 7), (5 * w.itemsize, w.itemsize)), False),
}
# The others are there for `GUARDED`, which runs all functions on all views.
SOME = ["every other backwards", "a column", "some columns", "every third row and column", "a corner, transposed"]
SOME += ["a block, its axes in another order", "a column repeated", "windows"]
DTYPES = [np.float64, np.float32, np.float16, np.complex128, np.complex64, np.int64, np.int32, np.int16, np.uint8, bool]


def whole(dtype=np.float64):
    x = np.random.default_rng(0).standard_normal(WHOLE) * 3
    if np.issubdtype(dtype, np.complexfloating):
        x = x + 1j * x[::-1]
    return (x > 0) if dtype is bool else np.abs(x).astype(dtype) if dtype is np.uint8 else x.astype(dtype)


@pytest.fixture(autouse=True)
def read_what_is_small(monkeypatch):
    monkeypatch.setattr(strided_inputs, "SMALL", 0)
    monkeypatch.setattr(specializations, "LEAST_CHECKED", 0)


def programs(traced):
    """The programs that read arguments by their strides."""
    every = [path for spec in traced._specializations.values() for path in spec.paths]
    return [p for path in every for p in path._strided_programs.values() if isinstance(p, Program)]


def called(traced, *args, times=4):
    """What the last of some calls alike gives, which is one of the hot path."""
    for _ in range(times - 1):
        traced(*args)
    before = traced.cache_info()
    result = traced(*args)
    assert traced.cache_info() == before  # the slow path counts calls
    return result


def assert_same_bits(found, expected):
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert found.tobytes() == expected.tobytes()


def assert_like(found, expected, rtol=1e-12):
    assert found.dtype == expected.dtype
    assert found.strides == expected.strides
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)


# -- values ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VIEWS)
def test_a_copy_of_a_view_is_its_elements(name, dtype):
    view, is_read = VIEWS[name]
    x = view(whole(dtype))
    traced = tg.trace(lambda x: x.copy())
    assert_same_bits(called(traced, x), x.copy())
    assert len(programs(traced)) == is_read


FUNCTIONS = {
    "light": lambda x: x * 2.0 + 1.0,
    "dear": lambda x: np.exp(-x) * 2.0 + np.tanh(x),
    "with itself backwards": lambda x: x + x[::-1],
    "sum": lambda x: np.sum(x * x),
    "sum along the last axis": lambda x: np.sum(x, axis=-1),
    "sum along the first axis": lambda x: np.sum(x, axis=0),
    "largest": lambda x: np.max(x, axis=-1),
    "raveled": lambda x: np.ravel(x) * 2.0,
    "padded": lambda x: np.pad(x, 2) + 1.0,
    "product with itself": lambda x: x @ x.swapaxes(0, -1) if x.ndim < 3 else x @ x.swapaxes(1, 2),
    "product": lambda x: np.ones((3, x.shape[-2] if x.ndim > 1 else len(x))) @ x,
    "sorted": lambda x: np.sort(x, axis=0),
    "cumulated": lambda x: np.cumsum(x, axis=-1),
    "picked": lambda x: x[np.array([3, 1, -1])],
    "shifted": lambda x: x[1:] - x[:-1],
    "a loop over rows": lambda x: tg.scan(lambda c, r: (c * 0.5 + r, c), x[0], x)[0],
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", SOME)
def test_functions_of_views_give_what_numpy_gives(name, function):
    x, f = VIEWS[name][0](whole()), FUNCTIONS[function]
    plain = f if function != "a loop over rows" else lambda x: f(np.array(x, order="C"))
    result = called(tg.trace(f), x)
    if np.ndim(result) and function != "a loop over rows":
        assert_like(result, plain(x))
    else:
        np.testing.assert_allclose(result, plain(x), rtol=1e-12)


@pytest.mark.parametrize("name", SOME)
def test_derivatives_at_views_are_those_at_copies(name):
    x = VIEWS[name][0](whole())

    def f(x):
        return np.sum(np.sin(x) * x)

    np.testing.assert_allclose(called(tg.grad(f), x), np.cos(x) * x + np.sin(x), rtol=1e-12, atol=1e-12)
    result, tangent = tg.jvp(f, (x,), (x,))
    np.testing.assert_allclose(result, f(x), rtol=1e-12)
    np.testing.assert_allclose(tangent, np.sum((np.cos(x) * x + np.sin(x)) * x), rtol=1e-12)
    _, pullback = tg.vjp(f, x)
    np.testing.assert_allclose(pullback(1.0)[0], np.cos(x) * x + np.sin(x), rtol=1e-12, atol=1e-12)


def test_arguments_captured_arrays_and_arrays_in_containers_lie_as_they_like():
    w, captured = whole().reshape(-1, 8), whole().reshape(-1, 8)[:, 5]

    def f(x, p):
        return x * p["a"] + p["b"][0] * captured

    traced = tg.trace(f)
    p = {"a": w[:, 2], "b": [w[:, 3]]}
    for k in range(4):
        captured[:] = k
        assert_like(traced(w[:, 1], p), f(w[:, 1], p))
    assert_like(called(traced, w[:, 1], p), f(w[:, 1], p))
    (program,) = programs(traced)
    assert [x is not None for x in program.image.strides] == [True] * 4


def test_a_field_of_an_array_of_records_is_read_where_it_is():
    records = np.zeros(500, [("a", "f8"), ("b", "f8"), ("c", "f4", 2)])
    records["b"] = np.arange(500)
    records["c"] = np.arange(1000).reshape(500, 2)
    traced = tg.trace(lambda b, c: b * 2.0 + c)
    assert_same_bits(called(traced, records["b"], records["c"][:, 1]), records["b"] * 2.0 + records["c"][:, 1])
    assert len(programs(traced)) == 1


MISPLACED = {
    "between elements": lambda: np.zeros(500, [("a", "i4"), ("b", "f8")])["b"],
    "at an odd address": lambda: np.frombuffer(bytearray(8001), np.float64, 1000, 1)[::2],
    "of the other byte order": lambda: np.arange(1000, dtype=">f8")[::2],
    "pairs by halves": lambda: as_strided(np.zeros(1000, np.complex128), (400,), (24,)),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_what_no_element_of_a_block_is_is_copied(name):
    x = MISPLACED[name]()
    x[:] = np.arange(len(x))
    traced = tg.trace(lambda x: x + 1.0)
    for _ in range(4):
        np.testing.assert_array_equal(traced(x), x + 1.0)
    assert programs(traced) == []


def test_empty_arrays_and_single_elements_are_in_row_major_order():
    for x in (np.ones((4, 6))[:0, ::2], np.ones((4, 6))[1:2, 3:4], np.ones((4, 0))[::2], np.ones(4)[3:4:2]):
        traced = tg.trace(lambda x: (x * 2.0).sum(axis=0))
        assert_like(called(traced, x), (x * 2.0).sum(axis=0))
        assert programs(traced) == []


def test_an_argument_with_gaps_that_is_written_is_written_where_it_is():
    def f(x):
        x *= 2.0
        return np.sum(x)

    traced, w = tg.trace(f), whole()
    expected = w.copy()
    for _ in range(4):
        np.testing.assert_allclose(traced(w.reshape(-1, 8)[:, 3]), f(expected.reshape(-1, 8)[:, 3]))
        assert_same_bits(w, expected)


def test_what_is_given_away_is_no_view():
    w = whole()
    before, x, y = w.copy(), w.reshape(-1)[::2], w.reshape(-1)[1::2]
    traced = tg.trace(lambda x, y: x * 2.0 + y, donate_argnums=0)
    assert_same_bits(called(traced, x, y), x * 2.0 + y)
    assert_same_bits(w, before)
    for _ in range(4):
        args = x.copy()
        assert_same_bits(traced(args, y), before.reshape(-1)[::2] * 2.0 + y)


def test_an_answer_that_depends_on_the_layout_is_asked_for():
    def f(x):
        y = x.reshape(-1)  # a view, or a copy
        y[0] = 7.0
        return x[0] * 1.0

    traced = tg.trace(f)
    for k in range(12):
        lie = [np.ones((6, 4))[:, :2], np.ones((6, 2)), np.ones((2, 6)).T, np.ones((12, 4))[::2, ::2]][k % 4]
        assert_same_bits(traced(lie.copy("K") if k % 2 else lie), f(lie.copy("K") if k % 2 else lie))


def test_an_index_out_of_range_raises():
    x = whole().reshape(-1, 8)[:, 1]
    traced = tg.trace(lambda x, i: x[i])
    for _ in range(4):
        np.testing.assert_array_equal(traced(x, np.array([2, -1])), x[[2, -1]])
        with pytest.raises(IndexError):
            traced(x, np.array([len(x)]))


# -- programs ----------------------------------------------------------------------------------------------------------
def test_arrays_of_one_shape_that_lie_otherwise_have_programs_of_their_own_and_calls_find_them():
    w = whole().reshape(-1)
    views = [w[:300], w[:600:2], w[:900:3], w[300:0:-1], w.reshape(-1, 8)[:300, 1], w.reshape(-1, 9)[:300, 1]]
    traced = tg.trace(lambda x: x * 2.0 + 1.0)
    for _ in range(5):
        for x in views:
            assert_same_bits(traced(x), x * 2.0 + 1.0)
    before = traced.cache_info()
    for x in [*views, *views[::-1]]:
        assert_same_bits(traced(x), x * 2.0 + 1.0)
    assert traced.cache_info() == before
    assert len(programs(traced)) == len(views) - 1


def test_a_distance_that_was_not_met_before_compiles_nothing():
    w = np.random.default_rng(0).standard_normal(300 * 40)
    traced = tg.trace(lambda x: np.exp(x) + 1.0)
    called(traced, w[: 300 * 20].reshape(300, 20)[:, 3])
    other = w.reshape(300, 40)[:, 3]
    called(traced, other)
    assert [p.cache for p in programs(traced)][1:] == ["memory"]


def test_ever_new_distances_end_in_copies():
    traced = tg.trace(lambda x: x * 2.0)
    for iteration, k in itertools.product(range(3), range(2, 60)):
        x = np.arange(100.0 * k)[::k]
        assert_same_bits(traced(x), x * 2.0)
        if iteration == 2:
            assert len(programs(traced)) <= specializations.MAX_LAYOUTS
    before = traced.cache_info()
    for k in range(61, 80):
        traced(np.arange(100.0 * k)[::k])
    assert traced.cache_info() == before  # the hot path copies


def test_what_lies_in_one_way_once_has_no_program():
    traced = tg.trace(lambda x: x * 2.0)
    for k in range(2, 6):
        traced(np.arange(100.0 * k)[::k])
    assert programs(traced) == []


def test_small_arrays_are_copied_beside_large_ones(monkeypatch):
    monkeypatch.setattr(strided_inputs, "SMALL", 2**11)
    traced = tg.trace(lambda x, y: x[:10] * y)
    for k in range(2, 8):  # the distances in what is copied make no programs
        x, y = whole().reshape(-1)[::2], np.arange(10.0 * k)[::k]
        assert_same_bits(called(traced, x, y), x[:10] * y)
    (program,) = programs(traced)
    assert program.image.strides == ((16,), None)


def test_few_bytes_are_worth_no_program(monkeypatch):
    monkeypatch.setattr(specializations, "LEAST_CHECKED", 2**11)
    traced, x = tg.trace(lambda x: x * 2.0), whole().reshape(-1)[:800:2]
    assert_same_bits(called(traced, x), x * 2.0)
    assert programs(traced) == []


def test_entry_points_of_other_builds_read_by_strides_too(monkeypatch):
    from tracegrad.runtime.execution import entry_callable

    monkeypatch.setattr(entry_callable, "unsupported_reason", lambda: "as if")
    for name, (view, is_read) in VIEWS.items():
        x = view(whole())
        traced = tg.trace(lambda x: x * 2.0 + 1.0)
        for y in (x, x.copy(), x, x):
            assert_like(traced(y), y * 2.0 + 1.0)
        assert len(programs(traced)) == is_read, name


# -- memory ------------------------------------------------------------------------------------------------------------
IN_ANOTHER_PROCESS = """
import numpy as np, tracegrad as tg
from tracegrad.runtime.execution.program import machine_code_count
x = np.arange(6000.0).reshape(100, 60)
f, g = tg.trace(lambda x: np.sum(np.sin(x) * 2.0, axis=1)), tg.grad(lambda x: np.sum(x**3))
for part in (x[:, ::2], x[5:, 3:40], x[::-1].T):
    for _ in range(4):
        np.testing.assert_allclose(f(part), np.sum(np.sin(part) * 2.0, axis=1), rtol=1e-13)
        np.testing.assert_allclose(g(part), 3.0 * part**2, rtol=1e-13)
print(machine_code_count(), f.cache_info().traces + g.cache_info().traces)
"""


def test_another_process_finds_on_disk_what_reads_by_strides(tmp_path):
    options = {"TRACEGRAD_CACHE_DIR": str(tmp_path), "TRACEGRAD_CACHE": "1", "TRACEGRAD_CACHE_TRACES": "1"}
    (tmp_path / "program.py").write_text(IN_ANOTHER_PROCESS)
    command = [sys.executable, str(tmp_path / "program.py")]
    counts = [
        [
            int(word)
            for word in subprocess.run(
                command, env={**os.environ, **options}, capture_output=True, text=True, check=True
            ).stdout.split()
        ]
        for _ in range(2)
    ]
    assert counts[0][0] > 0
    assert counts[0][1] > 0
    assert counts[1] == [0, 0]


GUARDED = """
import ctypes, mmap, sys
import numpy as np
import tracegrad as tg
from tests.codegen.lower import test_packing_heuristic as gaps
from tracegrad.runtime.execution import strided_inputs as layouts
from tracegrad.runtime.dispatch import specializations as paths

layouts.SMALL = paths.LEAST_CHECKED = 0
PAGE, PAGES = mmap.PAGESIZE, 40
memory = mmap.mmap(-1, (PAGES + 2) * PAGE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
protect = ctypes.CDLL(None, use_errno=True).mprotect
for page in (0, PAGES + 1):
    assert protect(ctypes.c_void_p(address + page * PAGE), ctypes.c_size_t(PAGE), 0) == 0


def placed(x, last):
    # The view with its lowest byte at the first byte of the memory, or with its highest one at the last.
    low = sum(min((n - 1) * s, 0) for n, s in zip(x.shape, x.strides))
    high = sum(max((n - 1) * s, 0) for n, s in zip(x.shape, x.strides)) + x.itemsize
    begin = (PAGES + 1) * PAGE - high if last else PAGE - low
    y = np.ndarray(x.shape, x.dtype, memory, begin, x.strides)
    if 0 not in x.strides:
        y[...] = x
    return y


for name, (view, is_read) in gaps.VIEWS.items():
    for dtype in map(np.dtype, sys.argv[1].split(",")):
        for function, f in gaps.FUNCTIONS.items() if dtype == np.float64 else [("copy", lambda x: x.copy())]:
            traced = tg.trace(f)
            for last in (False, True) if is_read else ():
                print(name, "of", dtype, function, "at the end" if last else "at the beginning", flush=True)
                x = placed(view(gaps.whole(dtype.type)), last)
                for _ in range(4):
                    traced(x)
            assert len(gaps.programs(traced)) == is_read
print("done")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="protects pages as Linux does")
@pytest.mark.parametrize("dtypes", ["float64", "float32,int32,complex128,int16,uint8,float16"])
def test_nothing_is_read_but_what_is_the_arrays_own(dtypes):
    result = subprocess.run([sys.executable, "-c", GUARDED, dtypes], capture_output=True, text=True, check=False)
    assert result.stdout.endswith("done\n"), result.stdout[-200:] + result.stderr


# -- kernels -----------------------------------------------------------------------------------------------------------
def steps(traced):
    (program,) = programs(traced)
    return program.report.plan.steps


def test_products_read_parts_of_matrices_where_they_are():
    a, b = np.ones((60, 90))[:, :40], np.ones((40, 70))[:, :30]
    for f in (lambda a, b: a @ b, lambda a, b: b.T @ a.T):
        traced = tg.trace(f)
        called(traced, a, b)
        (step,) = steps(traced)
        assert {step.x[0], step.y[0]} == {"b0", "b1"}
        sizes = programs(traced)[0].report.plan.arguments.sizes
        assert {lie.leading.evaluate(sizes) for lie in step.strides[:2]} == {90, 70}


@pytest.mark.parametrize(("columns", "copies"), [(8, True), (2, False)])
def test_a_column_that_several_kernels_read_is_copied_by_one(columns, copies):
    x = np.random.default_rng(0).standard_normal((20_000, columns))[:, 1]
    traced = tg.trace(lambda x: (x - np.mean(x)) * np.sum(x * x))
    np.testing.assert_allclose(called(traced, x), (x - np.mean(x)) * np.sum(x * x))
    assert sum("b0" in step.buffers for step in steps(traced)) == (1 if copies else 2)


@pytest.mark.skipif("avx2" not in features(), reason="needs AVX2")
@pytest.mark.parametrize(
    ("view", "function", "wanted"),
    [
        (lambda w: w[:, :50], "dear", True),
        (lambda w: w[:, :50], "light", False),
        (lambda w: w.T, "light", False),
    ],
)
def test_rows_that_lie_apart_are_fetched_ahead_where_a_iteration_is_dear(view, function, wanted):
    traced = tg.trace(FUNCTIONS[function])
    called(traced, view(np.ones((40, 100))))
    (step,) = steps(traced)
    assert ("llvm.prefetch" in str(kernel_function(ir.IRModule(), step.kernel, "rows"))) == wanted


@pytest.mark.skipif("avx2" not in features(), reason="needs AVX2")
@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x, y: np.sum(np.tanh(x) * np.exp(y)), True),
        (lambda x, y: np.tanh(x * y) * np.exp(x), True),
        (lambda x, y: x * y + 1, False),
        (lambda x, y: np.sqrt(x) + y, False),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_lies_side_by_side_is_fetched_ahead_where_much_is_computed_with_it(function, wanted, dtype):
    x, y = np.full((2, 30, 50), 0.5, dtype)
    traced = tg.trace(function)
    np.testing.assert_allclose(traced(x, y), function(x, y), rtol=1e-5)
    ((path,),) = [spec.paths for spec in traced._specializations.values()]
    (step,) = path.program.report.plan.steps
    assert ("llvm.prefetch" in str(kernel_function(ir.IRModule(), step.kernel, "rows"))) == wanted


@pytest.mark.skipif("avx2" not in features(), reason="needs AVX2")
@pytest.mark.parametrize("step", [2, 3, 4, -2, -3, -4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_so_many_elements_are_vectors_without_masks(step, dtype):
    traced = tg.trace(FUNCTIONS["light"])
    called(traced, np.ones(4000, dtype)[::step])
    (launch,) = steps(traced)
    _, _, loop = str(kernel_function(ir.IRModule(), launch.kernel, "parts")).partition("\nseveral.")
    assert loop
    assert "masked" not in loop.partition("br i1")[0]
