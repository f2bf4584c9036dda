"""Every NumPy function that traced code can call, compiled and in NumPy at 100,000 elements, as a page.

`python -m benchmarks speed` writes it, on one core. The shortest of all rounds counts, because other work of the
machine makes calls only longer. A slower row is measured again before it is reported.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks import bench_functions, functions, peers
from benchmarks.harness import Result, Settings, run_case, show_seconds

__all__ = ["LEVEL", "Row", "measured", "page"]

LEVEL = 0.95  # what is above is not slower: runs differ by as much
AGAIN = 3  # measurements of a row that is behind


@dataclass(frozen=True)
class Row:
    """The shortest calls of a function, in seconds, and why it loses, if that is known."""

    call: str
    compiled: float
    eager: float
    why: str = ""
    fault: str = ""

    @property
    def ratio(self) -> float:
        return self.eager / self.compiled


def measured(call: str, settings: Settings, run: Callable[..., Result] = run_case) -> Row:
    """The row of one function; a failure is a row too."""
    result = Row(call, np.inf, np.inf, functions.why(call))
    for _ in range(AGAIN):
        with np.errstate(all="ignore"):
            rows = {row.peer: row for row in run(bench_functions.case(call), settings).rows}
        if (mine := rows["tracegrad"]).status != "ok" or mine.minimum is None:
            return replace(result, fault=mine.reason)
        result = replace(
            result,
            compiled=min(result.compiled, mine.minimum),
            eager=min(result.eager, rows["numpy"].minimum or np.inf),
        )
        if result.ratio >= LEVEL:
            break
    return result


def page(settings: Settings, command: str, calls: list[str] = functions.ROWS) -> str:
    """The page that a command writes, as Markdown."""
    peers.start(("tracegrad",))
    return written([measured(call, settings) for call in calls], peers.machine(), f"`{command}` at commit {_commit()}")


def written(rows: list[Row], machine: dict[str, Any], how: str) -> str:
    """Rows as Markdown."""
    done = [row for row in rows if not row.fault]
    behind = [row for row in done if row.ratio < LEVEL]
    unknown = [row for row in behind if not row.why]
    mean = np.exp(np.mean(np.log([row.ratio for row in done]))) if done else np.nan
    versions = ", ".join(f"{name} {machine['versions'][name]}" for name in ("python", "numpy", "scipy", "llvmlite"))
    return "\n".join(
        [
            "# Speed of single functions",
            "",
            "Each row calls one NumPy function, compiled and in NumPy: the shortest of some hundred calls on one core,",
            "value only. Small programs gain more, because each is one call. `x`, `y` are vectors of 100,000 float64;",
            "`p` has positive numbers, `q` numbers between -1 and 1; `g`, `h`, `i` have integers, `m`, `n` booleans.",
            "`a`, `b` are square matrices with as many elements, `d` is positive definite with 255 rows.",
            "",
            f"Written by {how} on {machine['cpu']}, {machine['system'].partition('-')[0]},",
            f"with {versions}.",
            "",
            f"{len(done)} calls, {mean:.2f} times as fast as NumPy (the geometric mean). Compiled code is slower than",
            f"NumPy's in {len(behind)} (below {LEVEL}; runs differ by less). The last column has the reason;",
            f"it is not known for {len(unknown)}.",
            "",
            "| | compiled | NumPy | times as fast | |",
            "|---|---|---|---|---|",
            *map(_line, rows),
            "",
        ]
    )


def _line(row: Row) -> str:
    call = row.call.replace("|", "\\|")
    if row.fault:
        return f"| `{call}` |  |  |  | {row.fault} |"
    ratio, why = f"{row.ratio:.2f}", ""
    if row.ratio < LEVEL:
        ratio, why = f"**{ratio}**", row.why or "not known"
    return f"| `{call}` | {show_seconds(row.compiled)} | {show_seconds(row.eager)} | {ratio} | {why} |"


def _commit() -> str:
    try:
        result = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return result.stdout.strip()
