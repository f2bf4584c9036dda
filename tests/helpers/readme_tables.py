"""Tables of a package's README.md that are made from the package's code."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence

import pytest

from tracegrad.errors import PACKAGE


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join([f"| {' | '.join(line)} |\n" if i != 1 else f"|{'|'.join(line)}|\n" for i, line in enumerate(lines)])


def require_section(package: str, title: str, text: str, request: pytest.FixtureRequest) -> None:
    """Compare a section of the README.md of a package with `text`; `--update-golden` writes it."""
    readme = pathlib.Path(PACKAGE) / package / "README.md"
    begin, heading, rest = readme.read_text().partition(f"## {title}\n\n")
    _, mark, end = rest.partition("\n## ")
    expected = begin + heading + text + mark + end
    if request.config.getoption("--update-golden"):
        readme.write_text(expected)
    assert readme.read_text() == expected, "run this test with --update-golden"
