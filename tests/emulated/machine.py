"""A machine of 64-bit ARM in a folder: Debian's packages and the wheels for it, run by QEMU.

Nothing is installed, and no privilege is needed: apt downloads packages of another architecture into the folder, from
the machine's own sources, and pip unpacks wheels of another platform.
"""

from __future__ import annotations

import getpass
import os
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

from debian import apt_get, run, unpack
from paths import ROOT

__all__ = ["EMULATOR", "environment", "folder", "prepare", "python"]

EMULATOR = "qemu-aarch64-static"
# What the interpreter and the wheels are linked with; apt adds what these need.
DEBIAN = ("python3-minimal", "libpython3-stdlib", "libstdc++6", "libgomp1")
PLATFORMS = [f"manylinux_2_{minor}_aarch64" for minor in range(17, 37)] + ["manylinux2014_aarch64", "any"]
TEST_PACKAGES = ("pytest", "pytest-xdist", "hypothesis", "mpmath", "optree", "cloudpickle")


def folder() -> Path:
    """Where the machine is kept between runs."""
    result = Path(tempfile.gettempdir()) / f"tracegrad-emulated-{getpass.getuser()}"
    result.mkdir(exist_ok=True)
    return result


def prepare() -> None:
    """Make the machine, if there is none yet."""
    if shutil.which(EMULATOR) is None:
        raise SystemExit(f"there is no {EMULATOR} here: install Debian's qemu-user-static")
    if not (folder() / "root").exists():
        _unpack_debian()
    if not (folder() / "site").exists():
        _unpack_wheels()


def _unpack_debian() -> None:
    apt, begun = folder() / "apt", folder() / "root.begun"
    command = apt_get(apt, {"APT::Architecture": "arm64", "APT::Architectures": "arm64"})
    run(*command, "--download-only", "install", *DEBIAN)
    unpack(apt, begun)
    begun.rename(folder() / "root")


def interpreter() -> Path:
    """Debian's Python, behind its symbolic links."""
    return (folder() / "root" / "usr" / "bin" / "python3").resolve()


def _unpack_wheels() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = interpreter().name.removeprefix("python")
    tag = version.replace(".", "")
    begun = folder() / "site.begun"
    options = ["--python-version", version, "--implementation", "cp"]
    for abi in (f"cp{tag}", "abi3", "none"):
        options += ["--abi", abi]
    for platform in PLATFORMS:
        options += ["--platform", platform]
    # The byte code of this interpreter is that of the emulated one if their versions are the same.
    compiles = f"{sys.version_info[0]}.{sys.version_info[1]}" == version
    options += ["--compile" if compiles else "--no-compile"]
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--target", begun, *options),
        *project["dependencies"],
        *TEST_PACKAGES,
    )
    begun.rename(folder() / "site")
    # Programs that tests start begin with `sys.executable`, which this machine cannot run without the emulator.
    Path(python()).write_text(
        f'#!/bin/sh\nexec {EMULATOR} -L {folder() / "root"} {interpreter()} "$@"\n', encoding="utf-8"
    )
    Path(python()).chmod(0o755)
    site = folder() / "site" / "sitecustomize.py"
    site.write_text(f"import sys\n\nsys.executable = {python()!r}\n", encoding="utf-8")


def environment(cpu: str, features: str) -> dict[str, str]:
    """The variables of an emulated process, without settings of this machine's Python: a cache of its own, and the CPU,
    which LLVM would look for in this machine's /proc."""
    result = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRACEGRAD_"))}
    result["PYTHONPATH"] = os.pathsep.join(map(str, (folder() / "site", ROOT)))
    result["TRACEGRAD_CACHE_DIR"] = str(folder() / "cache")
    result["QEMU_CPU"] = result["NUMBA_CPU_NAME"] = cpu
    if features:
        result["NUMBA_CPU_FEATURES"] = features
    return result


def python() -> str:
    """The command that starts the emulated Python."""
    return str(folder() / "python")
