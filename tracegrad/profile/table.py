"""Profile as a text table: a row for each step, the slowest first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from tracegrad.utils.formatting import amount, columns, duration, percent

MAX_ROWS = 30
MAX_LINES = 6  # source lines that are listed for a step

_HEAD = ("step", "time", "share", "bytes", "GB/s", "of it", "flops", "Gflop/s", "of it", "", "what", "where")
_TEXT_COLUMNS = {9, 10, 11}  # columns of text


def lines_of(profile: Any) -> Iterator[str]:
    """Return the lines of the text."""
    this_machine = profile.machine
    count, threads = len(profile.steps), f"{this_machine.threads} thread{'s' * (this_machine.threads > 1)}"
    yield f"{profile.name} ({profile.where})" if profile.where else profile.name
    yield (
        f"{duration(profile.call_seconds)} a call, {duration(profile.seconds)} in {count} step{'s' * (count != 1)}: "
        f"medians of {profile.runs} runs with {threads}"
    )
    peaks = ", ".join(f"{speed / 1e9:.0f} Gflop/s in {dtype}" for dtype, speed in this_machine.peaks.items())
    yield f"this machine: {this_machine.bandwidth / 1e9:.1f} GB/s from memory, {peaks}"
    yield ""
    steps = sorted(profile.steps, key=lambda step: -step.seconds)
    yield from columns([_HEAD, *map(_row, steps[:MAX_ROWS])], _TEXT_COLUMNS)
    rest = steps[MAX_ROWS:]
    if rest:
        yield f"and {len(rest)} steps that take {percent(sum(step.share for step in rest))} together"


def _row(step: Any) -> tuple[str, ...]:
    numbers = step.numbers
    flops, speed, of_peak = "", "", ""
    if step.flops is not None:
        flops, speed, of_peak = amount(step.flops), f"{step.speed / 1e9:.1f}", percent(step.of_peak)
    each = f", {duration(step.seconds / step.iterations)} each" if step.iterations else ""
    return (
        (str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}") if numbers else "",
        duration(step.seconds),
        percent(step.share),
        amount(step.bytes, "B"),
        f"{step.bandwidth / 1e9:.1f}",
        percent(step.of_bandwidth),
        flops,
        speed,
        of_peak,
        step.kind,
        step.what + each,
        format_lines(step.lines),
    )


def format_lines(lines: Sequence[str]) -> str:
    """Format source lines, with runs of lines as ranges.

    >>> format_lines(["/a/model.py:3", "/a/model.py:4", "/a/model.py:5", "/a/model.py:9", "/b/loss.py:7"])
    'model.py:3-5, 9; loss.py:7'
    """
    files: dict[str, list[int]] = {}
    for line in lines[:MAX_LINES]:
        file, _, number = line.rpartition(":")
        files.setdefault(os.path.basename(file) or file, []).append(int(number) if number.isdigit() else 0)
    more = f" and {len(lines) - MAX_LINES} more" if len(lines) > MAX_LINES else ""
    return "; ".join(f"{file}:{', '.join(_runs(numbers))}" for file, numbers in files.items()) + more


def _runs(numbers: list[int]) -> Iterator[str]:
    start = last = numbers[0]
    for n in [*numbers[1:], -1]:
        if n != last + 1:
            yield str(start) if start == last else f"{start}-{last}"
            start = n
        last = n
