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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tracegrad.codegen.libs.block_transpose import MIRROR, mirror_module
from tracegrad.codegen.libs.gemm import GEMM, gemm_module
from tracegrad.locks import reentrant_lock
from tracegrad.platform import libraries
from tracegrad.platform.processes import at_fork
from tracegrad.runtime.blas.parallel_gemm import LIMIT, PARALLEL_FOR, gemm_source, openblas
from tracegrad.runtime.compile import jit
from tracegrad.runtime.threads import pool
from tracegrad.settings import settings
from tracegrad.target.products import gemm_policy, preferred_core
from tracegrad.utils.lazy_dataclass import record

_PACKAGE = "scipy_openblas32"
ROUTINES = tuple(
    f"{kind}{name}" for kind in "sd" for name in ("gemm", "gemv", "syrk", "trsm", "potrf", "gesv", "getrf")
)

_UNTILED = "blas_"  # the prefix of a routine that is the library's own


@record(frozen=True, slots=True)
class _BlasLibrary:
    """A BLAS provider: the addresses of its routines, and its description."""

    provider: str
    config: str
    core: str
    addresses: Mapping[str, int]
    cut: dict[str, int] | None = None  # multi-threaded gemms, made at first use; None if SciPy is used


_lock = reentrant_lock()
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
        "threads": settings.thread_count(),
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
    variables = {"OPENBLAS_NUM_THREADS": "1"}
    core = preferred_core()
    if core is not None and "OPENBLAS_CORETYPE" not in os.environ:
        variables["OPENBLAS_CORETYPE"] = core
    try:
        with _environment(variables):
            library = libraries.load_privately(path)
        library.scipy_openblas_set_num_threads(1)
        addresses = {name: libraries.address(library, f"scipy_{name}_") for name in ROUTINES}
        copies = {f"{kind}omatcopy": libraries.address(library, f"scipy_{kind}omatcopy_") for kind in "sd"}
        config, core = _text(library, "get_config"), _text(library, "get_corename")
    except (OSError, AttributeError):
        return None
    return _BlasLibrary("scipy-openblas32", config, core, addresses | copies, {})


def _openblas_path() -> Path | None:
    """The path of the library. The package is found without an import, because its import would load the library
    globally."""
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = libraries.library_in(Path(folder, "lib"), "openblas")
        if path is not None:
            return path
    return None


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside a `with` statement."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _text(library: ctypes.CDLL, query: str) -> str:
    function = library[f"scipy_openblas_{query}"]
    function.restype = ctypes.c_char_p
    value: bytes = function()
    return value.decode()


def _tiled(name: str, library: _BlasLibrary) -> int:
    """The multi-threaded gemm, built from single-threaded gemm, syrk and copies, and from the generated GEMM where it
    is as fast."""
    letter, dtype = name[0], "f32" if name.startswith("s") else "f64"
    for routine in ("gemm", "syrk", "omatcopy"):
        jit.define_symbol(openblas(letter + routine), library.addresses[letter + routine])
    jit.define_symbol(PARALLEL_FOR, pool.parallel_for_address())
    jit.define_symbol(LIMIT, pool.limit_address())
    policy = gemm_policy(letter == "s", library.core)
    generated, mirror = GEMM + dtype, MIRROR + dtype
    if policy.generated != "none":
        jit.define_symbol(
            generated, jit.load_ir(lambda: gemm_module(generated), generated, "written").address(generated)
        )
    jit.define_symbol(mirror, jit.load_ir(lambda: mirror_module(mirror), mirror, "glue", 3).address(mirror))
    return jit.compile_forever(gemm_source(name, policy, generated, mirror), name)[0]


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


# A fork waits for the lock, so that no child inherits a half-loaded library.
at_fork(_lock.acquire, _lock.release, _lock.release)
