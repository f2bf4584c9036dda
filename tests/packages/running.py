"""Environments with the packages in them, and runs of their tests: with autograd itself, and with tracegrad for it."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from packages.catalogue import Package

__all__ = ["Row", "folder", "installed", "run"]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
Row = dict[str, Any]

# In the place of autograd: its name, with tracegrad's face behind it.
FACE = """import sys

del sys.modules[__name__]
import tracegrad.compat.autograd

tracegrad.compat.autograd.install()
import autograd
"""


def folder() -> Path:
    """Where all this is kept between runs."""
    result = Path(tempfile.gettempdir()) / f"tracegrad-packages-{getpass.getuser()}"
    result.mkdir(exist_ok=True)
    return result


def _python() -> Path:
    return folder() / "venv" / "bin" / "python"


def _called(*command: Any, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(x) for x in command], capture_output=True, text=True, check=check)


def _environment() -> None:
    """The environment, with what tracegrad and pytest need."""
    if _python().exists():
        return
    _called(sys.executable, "-m", "venv", folder() / "venv")
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    _called(_python(), "-m", "pip", "install", "-q", *project["dependencies"], "pytest", "autograd")


def installed(package: Package) -> str:
    """Install a package and fetch its tests; an error message if that fails, else nothing."""
    _environment()
    done = folder() / "tests" / package.name
    if done.exists():
        return ""
    wanted = f"{package.name}=={package.version}"
    for names in ([wanted], package.needs):
        if names:
            result = _called(_python(), "-m", "pip", "install", "-q", *names, check=False)
            if result.returncode and names == [wanted]:
                return result.stderr.strip().splitlines()[-1]
    return _fetched(package, wanted, done)


def _fetched(package: Package, wanted: str, done: Path) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        if package.source == "installed":
            result = next((folder() / "venv").glob(f"lib/*/site-packages/{package.tests}"))
        elif package.source == "programs":
            result = HERE / "programs" / package.tests
        else:
            options = ("--no-deps", "--no-binary", package.name, "-d", place)
            output = _called(_python(), "-m", "pip", "download", "-q", *options, wanted, check=False)
            if output.returncode:
                return output.stderr.strip().splitlines()[-1]
            with tarfile.open(next(place.glob("*.tar.gz"))) as archive:
                archive.extractall(place, filter="data")
            result = next(place.glob(f"*/{package.tests}"))
        # The tests alone: beside them, the sources would take the place of what is installed.
        if result.is_dir():
            shutil.copytree(result, done / result.name)
        else:
            done.mkdir(parents=True)
            shutil.copy(result, done / f"test_{result.name}")
            shutil.copy(HERE / "programs" / "gradients.py", done)
    return ""


def run(package: Package, face: bool, limit: float, each: float) -> dict[str, Row]:
    """What became of each test of a package, by its name; in at most `limit` seconds, `each` for one."""
    outcomes = folder() / f"{package.name}.{'tracegrad' if face else 'autograd'}.jsonl"
    outcomes.unlink(missing_ok=True)
    plugin, shim = _shim()
    path = [*([str(shim)] if face else []), str(plugin)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "PACKAGES_OUTCOMES": str(outcomes),
        "PACKAGES_SECONDS": str(int(each)),
        "PYTHONHASHSEED": "0",
        "MPLBACKEND": "Agg",
        "TRACEGRAD_CACHE_DIR": str(folder() / "cache"),
        "GEOMSTATS_BACKEND": "autograd",
        "TRACEGRAD_OPAQUE": "pandas",
    }
    arguments = (
        "-p",
        "recorder",
        "-p",
        "no:cacheprovider",
        "-q",
        "--continue-on-collection-errors",
        "-W",
        "ignore",
        "-o",
        "addopts=",
        "-c",
        os.devnull,
    )
    place = folder() / "tests" / package.name
    command = [_python(), "-m", "pytest", *arguments, "--rootdir", place, *package.arguments, *package.only]
    with open(outcomes.with_suffix(".log"), "w", encoding="utf-8") as log:
        process = subprocess.Popen([str(x) for x in command], cwd=place, env=environment, stdout=log, stderr=log)
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if not outcomes.exists():
        return {}
    rows = map(json.loads, outcomes.read_text(encoding="utf-8").splitlines())
    return {row["test"]: row for row in rows}


def _shim() -> tuple[Path, Path]:
    """The folders with the plugin, and with what takes the place of autograd."""
    plugin, shim = folder() / "plugin", folder() / "face"
    plugin.mkdir(exist_ok=True)
    shutil.copy(HERE / "recorder.py", plugin)
    (shim / "autograd").mkdir(parents=True, exist_ok=True)
    (shim / "autograd" / "__init__.py").write_text(FACE, encoding="utf-8")
    link = shim / "tracegrad"
    if not link.is_symlink() or link.resolve() != (ROOT / "tracegrad").resolve():
        link.unlink(missing_ok=True)
        link.symlink_to(ROOT / "tracegrad")
    return plugin, shim
