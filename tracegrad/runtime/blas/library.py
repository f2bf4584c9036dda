"""Bind the BLAS that generated code calls: a private copy of OpenBLAS, or else the BLAS of SciPy.

`address(routine)` is the address of a routine with Fortran's ABI and 32-bit integers, for instance

    void dgemm(char *transa, char *transb, int32_t *m, int32_t *n, int32_t *k, double *alpha,
               double *a, int32_t *lda, double *b, int32_t *ldb, double *beta, double *c, int32_t *ldc);

on matrices in column-major order (Dongarra et al., "A Set of Level 3 Basic Linear Algebra Subprograms", ACM TOMS 16(1),
1990). A row-major product C = A B is the column-major product of the same memory with A and B, and m and n, exchanged.

The private copy comes from the package `scipy-openblas32`. It is loaded at first use, because
- NumPy and SciPy keep their own libraries, thread counts and kernels: no symbol of one library is visible to another. A
  library that was loaded from the same file before is not touched;
- its kernels fit the features of the CPU. OpenBLAS selects kernels by the name of the CPU, and gives an unknown CPU
  kernels without AVX-512, which are slower. OPENBLAS_CORETYPE is set while the copy loads, unless the user has set it;
- it runs in the calling thread alone. A large gemm is split here, into tiles that depend on the problem only and run in
  `pool.parallel_for` (`parallel_gemm`). Bits do not depend on the number of threads, as they do with OpenBLAS's own
  threads. A busy machine slows the product only in proportion, because the threads do not wait for each other.

Without that package, or if it cannot be loaded, the routines come from `scipy.linalg.cython_blas` and
`cython_lapack`, with the kernels and the threads that SciPy's BLAS chose.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import SupportsIndex

from tracegrad.codegen.libs.block_transpose import MIRROR, mirror_module
from tracegrad.codegen.libs.gemm import GEMM, gemm_module
from tracegrad.runtime.blas import gemm_selection, pack_operand, parallel_gemm, syrk
from tracegrad.runtime.compile import jit
from tracegrad.runtime.threads import pool
from tracegrad.target.cpu import features, has_small_kernels
from tracegrad.target.tuning import tuning
from tracegrad.utils.lazy_dataclass import record

__all__ = ["ROUTINES", "address", "get_num_threads", "has", "info", "set_num_threads"]

_PACKAGE = "scipy_openblas32"
ROUTINES = tuple(
    f"{kind}{name}" for kind in "sd" for name in ("gemm", "gemv", "syrk", "trsm", "potrf", "gesv", "getrf")
)

_RAW, _PARALLEL_FOR, _LIMIT = "tg_blas_", "tg_blas_parallel_for", "tg_blas_limit"
_UNTILED = "blas_"  # the prefix of a routine that is the library's own


@record(frozen=True, slots=True)
class _BlasLibrary:
    """A BLAS provider: the addresses of its routines, and its description."""

    provider: str
    config: str
    core: str
    addresses: Mapping[str, int]
    cut: dict[str, int] | None = None  # multi-threaded gemms, made at first use; None if SciPy is used


_lock = threading.Lock()
_library: _BlasLibrary | None = None


def has(routine: str) -> bool:
    """Whether `address` knows a routine."""
    return routine.removeprefix(_UNTILED) in ROUTINES


def address(routine: str) -> int:
    """The address of one of `ROUTINES`, of BLAS and LAPACK (see the module's docstring); "blas_dgemm" is the library's
    own dgemm, which is not cut into tiles.

    Valid until the process ends, and in forked children. The first call loads the library.

    Raises ValueError for another routine or if TRACEGRAD_NUM_THREADS has a bad value, ImportError if neither
    `scipy-openblas32` nor SciPy can be loaded.

    >>> address("dgemm") == address("dgemm") != 0
    True
    """
    if not has(routine):
        raise ValueError(f"no BLAS routine {routine!r} here; there are {', '.join(ROUTINES)}")
    library = _loaded()
    if library.cut is None or routine.startswith(_UNTILED) or not routine.endswith("gemm"):
        return library.addresses[routine.removeprefix(_UNTILED)]
    with _lock:
        if routine not in library.cut:
            library.cut[routine] = _tiled(routine, library)
    return library.cut[routine]


def set_num_threads(n: SupportsIndex) -> None:
    """Set the number of threads of a gemm, which is the number of threads of all parallel regions (`threads.pool`).

    The routines of SciPy, if they are used, keep their own number. Raises TypeError if `n` is not an integer,
    ValueError if it is not from 1 to 1024.

    >>> before = get_num_threads()
    >>> set_num_threads(1)
    >>> get_num_threads()
    1
    >>> set_num_threads(before)
    """
    pool.set_num_threads(n)


def get_num_threads() -> int:
    """The number of threads that a gemm may use; see `pool.num_threads`.

    >>> get_num_threads() >= 1
    True
    """
    return pool.num_threads()


def info() -> dict[str, object]:
    """Describe the library: "provider" (a package), "config" and "core" (its own words), "threads".

    Loads the library.

    >>> sorted(info())
    ['config', 'core', 'provider', 'threads']
    """
    library = _loaded()
    return {
        "provider": library.provider,
        "config": library.config,
        "core": library.core,
        "threads": get_num_threads(),
    }


def _loaded() -> _BlasLibrary:
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _private_openblas() or _scipy_blas()
    return _library


def _private_openblas() -> _BlasLibrary | None:
    """The library of `scipy-openblas32`, or None if it cannot be used."""
    path = _openblas_path()
    if path is None:
        return None
    settings = {"OPENBLAS_NUM_THREADS": "1"}
    core = _core_type()
    if core is not None and "OPENBLAS_CORETYPE" not in os.environ:
        settings["OPENBLAS_CORETYPE"] = core
    try:
        with _environment(settings):
            library = _load_privately(path)
        library.scipy_openblas_set_num_threads(1)
        addresses = {name: _function_address(library, f"scipy_{name}_") for name in ROUTINES}
        copies = {f"{kind}omatcopy": _function_address(library, f"scipy_{kind}omatcopy_") for kind in "sd"}
        config, core = _text(library, "get_config"), _text(library, "get_corename")
    except (OSError, AttributeError):
        return None
    return _BlasLibrary("scipy-openblas32", config, core, addresses | copies, {})


def _openblas_path() -> Path | None:
    """The path of the library. The package is found without an import, because its import would load the library
    globally."""
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(folder, "lib").glob("*openblas*")):
            if path.suffix in {".so", ".dylib", ".dll"}:
                return path
    return None


def _core_type() -> str | None:
    """The OpenBLAS kernels for this CPU, or None to let OpenBLAS choose."""
    import llvmlite.binding as llvm  # slow to import

    if llvm.get_process_triple().split("-", 1)[0] != "x86_64":
        return None
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:
        return None
    needed = ("avx512f", "avx512dq", "avx512bw", "avx512vl")
    return "SkylakeX" if all(features.get(feature) for feature in needed) else None


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside a `with` statement."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _load_privately(path: Path) -> ctypes.CDLL:
    """Load a private copy of the library.

    The system loads a file once. If another package has loaded it before, its kernels and threads are already chosen;
    then a copy of the file gives a separate library.
    """
    if sys.platform == "win32":
        return ctypes.CDLL(str(path))
    # Deep binding: symbols of the copy must not resolve to a globally loaded library with the same names.
    mode = os.RTLD_LOCAL | os.RTLD_NOW | getattr(os, "RTLD_DEEPBIND", 0)
    try:
        ctypes.CDLL(str(path), mode=mode | os.RTLD_NOLOAD)
    except OSError:
        return ctypes.CDLL(str(path), mode=mode)
    with tempfile.TemporaryDirectory(prefix="tracegrad-") as folder:
        return ctypes.CDLL(shutil.copy(path, folder), mode=mode)


def _function_address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(library[name], ctypes.c_void_p).value or 0


def _text(library: ctypes.CDLL, query: str) -> str:
    function = library[f"scipy_openblas_{query}"]
    function.restype = ctypes.c_char_p
    value: bytes = function()
    return value.decode()


def _tiled(name: str, library: _BlasLibrary) -> int:
    """The multi-threaded gemm, built from single-threaded gemm, syrk and copies, and from the generated GEMM where it
    is as fast."""
    for routine in ("gemm", "syrk", "omatcopy"):
        jit.define_symbol(f"{_RAW}{name[0]}{routine}", library.addresses[name[0] + routine])
    jit.define_symbol(_PARALLEL_FOR, pool.parallel_for_address())
    jit.define_symbol(_LIMIT, pool.limit_address())
    params = (
        _template_params(name, _tiling(library.core)) | _generated_gemm(name, library.core) | {"mirror": _mirror(name)}
    )
    source = parallel_gemm.GEMM_ENTRY.substitute(params) + _tiled_source(name, params, _owned(library.core))
    return jit.compile_forever(source, name)[0]


def _owned(core: str) -> Template:
    """The selection of products for the generated GEMM: for AVX2 without longer vectors, and for the AVX-512 CPUs on
    which it is known to be faster."""
    if {"avx2", "fma"} <= features() and "avx512f" not in features():
        return gemm_selection.SMALL_OR_SLIM
    return (
        gemm_selection.PACKED_OTHERWISE
        if has_small_kernels() and core in parallel_gemm.UNPACKED
        else gemm_selection.NONE
    )


def _generated_gemm(name: str, core: str) -> dict[str, str]:
    """The symbol of the generated GEMM, if it is used."""
    if _owned(core) is gemm_selection.NONE:
        return {"own": "null", "declare_own": ""}
    symbol = _of_type(GEMM, name)
    jit.define_symbol(symbol, jit.load_ir(lambda: gemm_module(symbol), symbol, "written").address(symbol))
    return {"own": f"@{symbol}", "declare_own": f"declare void @{symbol}({', '.join(['ptr'] * 13)})"}


def _mirror(name: str) -> str:
    """The function that copies one triangle of a matrix to the other (`tracegrad.codegen.libs.block_transpose`)."""
    symbol = _of_type(MIRROR, name)
    jit.define_symbol(symbol, jit.load_ir(lambda: mirror_module(symbol), symbol, "glue", 3).address(symbol))
    return f"@{symbol}"


def _of_type(prefix: str, name: str) -> str:
    return prefix + ("f32" if name.startswith("s") else "f64")


def _tiling(core: str) -> dict[str, str]:
    """The tiling parameters of this machine, for the OpenBLAS kernels `core`."""
    without_end = 1 << 62
    return {
        "unpacked": str(parallel_gemm.UNPACKED.get(core, without_end)),
        "at_once": str(parallel_gemm.UNPACKED.get(core, -1)),
        "largest": str(tuning().blas.max_unpacked_work),
        "small_a": str(parallel_gemm.SMALL_A),
        "tiles": str(min(4, 1 << ((os.cpu_count() or 4) - 1).bit_length())),
        "joins": "true" if core in parallel_gemm.JOINED else "false",
        "parallel_for": f"@{_PARALLEL_FOR}",
        "limit": f"@{_LIMIT}",
    }


def _tiled_source(name: str, params: dict[str, str], owns: Template) -> str:
    whole = parallel_gemm.TILED.substitute(params, **_field_accesses(f"%call_{name}", parallel_gemm.FIELDS))
    uses_generated = owns is gemm_selection.PACKED_OTHERWISE
    chosen = (
        {"by_own": "true", "routine": params["own"]}
        if uses_generated
        else {"by_own": "false", "routine": params["raw"]}
    )
    half = syrk.SYMMETRIC.substitute(params, **chosen, **_field_accesses(f"%symmetric_{name}", syrk.FIELDS))
    copies = pack_operand.COPIED.substitute(params, **_field_accesses(f"%copied_{name}", pack_operand.FIELDS))
    return owns.substitute(params) + whole + half + copies


def _template_params(name: str, tiling: dict[str, str]) -> dict[str, str]:
    """The template parameters of a gemm."""
    single = name.startswith("s")
    joins = tiling["joins"] == "true"
    joins_columns = single and joins
    return (
        tiling
        | gemm_selection.PARAMETERS[name]
        | {
            "name": name,
            "type": "float" if single else "double",
            "narrow": "128" if single and not joins_columns else "64",
            "narrowest": "32" if joins_columns else "128" if single else "64",
            "alone": str(_serial_work(single, joins)),
            "step": "12" if joins_columns else "16",
            "joins_rows": "false" if single else "true",
            "raw": f"@{_RAW}{name}",
            "syrk": f"@{_RAW}{name[0]}syrk",
            "copy": f"@{_RAW}{name[0]}omatcopy",
            "bytes": "4" if single else "8",
            "line": "16" if single else "8",
            "part": str(pack_operand.PACKED_COLUMNS),
        }
    )


def _serial_work(single: bool, joins: bool) -> int:
    """The multiply-adds of a product from which on it is cut into tiles for threads."""
    limits = tuning().blas
    if single:
        return limits.serial_work
    return limits.serial_work_of_joined_doubles if joins else limits.serial_work_of_doubles


def _field_accesses(struct: str, fields: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The code by which a call stores the parameters of its tiles, and by which the tiles load them."""
    field_pointer = f"getelementptr {struct}, ptr %call, i32 0, i32"
    store, load = [], []
    for index, (field, kind) in enumerate(fields):
        store += [f"  %at_{field} = {field_pointer} {index}", f"  store {kind} %{field}, ptr %at_{field}"]
        load += [f"  %at_{field} = {field_pointer} {index}", f"  %{field} = load {kind}, ptr %at_{field}"]
    return {"store": "\n".join(store), "load": "\n".join(load)}


def _scipy_blas() -> _BlasLibrary:
    """The BLAS that SciPy is linked with, by the function pointers SciPy publishes."""
    functions: dict[str, object] = {}
    for name in ("lapack", "blas"):
        functions |= importlib.import_module(f"scipy.linalg.cython_{name}").__pyx_capi__
    build = importlib.import_module("scipy").show_config(mode="dicts")["Build Dependencies"]["blas"]
    return _BlasLibrary(
        provider="scipy",
        config=f"{build.get('name', '')} {build.get('version', '')}".strip(),
        core="",
        addresses={name: _capsule_address(functions[name]) for name in ROUTINES},
    )


def _capsule_address(capsule: object) -> int:
    """The function pointer in a Cython capsule, whose name is the type of the function."""
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name: bytes = get_name(capsule)
    if not re.search(rb"\bint \*", name):
        raise ImportError(f"SciPy's BLAS does not take 32-bit integers: {name.decode()}")
    pointer: int = get_pointer(capsule, name)
    return pointer


if hasattr(os, "register_at_fork"):
    # A fork waits for the lock, so that no child inherits a half-loaded library.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
