"""What the commands share: how lines come, and how a command says that it cannot be meant."""

from __future__ import annotations

from collections.abc import Generator

__all__ = ["Lines", "UsageError"]

# Lines of text, one by one as they are known, and at the end the exit code.
Lines = Generator[str, None, int]


class UsageError(Exception):
    """A command that cannot be meant; its text says what to do."""
