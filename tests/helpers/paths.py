"""Name the folders that tests read."""

from __future__ import annotations

from pathlib import Path

__all__ = ["ROOT", "TESTS"]

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
