"""Shared libraries: the C library, functions of it that machine code calls, and private copies of others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

# The functions that compiled code calls: by name, because the CPU has no such instruction, or because LLVM recognizes
# what they do, such as `calloc`, whose memory must be that of the C library with `free`. The keys are the libraries of
# Windows that export them: the universal C runtime, which is Python's, the runtime of Microsoft's compiler, and the
# system itself. A library without a path is searched among those that the process has, then in the system's folder.
_OF_WINDOWS = {
    "ucrtbase": "malloc calloc realloc free fmod fmodf floor floorf ceil ceilf trunc truncf rint rintf fma fmaf",
    "vcruntime140": "memcpy memmove memset",
    "ntdll": "__chkstk",  # touches each page of a large stack frame, in order
}
SUFFIXES = (".so", ".dylib", ".dll")


@cache
def c_library() -> ctypes.CDLL:
    """The C library of Python, in which memory is freed that machine code allocates.

    >>> c_library()["free"] is not None
    True
    """
    return ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)


def address(library: ctypes.CDLL, name: str) -> int:
    """The address of a function in a library; AttributeError if it has none of that name."""
    return ctypes.cast(library[name], ctypes.c_void_p).value or 0


def c_functions() -> dict[str, int]:
    """Addresses of C functions, by name, that LLVM is to be told.

    On POSIX systems LLVM finds the functions of the process by name, and none is returned. A process of Windows may
    have several C libraries, of which LLVM takes any.
    """
    if sys.platform != "win32":
        return {}
    results = {}
    for library, names in _OF_WINDOWS.items():
        for name in names.split():
            with contextlib.suppress(OSError, AttributeError):  # then it is LLVM's to find
                results[name] = address(ctypes.CDLL(library), name)
    return results


def library_in(folder: Path, name: str) -> Path | None:
    """The shared library in a folder whose file name contains `name`; None if there is none.

    Import libraries (`*.lib`) and links with versions (`*.so.0`) do not count.
    """
    return next((path for path in sorted(folder.glob(f"*{name}*")) if path.suffix in SUFFIXES), None)


def library_of(extension: Path, name: str) -> ctypes.CDLL:
    """The library with `name` in its file name that an extension module of an installed package is linked with.

    Elsewhere the functions of a library are found through one that is linked with it. Windows looks for a function in
    one file only; wheels have the libraries for it in a folder `<package>.libs` beside the package. Raises OSError.
    """
    if sys.platform != "win32":
        return ctypes.CDLL(str(extension))
    for package in extension.parents:
        folder = package.parent / f"{package.name}.libs"
        path = library_in(folder, name) if folder.is_dir() else None
        if path is not None:
            return ctypes.CDLL(str(path))
    raise OSError(f"no library {name} of {extension}")


def load_privately(path: Path) -> ctypes.CDLL:
    """Load a copy of a library that no other part of the process uses. Raises OSError.

    The system loads a file once. If another package has loaded it before, its state is already chosen; then a copy of
    the file gives a separate library. Windows cannot remove the file of a library while it is loaded, so there is no
    copy. It searches the libraries that a library needs only in system folders and beside it.
    """
    if sys.platform == "win32":
        return ctypes.CDLL(str(path))
    # Deep binding: symbols of the copy must not resolve to a globally loaded library with the same names. macOS binds
    # each symbol to the library that it was linked with, and has no such flag.
    mode = os.RTLD_LOCAL | os.RTLD_NOW | getattr(os, "RTLD_DEEPBIND", 0)
    try:
        ctypes.CDLL(str(path), mode=mode | os.RTLD_NOLOAD)
    except OSError:
        return ctypes.CDLL(str(path), mode=mode)
    with tempfile.TemporaryDirectory(prefix="tracegrad-") as folder:
        return ctypes.CDLL(shutil.copy(path, folder), mode=mode)
