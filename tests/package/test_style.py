"""The checkers that `pyproject.toml` configures find nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from paths import ROOT

CHECKERS = {
    "lint": ("ruff", "check"),
    "format": ("ruff", "format", "--check"),
    "types": ("mypy",),
}
FOLDERS = ("tracegrad", "tests", "benchmarks", "examples", "docs")
MOST_EXCEPTIONS = 50


@pytest.mark.parametrize("name", CHECKERS)
def test_the_checker_finds_nothing(name: str) -> None:
    command = [sys.executable, "-m", *CHECKERS[name]]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{' '.join(command[2:])} found:\n{run.stdout}{run.stderr}"


def test_the_formatter_has_few_exceptions() -> None:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    exceptions = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("# fmt: " + "skip") for path in paths
    }
    assert sum(exceptions.values()) <= MOST_EXCEPTIONS, {name: n for name, n in exceptions.items() if n}
