"""Write a page of results: `python -m benchmarks.report a.json b.json > benchmarks/RESULTS.md`.

The input files are those of `python -m benchmarks … --json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import REFERENCE, show_seconds

__all__ = ["page", "summary"]

LOST = 0.95  # a ratio below this is a loss; what is above it may be noise


def page(reports: list[dict[str, Any]]) -> str:
    """Reports as `--json` writes them, as Markdown."""
    machine = reports[0]["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    commands = ", ".join(dict.fromkeys(f"`{report['command']}`" for report in reports))
    lines = [
        "# Results",
        "",
        f"Written by {commands} on {machine['cpu']}, {machine['system'].partition('-')[0]}.",
        f"Versions: {versions}.",
        "",
        "Medians and, in brackets, quartiles; below them how many times as long as tracegrad in the same round, and",
        "what the first call took in a process in which the packages had been imported and started. PyTensor has",
        "what it compiled before on disk. Bytes are those by which the calls raised the peak of the process.",
    ]
    for report in reports:
        cores = report["machine"]["threads"]["cores"]
        for name, results in report["benchmarks"].items():
            lines += ["", f"## {name}, {cores} core{'s' * (cores > 1)}", "", *_table(results)]
    return "\n".join(lines) + "\n"


def _table(results: list[dict[str, Any]]) -> list[str]:
    peers = list(dict.fromkeys(row["peer"] for result in results for row in result["rows"]))
    lines = [f"| | {' | '.join(peers)} |", "|---" * (len(peers) + 1) + "|"]
    for result in results:
        rows = {row["peer"]: row for row in result["rows"]}
        name = "<br>".join(filter(None, [result["case"], result.get("why")]))
        lines.append(f"| {name} | {' | '.join(_cell(rows.get(peer)) for peer in peers)} |")
    lines += ["", *summary(results)]
    return lines


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if row["status"] != "ok":
        return f"{row['status']}: {row['reason']}".replace("|", "\\|")
    text = f"{show_seconds(row['median'])} ({show_seconds(row['quartile1'])} to {show_seconds(row['quartile3'])})"
    if row["peer"] != REFERENCE:
        text += f"<br>{row['ratio']:.2f}"
    if row["inner"] > 1 or row["build"] + row["first"] > 2 * row["median"]:
        text += f"<br>first call {show_seconds(row['build'] + row['first'])}"
    return text if row["peak"] is None else f"{text}<br>{row['peak'] / 1e6:.0f} MB"


def summary(results: list[dict[str, Any]]) -> list[str]:
    """The geometric means of the ratios to tracegrad, how many of them say that it loses, and the best peer's."""
    peers = list(dict.fromkeys(row["peer"] for result in results for row in result["rows"]))
    ratios = {peer: [] for peer in peers if peer != REFERENCE}  # type: dict[str, list[float]]
    best = []
    for result in results:
        table = {r["peer"]: r["ratio"] for r in result["rows"] if r["ratio"] is not None and r["peer"] in ratios}
        for peer, ratio in table.items():
            ratios[peer].append(ratio)
        others = [ratio for peer, ratio in table.items() if not peer.startswith(REFERENCE)]
        best += [min(others)] if others else []

    def mean(values: list[float]) -> str:
        return f"{np.exp(np.mean(np.log(values))):.2f}"

    shown = [
        f"{peer} {mean(table)} ({len(table)}, {sum(x < LOST for x in table)} below {LOST})"
        for peer, table in ratios.items()
        if table
    ]
    lines = [f"Geometric means of the ratios, with their number: {', '.join(shown)}."] if shown else []
    if best:
        lines.append(f"The best of the others: {mean(best)}; behind it in {sum(x < 1 for x in best)} of {len(best)}.")
    return lines


def main(paths: list[str]) -> None:
    results = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    print(page([report for each in results for report in (each if isinstance(each, list) else [each])]), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
