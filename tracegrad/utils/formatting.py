"""Number formatting: seconds, bytes, other amounts and percentages as text, and tables of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def duration(seconds: float) -> str:
    """Seconds with three digits.

    >>> duration(0.0012345), duration(3.0), duration(2e-8)
    ('1.23 ms', '3.00 s', '20.0 ns')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds * 1e9)} ns"


def amount(count: float, unit: str = "") -> str:
    """Format a number with three digits.

    >>> amount(1234567), amount(999, "B"), amount(80_000, "B")
    ('1.23 M', '999 B', '80.0 kB')
    """
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{_digits(count / size)} {prefix}{unit}"
    return f"{count:.0f} {unit}".rstrip()


def _digits(x: float) -> str:
    return f"{x:.2f}" if x < 9.995 else f"{x:.1f}" if x < 99.95 else f"{x:.0f}"


def percent(share: float) -> str:
    """Format a share in percent, whole from 1 on.

    >>> percent(0.123), percent(0.004), percent(0.0)
    ('12 %', '<1 %', '0 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.01 or not share else "<1 %"


def columns(rows: Sequence[Sequence[str]], left_aligned: Collection[int] = ()) -> list[str]:
    """Rows as lines of columns, the first of them the head; numbers to the right.

    >>> columns([["what", "bytes"], ["piece", "12"]], left_aligned={0})
    ['what   bytes', 'piece     12']
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    cells = [
        [x.ljust(w) if i in left_aligned else x.rjust(w) for i, (x, w) in enumerate(zip(row, widths))] for row in rows
    ]
    return ["  ".join(row).rstrip() for row in cells]
