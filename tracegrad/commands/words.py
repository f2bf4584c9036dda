"""What the commands share: how lines come, and how a command says that it cannot be meant."""

from __future__ import annotations

from collections.abc import Generator, Sequence

__all__ = ["Lines", "UsageError", "columns"]

# Lines of text, one by one as they are known, and at the end the exit code.
Lines = Generator[str, None, int]


class UsageError(Exception):
    """A command that cannot be meant; its text says what to do."""


def columns(rows: Sequence[Sequence[str]], left: frozenset[int] = frozenset()) -> list[str]:
    """Rows as lines of columns, the first of them the head; numbers to the right.

    >>> columns([["what", "bytes"], ["piece", "12"]], left=frozenset({0}))
    ['what   bytes', 'piece     12']
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    cells = [[x.ljust(w) if i in left else x.rjust(w) for i, (x, w) in enumerate(zip(row, widths))] for row in rows]
    return ["  ".join(row).rstrip() for row in cells]
