"""Build and compile graphs for tests of programs."""

from __future__ import annotations

from tracegrad.runtime.execution.program import Program


def sources(found: Program) -> list[str]:
    """Where the pieces of a program were found."""
    return [origin.source for _, origin in found.report.pieces]
