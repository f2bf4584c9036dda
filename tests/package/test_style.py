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


@pytest.mark.parametrize("name", CHECKERS)
def test_the_checker_finds_nothing(name: str) -> None:
    command = [sys.executable, "-m", *CHECKERS[name]]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{' '.join(command[2:])} found:\n{run.stdout}{run.stderr}"
