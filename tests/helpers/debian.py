"""Debian's packages without privileges: apt with a folder of its own, where packages are unpacked, not installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["apt_get", "run", "unpack"]


def run(*command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program; the end of what it said, as SystemExit, if it fails."""
    result = subprocess.run([str(x) for x in command], capture_output=True, text=True, check=False)
    if check and result.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result


def apt_get(folder: Path, settings: dict[str, object]) -> list[str]:
    """The command `apt-get` with its lists and packages in a folder, up to date, as if nothing were installed here."""
    for name in ("lists", "archives"):
        (folder / name / "partial").mkdir(parents=True, exist_ok=True)
    every = {
        "Dir::State": folder,
        "Dir::State::Lists": folder / "lists",
        "Dir::State::Status": "/dev/null",
        "Dir::Cache": folder,
        "Dir::Cache::Archives": folder / "archives",
        "Debug::NoLocking": 1,
        "APT::Sandbox::User": "",
        "APT::Install-Recommends": "false",
        **settings,
    }
    command = ["apt-get", "--yes", "--quiet", *[f"-o{name}={x}" for name, x in every.items()]]
    run(*command, "update")
    return command


def unpack(folder: Path, root: Path) -> None:
    """Unpack the packages that `apt_get` has downloaded into this folder."""
    for package in sorted((folder / "archives").glob("*.deb")):
        run("dpkg-deb", "--extract", package, root)
