"""Restrict access to files and processes in traced code.

Reading a file is refused, because its content may differ at each call. A function that writes a file or runs another
process runs as plain Python at each call. Whether a file exists is a guard, checked at each call.
"""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tracegrad import tree
from tracegrad.trace.builder.builder import current_trace, repeats
from tracegrad.trace.proxies.ambient_state import reader
from tracegrad.trace.proxies.logging_proxy import by_value
from tracegrad.trace.random.rejected_reads import ClassProxy, refuse
from tracegrad.trace.values.text_conversions import handed_over, reads

_OUTSIDE = "read the file outside of it and pass what it holds"


def _reading(real: Callable[..., object], name: str) -> Callable[..., Any]:
    read = reads(real, name, "what was written")

    @functools.wraps(real)
    def call(*args: object, **kwargs: object) -> Any:
        return refuse(name, "read", _OUTSIDE) if repeats() else read(*args, **kwargs)

    return call


def _doing(real: Callable[..., object], name: str) -> Callable[..., Any]:
    @functools.wraps(real)
    def call(*args: object, **kwargs: object) -> Any:
        return _refuse_effect(name) if repeats() else by_value(real, args, kwargs)

    return call


def _running(real: Callable[..., object], name: str) -> Callable[..., Any]:
    do = _doing(real, name)

    @functools.wraps(real)
    def call(*args: object, **kwargs: object) -> Any:
        for x in tree.leaves((args, kwargs)):
            handed_over(x, name)
        return do(*args, **kwargs)

    return call


def _refuse_effect(name: str) -> NoReturn:
    trace: Any = current_trace()
    raise trace.abort(f"{name} is to happen at each call; do it outside to have the function compiled")


def _opening(real: Callable[..., object], name: str) -> Callable[..., object]:
    @functools.wraps(real)
    def call(file: object, mode: str = "r", *args: object, **kwargs: object) -> Any:
        if not repeats():
            return real(file, mode, *args, **kwargs)
        if "r" in mode or "+" in mode:
            refuse(name, "read", _OUTSIDE)
        _refuse_effect(f"what {name} writes")

    return call


# The replacements, by the id of the replaced object.
FILES: dict[int, Any] = {id(open): _opening(open, "open")}


def _enter(module: Any, around: Callable[..., object], *names: str) -> None:
    for name in names:
        real = getattr(module, name, None)
        if real is not None:
            FILES[id(real)] = around(real, f"{module.__name__}.{name}")


_enter(np, _reading, "load", "loadtxt", "genfromtxt", "fromfile", "fromregex")
_enter(np, _doing, "save", "savez", "savez_compressed", "savetxt")
_enter(os, _reading, "stat", "lstat", "fstat", "scandir", "walk", "fwalk", "read", "readlink", "access", "popen")
_enter(os, _doing, "write", "open", "mkdir", "makedirs", "remove", "unlink", "rmdir", "removedirs", "rename", "renames",
       "replace", "link", "symlink", "utime", "chmod", "truncate", "chdir", "system", "kill", "fork")  # fmt: skip

# Functions by module and name, because the modules may not be imported.
_NAMES = {
    "glob": (_reading, ("glob", "iglob")),
    "shutil": (_doing, ("copy", "copy2", "copyfile", "copytree", "move", "rmtree")),
    "subprocess": (
        _running,
        ("run", "call", "check_call", "check_output", "getoutput", "getstatusoutput", "Popen"),
    ),
}


def file_by_name(value: Callable[..., object] | type) -> object:
    """The stand-in of a function or class of one of these modules; None for others."""
    around, names = _NAMES.get(value.__module__, (_reading, ()))
    return around(value, f"{value.__module__}.{value.__name__}") if value.__name__ in names else None


# -- paths -----------------------------------------------------------------------------------------------------
_KIND: Any = type(pathlib.Path())


class _PathProxy(_KIND):  # type: ignore[misc]
    """Proxy of a path."""

    __slots__ = ()
    open = _opening(pathlib.Path.open, "Path.open")


def _method(name: str, reread: Callable[..., object]) -> Any:
    def method(self: object, *args: object, **kwargs: object) -> Any:
        return reread(str(self), *args, **kwargs) if repeats() else getattr(_KIND, name)(self, *args, **kwargs)

    return functools.wraps(getattr(_KIND, name))(method)


_REREAD_METHODS = {
    "exists": os.path.exists,
    "is_file": os.path.isfile,
    "is_dir": os.path.isdir,
    "is_symlink": os.path.islink,
}
for _name, _reader in _REREAD_METHODS.items():
    setattr(_PathProxy, _name, _method(_name, reader(_reader)))


def _location_method(name: str) -> Callable[..., Any]:
    """A path method that depends on the working directory or the user of the process."""

    def result(*args: object, **kwargs: object) -> str:
        return str(getattr(_KIND(args[0]) if args else _KIND, name)(*args[1:], **kwargs))

    result.__name__ = f"Path.{name}"
    reread = reader(result)
    return lambda *args, **kwargs: _PathProxy(reread(*args, **kwargs))


for _name in ("absolute", "expanduser", "resolve"):
    setattr(_PathProxy, _name, _method(_name, _location_method(_name)))
_OF_PROCESS = {name: _location_method(name) for name in ("cwd", "home")}
for _name, _reader in _OF_PROCESS.items():
    setattr(_PathProxy, _name, staticmethod(_reader))
for _name in ("read_text", "read_bytes", "stat", "lstat", "iterdir", "glob", "rglob", "owner", "group", "samefile"):
    setattr(_PathProxy, _name, _reading(getattr(_KIND, _name), f"Path.{_name}"))
for _name in ("write_text", "write_bytes", "touch", "mkdir", "rmdir", "unlink", "rename", "replace", "chmod"):
    setattr(_PathProxy, _name, _doing(getattr(_KIND, _name), f"Path.{_name}"))


def path(real: object) -> Any:
    """The proxy of a path."""
    return _PathProxy(real) if type(real) is _KIND else real


_OF_PATHS: Any = {"__call__": _PathProxy, **_OF_PROCESS}
_MAPS: Any = {"__call__": _reading(np.memmap, "numpy.memmap")}
for _cls, _other in ((pathlib.Path, _OF_PATHS), (_KIND, _OF_PATHS), (np.memmap, _MAPS)):
    FILES[id(_cls)] = ClassProxy(_cls.__name__, (), {"real": _cls, "other": _other})
