"""Profile as an SVG bar chart: a bar for each step with its time, its kind, and its share of the machine's peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracegrad.profile.table import format_lines
from tracegrad.utils.formatting import amount, duration, percent
from tracegrad.utils.svg import LETTER, TEXT, document, escaped, rectangle, text_element

MAX_BARS = 40
MARGIN, ROW_HEIGHT, BAR, LONGEST = 20.0, 24.0, 15.0, 320.0

CLASSES = {
    "kernel": "result",
    "product": "leaf",
    "LAPACK": "accumulate",
    "NumPy": "guard",
    "loop": "backward",
    "check": "constant",
}


def bars(profile: Any) -> str:
    """Return the text of the SVG."""
    steps = sorted(profile.steps, key=lambda step: -step.seconds)
    shown = steps[:MAX_BARS]
    labels = [f"{step.kind} {step.what}" for step in shown]
    letter = LETTER * TEXT
    first = MARGIN + letter * max(map(len, labels), default=0) + 12
    notes = [_note(step) for step in shown]
    width = first + LONGEST + letter * (10 + max(map(len, notes), default=0)) + MARGIN
    title = f"{profile.name}: {duration(profile.seconds)} a call"
    width = max(width, 2 * MARGIN + LETTER * 15 * len(title))
    longest = max((step.seconds for step in shown), default=0.0) or 1.0
    rows = [
        part
        for i, (step, label, note) in enumerate(zip(shown, labels, notes))
        for part in _row(step, label, note, first, MARGIN + 30 + ROW_HEIGHT * i, step.seconds / longest)
    ]
    height = MARGIN + 30 + ROW_HEIGHT * len(shown) + MARGIN
    more = f"and {len(steps) - len(shown)} more steps" if len(steps) > len(shown) else ""
    page = rectangle("page", 0.5, 0.5, width - 1, height - 1, 8)
    head = text_element(title, MARGIN, MARGIN + 8, "text heading")
    return document(title, width, height, [page, head, *rows, text_element(more, MARGIN, height - 8, "pale")])


def _row(step: Any, label: str, note: str, first: float, y: float, length: float) -> Iterator[str]:
    long = max(LONGEST * length, 1.0)
    base = y + BAR - 3
    yield f"<g><title>{escaped(_hint(step))}</title>"
    yield text_element(label, first - 12, base, "text", "end")
    yield rectangle(CLASSES[step.kind], first, y, long, BAR, 3)
    yield text_element(duration(step.seconds), first + long + 8, base, "text title")
    yield text_element(note, first + long + 8 + LETTER * TEXT * 10, base, "pale")
    yield "</g>"


def _note(step: Any) -> str:
    parts = [percent(step.share), f"{percent(step.of_bandwidth)} of bandwidth"]
    parts += [f"{percent(step.of_peak)} of peak"] if step.of_peak is not None else []
    return ", ".join([*parts, *filter(None, [format_lines(step.lines)])])


def _hint(step: Any) -> str:
    flops = "unknown" if step.flops is None else amount(step.flops)
    iterations = (
        [f"{step.iterations} iterations of {duration(step.seconds / step.iterations)}"] if step.iterations else []
    )
    return "\n".join([step.what, *iterations, f"{amount(step.bytes, 'B')}, flops: {flops}", *step.lines])
