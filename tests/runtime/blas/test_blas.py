"""The BLAS under generated code: right for every argument, private, with the same bits on any number of threads."""

import ctypes
import importlib.util
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tracegrad.runtime.blas import library
from tracegrad.runtime.threads import pool
from tracegrad.settings import settings
from tracegrad.target.products import preferred_core

C_TYPES = {"s": ctypes.c_float, "d": ctypes.c_double}
DTYPES = {"s": np.float32, "d": np.float64}
LOADED: dict = {}

needs_openblas = pytest.mark.skipif(
    importlib.util.find_spec("scipy_openblas32") is None, reason="needs the package scipy-openblas32"
)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(autouse=True)
def restored_thread_count() -> Iterator[None]:
    before = settings.thread_count()
    yield
    pool.set_num_threads(before)


@pytest.fixture(params=["scipy-openblas32", "scipy"])
def provider(request, monkeypatch) -> str:
    """Each provider in turn, loaded once; the second is what is left when the first is not installed."""
    monkeypatch.setattr(library, "_library", LOADED.get(request.param))
    if request.param == "scipy":
        monkeypatch.setattr(library, "_PACKAGE", "no_such_package")
    elif importlib.util.find_spec("scipy_openblas32") is None:
        pytest.skip("needs the package scipy-openblas32")
    assert library.info()["provider"] == request.param
    LOADED[request.param] = library._library
    return request.param


def reference(*arguments) -> list:
    """Fortran's arguments: letters, integers and scalars by address, arrays as they lie in memory."""
    return [x if isinstance(x, bytes) else ctypes.c_void_p(x.ctypes.data) for x in arguments]


def gemm(kind, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) -> None:
    dtype = DTYPES[kind]
    integers = {
        name: np.array(value, np.int32)
        for name, value in {"m": m, "n": n, "k": k, "lda": lda, "ldb": ldb, "ldc": ldc}.items()
    }
    scalars = [np.array(alpha, dtype), np.array(beta, dtype)]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(library.address(f"{kind}gemm"))
    function(
        *reference(transa, transb, integers["m"], integers["n"], integers["k"], scalars[0], a, integers["lda"]),
        *reference(b, integers["ldb"], scalars[1], c, integers["ldc"]),
    )


def column_major(rng, rows, columns, leading, dtype) -> np.ndarray:
    """A random matrix of `rows` by `columns`, in columns of `leading` elements."""
    return rng.standard_normal((columns, leading)).astype(dtype).T[:rows]


def operands(rng, kind, transa, transb, m, n, k, pad=0):
    """Random A, B and C, and how far apart their columns lie."""
    shape_a, shape_b = (m, k) if transa in b"Nn" else (k, m), (k, n) if transb in b"Nn" else (n, k)
    leading = shape_a[0] + pad, shape_b[0] + pad, m + pad
    return [column_major(rng, *s, lead, DTYPES[kind]) for s, lead in zip((shape_a, shape_b, (m, n)), leading)], leading


def product(rng, kind, transa, transb, m, n, k, alpha=1.0, beta=0.0, pad=0):
    """C and what C must be, by NumPy in the next precision, of random operands."""
    (a, b, c), (lda, ldb, ldc) = operands(rng, kind, transa, transb, m, n, k, pad)
    more = {"s": np.float64, "d": np.longdouble}[kind]
    exact_a, exact_b = (x.astype(more) for x in (a, b))
    exact = (exact_a if transa in b"Nn" else exact_a.T) @ (exact_b if transb in b"Nn" else exact_b.T)
    exact = alpha * exact + beta * c.astype(more)
    gemm(kind, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
    return c, exact


def assert_close(c, exact, k) -> None:
    scale = np.finfo(c.dtype).eps * (k + 4) * max(1.0, float(np.abs(exact).max()))
    assert float(np.abs(c - exact).max()) <= scale


def run_python(script: str, **environment: str) -> None:
    """Run a script that must print "fine" and nothing else."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    result = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    assert (result.stdout, result.stderr) == ("fine\n", "")


TRANSPOSES = [*itertools.product([b"N", b"T"], repeat=2)]


@pytest.mark.parametrize("kind", ["s", "d"])
@pytest.mark.parametrize("trans", TRANSPOSES)
@pytest.mark.parametrize("size", [(1, 1, 1), (3, 5, 4), (17, 33, 9), (64, 48, 80)])
def test_a_small_gemm_agrees_with_numpy(provider, kind, trans, size):
    rng = np.random.default_rng(0)
    c, exact = product(rng, kind, *trans, *size, alpha=0.75, beta=-0.5, pad=3)
    assert_close(c, exact, size[2])


# Above the size from which a gemm is cut: squares, remainders, one row or column, shallow, deep.
CUT = [(130, 257, 131), (784, 256, 33), (1, 70001, 40), (70001, 1, 40), (700, 1, 4001), (2050, 1030, 1), (17, 15, 9001)]


@pytest.mark.parametrize("kind", ["s", "d"])
@pytest.mark.parametrize(
    ("trans", "size"),
    [*itertools.product(TRANSPOSES, CUT[:1]), *(((b"N", b"T"), size) for size in CUT[1:])],
)
def test_a_gemm_cut_into_tiles_agrees_with_numpy(provider, kind, trans, size):
    assert np.prod(size) > 2**21
    rng = np.random.default_rng(1)
    c, exact = product(rng, kind, *trans, *size, alpha=1.5, beta=0.25, pad=5)
    assert_close(c, exact, size[2])


# Cut into tiles that the kernels for small matrices compute: remainders, as wide and deep as there are, none.
UNPACKED = [(101, 103, 107), (97, 13, 800), (512, 37, 512), (5, 4001, 60), (128, 250, 784), (96, 12, 868)]
# The same with a copy of the first factor: many columns, columns that begin anywhere, or a power of two apart.
UNPACKED += [(160, 160, 160), (128, 3203, 16), (61, 1000, 130), (128, 517, 128), (256, 256, 256)]


@pytest.mark.parametrize("kind", ["s", "d"])
@pytest.mark.parametrize("trans", TRANSPOSES)
@pytest.mark.parametrize("size", UNPACKED)
def test_a_gemm_cut_into_tiles_that_are_not_packed_agrees_with_numpy(provider, kind, trans, size):
    c, exact = product(np.random.default_rng(7), kind, *trans, *size, alpha=-0.5, beta=0.75)
    assert_close(c, exact, size[2])


@pytest.mark.parametrize("letters", [b"n", b"t", b"C", b"c"])
def test_other_letters_for_the_transposes_mean_the_same(provider, letters):
    c, exact = product(np.random.default_rng(2), "d", letters, letters, 140, 150, 160)
    assert_close(c, exact, 160)


# No graph has such products, and SciPy's BLAS is as it is: with AVX-512, OpenBLAS 0.3.30 reads the factors of
# small ones.
@pytest.mark.parametrize("provider", ["scipy-openblas32"], indirect=True)
@pytest.mark.parametrize("kind", ["s", "d"])
@pytest.mark.parametrize("size", [(9, 7, 5), (200, 180, 190)])
def test_factors_are_not_read_where_alpha_is_zero(provider, kind, size):
    (a, b, c), (lda, ldb, ldc) = operands(np.random.default_rng(8), kind, b"N", b"T", *size)
    a[:], b[:] = np.nan, np.inf
    before = c.copy()
    gemm(kind, b"N", b"T", *size, 0.0, a, lda, b, ldb, 0.5, c, ldc)
    np.testing.assert_array_equal(c, before / 2)
    square = (size[0], size[0], size[2])
    c = np.full((size[0], size[0]), np.nan, DTYPES[kind])
    gemm(kind, b"N", b"T", *square, 0.0, a, lda, a, lda, 0.0, c, size[0])
    assert not c.any()


def test_nothing_outside_the_matrix_is_written(provider):
    m, n, k, ldc = 150, 160, 170, 171
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((k, m)).T, rng.standard_normal((n, k)).T
    c = np.full((n, ldc), 7.0)
    gemm("d", b"N", b"N", m, n, k, 1.0, a, m, b, k, 0.0, c, ldc)
    assert (c[:, m:] == 7.0).all()
    np.testing.assert_allclose(c[:, :m].T, a @ b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [(0, 300, 300), (300, 0, 300), (300, 300, 0), (3000, 4000, 0)])
def test_an_empty_product_leaves_or_scales_c(provider, size):
    c, exact = product(np.random.default_rng(4), "d", b"N", b"N", *size, beta=2.0, pad=1)
    np.testing.assert_array_equal(c, exact.astype(np.float64))


@pytest.mark.parametrize("kind", ["s", "d"])
@pytest.mark.parametrize("trans", [b"N", b"T"])
def test_gemv_agrees_with_numpy(provider, kind, trans):
    rng, dtype, m, n = np.random.default_rng(5), DTYPES[kind], 70, 45
    a = column_major(rng, m, n, m, dtype)
    x = rng.standard_normal(n if trans == b"N" else m).astype(dtype)
    y = rng.standard_normal(m if trans == b"N" else n).astype(dtype)
    exact = 2.0 * (a if trans == b"N" else a.T).astype(np.longdouble) @ x - 0.5 * y.astype(np.longdouble)
    rows, columns, one = (np.array(value, np.int32) for value in (m, n, 1))
    alpha, beta = np.array(2.0, dtype), np.array(-0.5, dtype)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 11)(library.address(f"{kind}gemv"))
    function(*reference(trans, rows, columns, alpha, a, rows, x, one, beta, y, one))
    assert_close(y, exact, 70)


@needs_openblas
@pytest.mark.parametrize("kind", ["s", "d"])
@pytest.mark.parametrize(
    "size",
    [
        *[(256, 128, 784), (128, 256, 784), (300, 500, 200), (600, 500, 200), (520, 40, 900), (61, 3203, 130)],
        # Slim, shallow and thin; and such as one thread does not cut, with remainders of all kinds.
        *[(12, 4001, 70), (900, 1003, 9), (1031, 101, 300), (515, 513, 511), (301, 778, 130), (2050, 391, 40)],
        *[(130, 100, 700), (60, 61, 1000), (1500, 40, 700), (3, 2100, 513), (128, 8, 2000)],
        *[(2000, 2, 200), (2, 2000, 150), (1, 600, 500), (900, 800, 2)],  # much to read or write for little work
    ],
)
@pytest.mark.parametrize("trans", TRANSPOSES)
def test_bits_do_not_depend_on_the_number_of_threads(kind, size, trans):
    (a, b, c), (lda, ldb, ldc) = operands(np.random.default_rng(6), kind, *trans, *size)
    results = []
    for count in (1, 2, 3, 4):
        pool.set_num_threads(count)
        c[:] = np.nan
        gemm(kind, *trans, *size, 1.0, a, lda, b, ldb, 0.0, c, ldc)
        results.append(c.tobytes())
    assert len(set(results)) == 1
    assert np.isfinite(c).all()


@pytest.mark.parametrize("kind", ["s", "d"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [7, 20, 32, 100, 253, 600])
@pytest.mark.parametrize("depth", [5, 64, 300])
def test_a_matrix_times_its_own_transpose_is_symmetric(provider, kind, transposed, rows, depth):
    rng = np.random.default_rng(rows + depth)
    lies = (depth if transposed else rows) + 3
    a = column_major(rng, depth if transposed else rows, rows if transposed else depth, lies, DTYPES[kind])
    c = np.full((rows + 2, rows + 1), 7, DTYPES[kind], order="F")
    letters = (b"T", b"N") if transposed else (b"N", b"T")
    results = []
    for count in (1, 3):
        pool.set_num_threads(count)
        c[:rows, :rows] = np.nan
        gemm(kind, *letters, rows, rows, depth, 2.0, a, lies, a, lies, 0.0, c, rows + 2)
        results.append(c.copy())
    np.testing.assert_array_equal(*results)
    exact = a[:depth].T.astype(float) @ a[:depth] if transposed else a[:rows].astype(float) @ a[:rows].T
    assert_close(c[:rows, :rows], 2.0 * exact, depth)
    if provider == "scipy-openblas32" and depth >= 32 and rows**2 * depth >= 2**15:
        np.testing.assert_array_equal(c[:rows, :rows], c[:rows, :rows].T)
    assert (c[rows:] == 7).all()
    assert (c[:, rows:] == 7).all()


def test_what_only_looks_like_a_matrix_times_its_transpose_is_a_product(provider):
    """The same memory: not transposed, read in another way, or added to what is there."""
    rng = np.random.default_rng(5)
    for letters in ((b"N", b"N"), (b"T", b"T"), (b"N", b"T")):
        a, c = (column_major(rng, 64, 64, 64, np.float64) for _ in range(2))
        before, beta = c.copy(), float(letters == (b"N", b"T"))
        gemm("d", *letters, 64, 64, 64, 1.0, a, 64, a, 64, beta, c, 64)
        x, y = (a if letter == b"N" else a.T for letter in letters)
        assert_close(c, x @ y + beta * before, 64)
    wide = column_major(rng, 64, 200, 128, np.float64)
    c = column_major(rng, 64, 64, 64, np.float64)
    gemm("d", b"N", b"T", 64, 64, 64, 1.0, wide, 128, wide, 256, 0.0, c, 64)
    every_other = np.lib.stride_tricks.as_strided(wide, (64, 64), (8, 256 * 8))
    assert_close(c, wide[:64, :64] @ every_other.T, 64)


def test_gemm_may_be_called_from_many_threads(provider):
    errors = []

    def caller(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(5):
            c, exact = product(rng, "d", b"N", b"N", 150, 140, 130)
            try:
                assert_close(c, exact, 130)
            except AssertionError as error:
                errors.append(error)

    callers = [threading.Thread(target=caller, args=(seed,)) for seed in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert not errors


def test_the_first_address_may_be_asked_by_many_threads_at_once(provider, monkeypatch):
    monkeypatch.setattr(library, "_library", None)
    loads = []
    real = library._scipy_blas if provider == "scipy" else library._private_openblas
    monkeypatch.setattr(library, real.__name__, lambda: loads.append(1) or real())
    start, result = threading.Barrier(4), []

    def ask() -> None:
        start.wait(20)
        result.append(library.address("dgemm"))

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for thread in askers:
        thread.start()
    for thread in askers:
        thread.join()
    assert len(loads) == 1
    assert len(result) == 4
    assert len(set(result)) == 1


def test_an_unknown_routine_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="no BLAS routine 'zgemm' here"):
        library.address("zgemm")


def test_the_thread_count_is_that_of_parallel_regions():
    pool.set_num_threads(3)
    assert settings.thread_count() == library.info()["threads"] == 3


def test_a_library_that_does_not_load_leads_to_that_of_scipy(monkeypatch, tmp_path):
    broken = tmp_path / "libscipy_openblas.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(library, "_openblas_path", lambda: broken)
    monkeypatch.setattr(library, "_library", None)
    assert library.info()["provider"] == "scipy"


def test_integers_of_64_bits_are_refused():
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = ctypes.create_string_buffer(b"void (char *, char *, int64_t *)")
    with pytest.raises(ImportError, match="32-bit integers"):
        library._capsule_address(new(ctypes.addressof(name), name, None))


def test_importing_the_module_loads_nothing():
    run_python("""
import sys
from tracegrad.runtime.blas import library as blas
assert blas._library is None
assert not {"scipy", "scipy_openblas32", "numba"} & set(sys.modules)
print("fine")
""")


@needs_openblas
def test_the_environment_is_as_before():
    script = """
import ctypes, os
from tracegrad.runtime.blas import library as blas
names = ["OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS"]
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
def environment():
    return dict(os.environ), [getenv(name.encode()) for name in names]
before = environment()
assert blas.info()["provider"] == "scipy-openblas32"
assert environment() == before
print("fine")
"""
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS"):
        if name in os.environ:
            pytest.skip(f"{name} is set")
    run_python(script)
    run_python(script, OPENBLAS_CORETYPE="Haswell", OPENBLAS_NUM_THREADS="3")


@needs_openblas
@pytest.mark.skipif(preferred_core() is None, reason="needs AVX-512")
def test_the_kernels_fit_the_features_of_the_cpu_unless_the_user_chose():
    script = 'from tracegrad.runtime.blas import library as blas\nassert blas.info()["core"] == {!r}\nprint("fine")'
    fitting = preferred_core()
    other = "SkylakeX" if fitting == "Haswell" else "Haswell"
    run_python(script.format(fitting))
    run_python(script.format(other), OPENBLAS_CORETYPE=other)


@needs_openblas
@pytest.mark.parametrize(("cpu", "cpus", "tiles"), [("znver4", 1, 1), ("sapphirerapids", 2, 2), ("haswell", 9, 4)])
def test_products_on_other_machines(cpu, cpus, tiles):
    """Tiles follow from how many CPUs there are and from whose they are; bits still not from how many threads run."""
    run_python(f"""
import itertools, os
import llvmlite.binding, numpy as np
llvmlite.binding.get_host_cpu_name = lambda: {cpu!r}
os.cpu_count = lambda: {cpus}
import tracegrad as tg
from tracegrad.target.products import gemm_policy
policy = gemm_policy(False, "SkylakeX")
assert policy.tiles == {tiles} and (policy.max_unpacked_work == 2**62) == {cpu.startswith("zn")}
sizes = (300, 200, 250), (140, 150, 160), (520, 40, 300)
for dtype, (m, k, n) in itertools.product((np.float64, np.float32), sizes):
    a, b = (np.random.default_rng(i).random(s).astype(dtype) for i, s in enumerate(((m, k), (k, n))))
    c, d = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
    for f, x, y in (lambda x, y: x @ y, a, b), (lambda x, y: x.T @ y, c, b), (lambda x, y: x @ y.T, a, d):
        results = []
        for count in 1, 3:
            with tg.settings.override(num_threads=count, first_call="compile"):
                results.append(tg.trace(f)(x, y))
        assert results[0].tobytes() == results[1].tobytes()
        np.testing.assert_allclose(results[0], a @ b, rtol=1e-12 if dtype is np.float64 else 1e-5)
print("fine")
""")


@needs_openblas
def test_the_libraries_of_numpy_and_scipy_are_left_alone():
    pytest.importorskip("threadpoolctl")
    run_python("""
import numpy, scipy.linalg, threadpoolctl
from tracegrad.runtime.blas import library as blas
from tracegrad.settings import settings
def others():
    return {x["filepath"]: x for x in threadpoolctl.threadpool_info() if "scipy_openblas32" not in x["filepath"]}
before = others()
assert before
settings.num_threads = 1
blas.address("dgemm")
settings.num_threads = 2
assert others() == before
print("fine")
""")


@needs_openblas
def test_a_library_loaded_from_the_same_file_is_left_alone():
    run_python("""
import ctypes, os
os.environ |= {"OPENBLAS_CORETYPE": "Sandybridge", "OPENBLAS_NUM_THREADS": "2"}
import scipy_openblas32
del os.environ["OPENBLAS_CORETYPE"], os.environ["OPENBLAS_NUM_THREADS"]
theirs = ctypes.CDLL(str(__import__("pathlib").Path(scipy_openblas32.get_lib_dir()) / "libscipy_openblas.so"))
theirs.scipy_openblas_get_corename.restype = ctypes.c_char_p
def state():
    return theirs.scipy_openblas_get_corename(), theirs.scipy_openblas_get_num_threads()
before = state()
from tracegrad.runtime.blas import library as blas
from tracegrad.target.products import preferred_core
core, ours = preferred_core(), blas.info()
assert ours["provider"] == "scipy-openblas32"
assert core is None or ours["core"] == core and before[0] == b"Sandybridge"
assert state() == before
assert ctypes.cast(theirs.scipy_dgemv_, ctypes.c_void_p).value != blas.address("dgemv")
print("fine")
""")


@needs_fork
@pytest.mark.parametrize("package", ["scipy_openblas32", "no_such_package"])
def test_a_forked_child_can_call_gemm(package):
    run_python(f"""
import ctypes, os
import numpy as np
from tracegrad.runtime.blas import library as blas
from tracegrad.settings import settings
blas._PACKAGE = {package!r}
def right():
    a, b, c = np.random.rand(300, 300), np.random.rand(300, 300), np.empty((300, 300))
    n, one, zero = np.array(300, np.int32), np.array(1.0), np.array(0.0)
    pointers = [x if type(x) is bytes else ctypes.c_void_p(x.ctypes.data)
                for x in (b"N", b"N", n, n, n, one, b, n, a, n, zero, c, n)]
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(blas.address("dgemm"))(*pointers)
    return np.allclose(c, a @ b)
settings.num_threads = 3
def child_is_right():
    child = os.fork()
    if child == 0:
        os._exit(0 if right() else 1)
    return os.waitpid(child, 0)[1] == 0
assert child_is_right()
assert right()
assert child_is_right()
assert right()
print("fine")
""")
