"""The harness of every benchmark: check the peers against each other, then time them in the same run.

A `Case` names its peers; a peer is a factory of a zero-argument callable. The order is fixed:

1. every peer is built and called once (its cold time: the build, and separately the first call);
2. every result is compared with the expected one, in value, shape and dtype: a peer that disagrees raises
   `Disagreement`, and nothing is timed;
3. the peers are timed warm, in rounds: each round times every peer once, so noise affects all alike.

A peer is timed after the threads of the previous one have come to rest. OpenBLAS threads spin for a tenth of a second
after their last product, and take a core from a pool that is timed meanwhile.

The garbage collector is off while a clock runs. Nothing is asserted about time.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Run = Callable[[], Any]
Factory = Callable[[], Run]

REFERENCE = "tracegrad"
IDLE = 0.1  # of one core: less is no spinning
MOST_SETTLING = 0.5
TOLERANCE = {"complex128": 1e-9, "float64": 1e-9, "float32": 2e-4, "float16": 1e-2}


class Skip(Exception):
    """Raised by a factory whose peer cannot run here; the message is the reason shown in the table."""


class Disagreement(AssertionError):
    """Raised when a peer's result is not the expected one: its time would mean nothing."""


class Timed(NamedTuple):
    """What a peer returns that holds its own clock, as one that runs in a process of its own does.

    `peak`: the bytes of memory that it took at most, where it has measured them.
    """

    seconds: float
    result: Any
    peak: int | None = None


@dataclass(frozen=True)
class Settings:
    """How long to measure: rounds per case, seconds a timed loop takes at least, seconds of rest before it."""

    rounds: int = 25
    rounds_once: int = 5
    loop_seconds: float = 0.01
    settle_seconds: float = 0.02


FULL = Settings()
QUICK = Settings(rounds=7, rounds_once=2, loop_seconds=0.003)


@dataclass(frozen=True)
class Case:
    """One question put to several peers.

    expected: computes the right result, independently of the peers.
    once: every call is an event of its own (a first call, a new shape, a new process), so no call is
        a warm-up for the next and loops are one call long.
    tolerance: greatest error, relative to the greatest absolute value; by dtype if None.
    settle_seconds: the rest before a timed loop, if another than the settings say.
    brief: one of many, to be shown on one line.
    why: if tracegrad is expected to lose, the reason.
    """

    name: str
    peers: Mapping[str, Factory]
    expected: Run
    once: bool = False
    tolerance: float | None = None
    settle_seconds: float | None = None
    brief: bool = False
    why: str = ""


@dataclass
class Row:
    """What was measured of one peer, in seconds per call; `ratio` is to the reference peer, `peak` is in bytes."""

    peer: str
    status: str = "ok"
    reason: str = ""
    build: float | None = None
    first: float | None = None
    inner: int = 1
    samples: list[float] = field(default_factory=list)
    minimum: float | None = None
    quartile1: float | None = None
    median: float | None = None
    quartile3: float | None = None
    ratio: float | None = None
    peak: int | None = None


@dataclass
class Result:
    """The rows of one case, and the peer their ratios refer to (None when no peer ran)."""

    case: str
    rows: list[Row]
    reference: str | None
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def leaves(value: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays of a nested result, in order; arrays of JAX and tensors of PyTorch become ndarrays."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item)]
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    return [np.asarray(value)]


def check(peer: str, result: Any, expected: Any, tolerance: float | None = None) -> None:
    """Raise `Disagreement` unless `result` has the expected structure, shapes, dtypes and values.

    A scalar may come as a Python number, whose dtype is not compared.
    """
    got, want = leaves(result), leaves(expected)
    if len(got) != len(want):
        raise Disagreement(f"{peer}: {len(got)} arrays where {len(want)} are expected")
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape or (a.ndim and a.dtype != b.dtype):
            raise Disagreement(f"{peer}: result {index} is {a.dtype}{a.shape}, expected {b.dtype}{b.shape}")
        limit = TOLERANCE.get(b.dtype.name, 0.0) if tolerance is None else tolerance
        if b.dtype.kind not in "biufc":
            if not np.array_equal(a, b):
                raise Disagreement(f"{peer}: result {index} is {a}, expected {b}")
            continue
        wide = np.result_type(b, np.float64)
        same = (a == b) | ((a != a) & (b != b))  # infinities too, and what is not a number
        with np.errstate(invalid="ignore"):
            error = np.max(np.abs(a.astype(wide) - b), where=~same, initial=0.0)
        scale = np.max(np.abs(b.astype(wide)), where=np.isfinite(b.astype(wide)), initial=0.0)
        if not error <= limit * scale:
            raise Disagreement(f"{peer}: result {index} is off by {error:.3g} at scale {scale:.3g}")


@contextmanager
def collector_off() -> Iterator[None]:
    """Collect garbage, then keep the collector off within the block."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _seconds(run: Run, inner: int) -> float:
    loop = itertools.repeat(None, inner)
    start = time.perf_counter()
    for _ in loop:
        result = run()
    elapsed = (time.perf_counter() - start) / inner
    return result.seconds if isinstance(result, Timed) else elapsed


def _start(peer: str, factory: Factory) -> tuple[Row, Run | None, Any]:
    """Build a peer and call it once; a peer that cannot run becomes a row that says why."""
    row = Row(peer)
    try:
        with collector_off():
            start = time.perf_counter()
            run = factory()
            built = time.perf_counter()
            result = run()
            done = time.perf_counter()
    except Exception as error:
        is_own = peer.startswith(REFERENCE) and not isinstance(error, Skip)
        row.status = "failed" if is_own else "skipped"
        kind = "" if isinstance(error, Skip) else f"{type(error).__name__}: "
        row.reason = (kind + str(error)).strip().partition("\n")[0][:200]
        return row, None, None
    row.build, row.first = built - start, done - built
    if isinstance(result, Timed):
        row.first, result, row.peak = result
    return row, run, result


def _autorange(run: Run, least: float) -> int:
    """The number of calls that take at least `least` seconds together."""
    inner = 1
    while True:
        elapsed = _seconds(run, inner) * inner
        if elapsed >= least or inner >= 10**7:
            return inner
        inner = max(2 * inner, min(20 * inner, int(1.1 * inner * least / max(elapsed, 1e-9))))


def printed(source: str, environment: Mapping[str, str]) -> Any:
    """What a process of its own that runs this code prints as JSON. RuntimeError, with its last line, if it fails."""
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    return json.loads(done.stdout)


def settle(rest: float) -> float:
    """Sleep until the other threads of this process have not run for `rest` seconds; how long that took.

    It gives up after MOST_SETTLING. A rest shorter than a tick of the system's clock (4 ms or 10 ms) may take threads
    that run for idle.
    """
    start = time.perf_counter()
    while True:
        before, used = time.perf_counter(), _seconds_of_others()
        time.sleep(rest)
        now = time.perf_counter()
        if _seconds_of_others() - used <= IDLE * (now - before) or now - start >= MOST_SETTLING:
            return now - start


def _seconds_of_others() -> float:
    return time.process_time() - time.thread_time()


def _time_in_rounds(case: Case, settings: Settings, live: list[tuple[Row, Run]]) -> None:
    rest = settings.settle_seconds if case.settle_seconds is None else case.settle_seconds
    with collector_off():
        for row, run in live:
            row.inner = 1 if case.once else _autorange(run, settings.loop_seconds)
        for iteration in range(settings.rounds_once if case.once else settings.rounds):
            offset = iteration % len(live)
            for row, run in live[offset:] + live[:offset]:
                settle(rest)
                if not case.once:
                    run()
                row.samples.append(_seconds(run, row.inner))


def _summarise(rows: list[Row], reference: Row) -> None:
    for row in rows:
        row.minimum, row.quartile1, row.median, row.quartile3 = (
            float(q) for q in np.quantile(row.samples, [0.0, 0.25, 0.5, 0.75])
        )
        quotients = [a / b for a, b in zip(row.samples, reference.samples, strict=True)]
        row.ratio = float(np.median(quotients))


def run_case(case: Case, settings: Settings = FULL) -> Result:
    """Check, then time, every peer of `case`. Raises `Disagreement` before anything is timed warm.

    The ratio of a peer is the median over the rounds of its time divided by the reference peer's time in
    the same round: above 1 means slower than the reference.
    """
    started = [_start(peer, factory) for peer, factory in case.peers.items()]
    expected = case.expected()
    for row, run, result in started:
        if run is not None:
            check(f"{case.name}, {row.peer}", result, expected, case.tolerance)
    live = [(row, run) for row, run, _ in started if run is not None]
    reference = next((row for row, _ in live if row.peer == REFERENCE), live[0][0] if live else None)
    if reference is not None:
        _time_in_rounds(case, settings, live)
        _summarise([row for row, _ in live], reference)
    return Result(case.name, [row for row, _, _ in started], reference.peer if reference else None, case.why)


def show_seconds(seconds: float | None) -> str:
    """Three significant digits and a unit.

    >>> show_seconds(0.0000124), show_seconds(2.5)
    ('12.4 µs', '2.50 s')
    """
    if seconds is None:
        return ""
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
    unit, scale = next((u for u in units if seconds >= 0.9995 * u[1]), units[-1])
    value = seconds / scale
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def table(result: Result) -> str:
    """The rows of a result as text, one peer a line."""
    header = ("peer", "build", "first call", "median", "min", "quartiles", "ratio")
    measured = any(row.peak is not None for row in result.rows)
    if measured:
        header = (*header[:-1], "memory", header[-1])
    lines: list[tuple[str, ...]] = [header]
    for row in result.rows:
        if row.status != "ok":
            lines.append((row.peer, f"{row.status}: {row.reason}", *[""] * (len(header) - 2)))
            continue
        spread = f"{show_seconds(row.quartile1)} .. {show_seconds(row.quartile3)}"
        times = [show_seconds(t) for t in (row.build, row.first, row.median, row.minimum)]
        peak = ["" if row.peak is None else f"{row.peak / 1e6:.0f} MB"] if measured else []
        lines.append((row.peer, *times, spread, *peak, f"{row.ratio:.2f}"))
    plain = [line for line in lines if line[-1]]
    widths = [max(len(line[i]) for line in (plain if i else lines)) for i in range(len(header))]
    text = [result.case]
    for line in lines:
        cells = [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
        text.append("  " + ("  ".join(cells) if line[-1] else f"{cells[0]}  {line[1]}").rstrip())
    return "\n".join(text)


def brief(result: Result) -> str:
    """The medians and ratios of a result on one line."""
    cells = []
    for row in result.rows:
        shown = f"{show_seconds(row.median):>7}" if row.status == "ok" else f"{row.status}: {row.reason}"
        cells.append(f"{row.peer} {shown}")
        if row.ratio is not None and row.peer != result.reference:
            cells[-1] += f" (ratio {row.ratio:.2f})"
    return f"{result.case:<42}  " + "   ".join([*cells, *filter(None, [result.why])])
