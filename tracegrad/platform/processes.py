"""Processes: what happens when one forks, the CPUs that one may use, and its instruction set."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

_SAME = {"amd64": "x86_64", "arm64": "aarch64"}  # the names that Windows and macOS use


def at_fork(
    before: Callable[[], object] | None = None,
    in_parent: Callable[[], object] | None = None,
    in_child: Callable[[], object] | None = None,
) -> None:
    """Call functions when this process forks; Windows has no fork, so nothing is called there.

    >>> at_fork(in_child=lambda: None)
    """
    register = getattr(os, "register_at_fork", None)
    if register is not None:
        functions = {"before": before, "after_in_parent": in_parent, "after_in_child": in_child}
        register(**{name: function for name, function in functions.items() if function is not None})


def system_name() -> str:
    """The name of the system for people.

    >>> system_name() != ""
    True
    """
    return {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)


def usable_cpus() -> int:
    """The number of CPUs that this process may run on; macOS and Windows before Python 3.13 tell all CPUs.

    >>> 1 <= usable_cpus() <= os.cpu_count()
    True
    """
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def instruction_set() -> str:
    """The instruction set of this process: "x86_64", "aarch64", or the system's name of another.

    `platform.machine` starts a slow query on Windows, and gives the CPU's, not that of an emulated process.

    >>> instruction_set() != ""
    True
    """
    if sys.platform == "win32":
        # For instance "3.13.0 (tags/v3.13.0:60403a5, Oct  7 2024, 09:38:07) [MSC v.1941 64 bit (AMD64)]".
        name = sys.version.rpartition("(")[2].rstrip(")] ")
    else:
        name = os.uname().machine
    return _SAME.get(name.lower(), name)
