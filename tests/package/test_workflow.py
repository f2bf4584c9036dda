"""The workflow of continuous integration runs the suite on what the package says that it supports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from paths import ROOT

from tracegrad.cpython.instruction_set import FIRST_UNKNOWN

# The beginnings of the names of GitHub's machines, by system and instruction set.
SYSTEMS = {
    "Linux on x86-64": r"ubuntu-[\d.]+$",
    "Linux on ARM": r"ubuntu-[\d.]+-arm$",
    "macOS on ARM": r"macos-\d+$",
    "Windows": r"windows-\d+$",
}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PREFIX = "Programming Language :: Python :: "


def allowed() -> list[str]:
    """The versions of Python that pip accepts."""
    bounds = SpecifierSet(PROJECT["requires-python"])
    return [f"3.{minor}" for minor in range(40) if f"3.{minor}" in bounds]


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert [*workflow["jobs"]] == ["suite"]
    return workflow["jobs"]["suite"]  # type: ignore[no-any-return]


def test_classifiers_are_the_versions_that_pip_accepts() -> None:
    versions = [x.removeprefix(PREFIX) for x in PROJECT["classifiers"] if re.match(rf"{PREFIX}3\.\d+$", x)]
    assert versions == allowed()


def test_instructions_are_known_of_each_python_that_pip_accepts() -> None:
    major, minor = FIRST_UNKNOWN
    assert allowed()[-1] == f"{major}.{minor - 1}"


def test_the_suite_runs_on_each_python_that_pip_accepts(job: dict[str, Any]) -> None:
    versions = job["strategy"]["matrix"]["python"]
    assert all(isinstance(x, str) for x in versions), "3.10 is not 3.1"
    assert [x for x in versions if not x.endswith("t")] == allowed()
    free_threaded = {x.removesuffix("t") for x in versions if x.endswith("t")}
    assert free_threaded
    assert free_threaded <= {*allowed()}


def test_the_suite_runs_on_each_system(job: dict[str, Any]) -> None:
    names = job["strategy"]["matrix"]["system"]
    assert job["runs-on"] == "${{ matrix.system }}"
    assert len(names) == len(SYSTEMS)
    assert {system for system, pattern in SYSTEMS.items() if any(re.match(pattern, x) for x in names)} == {*SYSTEMS}
    assert not job["strategy"]["fail-fast"]
    assert "exclude" not in job["strategy"]["matrix"]


def test_the_job_runs_the_script_with_the_python_of_the_matrix(job: dict[str, Any]) -> None:
    setup, run = job["steps"][-2:]
    assert setup["with"] == {"python-version": "${{ matrix.python }}"}
    expected = {"PYTHON": f"${{{{ steps.{setup['id']}.outputs.python-path }}}}"}
    assert run == {"run": ".ci/run", "shell": "bash", "env": expected}
    assert (ROOT / run["run"]).is_file()


# -- the script --------------------------------------------------------------------------------------------------------
def ran(tmp_path: Path, **pythons: str) -> subprocess.CompletedProcess[str]:
    """Run the script where only these interpreters are on the path, each by a shell script."""
    for name, script in pythons.items():
        file = tmp_path / name.replace("_", ".")
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    return subprocess.run([ROOT / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False)


NONE = "exit 9"  # what is not allowed, such as Windows's program that offers to install Python


@pytest.mark.skipif(os.name != "posix", reason="makes shell scripts")
def test_the_script_takes_the_first_python_that_pip_accepts(tmp_path: Path) -> None:
    newest = allowed()[-1].replace(".", "_")
    versions = {f"python{x.replace('.', '_')}": NONE for x in allowed()}
    chosen = f'[ "$1" = -c ] && exec {sys.executable} "$@"; echo "chosen: $0 $*"; exit 1'
    run = ran(tmp_path, python3=NONE, python=NONE, **versions)
    assert run.returncode == 2
    assert f"no Python from {allowed()[0]} to {allowed()[-1]} on the path" in run.stderr
    run = ran(tmp_path, python3=NONE, python=NONE, **{**versions, f"python{newest}": chosen})
    assert run.returncode == 2
    assert f"chosen: {tmp_path}/python{allowed()[-1]} -m venv" in run.stderr


@pytest.mark.skipif(os.name != "posix", reason="makes shell scripts")
def test_a_python_of_another_version_is_not_taken(tmp_path: Path) -> None:
    old = f'exec {sys.executable} -c "import sys; sys.version_info = (3, 10, 0); exec(sys.argv[1])" "$2"'
    run = ran(tmp_path, python3=old, python=NONE, **{f"python{x.replace('.', '_')}": NONE for x in allowed()})
    assert run.returncode == 2
    assert "no Python from" in run.stderr
