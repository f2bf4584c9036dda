"""Errors of the commands: the type of their output lines, and the exception for an invalid command."""

from __future__ import annotations

from collections.abc import Generator

__all__ = ["Lines", "UsageError"]

# A generator that yields lines of text, and returns the exit code.
Lines = Generator[str, None, int]


class UsageError(Exception):
    """Invalid command; the text says what to do."""
