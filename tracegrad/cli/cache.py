"""Command `cache`: list the disk cache, check it, and empty it."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections import Counter
from typing import Any

from tracegrad.cli.errors import Lines
from tracegrad.runtime.compile.disk_cache import Entry, default_cache
from tracegrad.utils.formatting import amount, columns

__all__ = ["add_to"]

_NEWEST = 20


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    result = commands.add_parser("cache", help="the disk cache: ls, verify, clear")
    actions = result.add_subparsers(title="actions", required=True, metavar="ACTION")
    ls = actions.add_parser("ls", help="what is in it")
    ls.add_argument("--all", action="store_true", help=f"every file, not only the newest {_NEWEST}")
    ls.set_defaults(run=_ls)
    verify = actions.add_parser("verify", help="check every file; exit code 1 if one is broken")
    verify.add_argument("--remove", action="store_true", help="remove the broken ones")
    verify.set_defaults(run=_verify)
    actions.add_parser("clear", help="remove every file of it").set_defaults(run=_clear)


def _ls(options: argparse.Namespace) -> Lines:
    cache = default_cache()
    entries = cache.entries()
    yield _summary(cache.folder, entries)
    if entries:
        yield ""
        shown = entries if options.all else entries[-_NEWEST:]
        rows = [(os.path.basename(e.path), e.kind or "broken", amount(e.size, "B"), _age(e.changed)) for e in shown]
        yield from columns([("file", "kind", "size", "age"), *rows], left_aligned={0, 1})
        if len(shown) < len(entries):
            yield f"and {len(entries) - len(shown)} older ones (--all lists them)"
    return 0


def _summary(folder: str | None, entries: list[Entry]) -> str:
    if folder is None:
        return "the disk cache is off"
    size = amount(sum(e.size for e in entries), "B")
    kinds = Counter(e.kind or "broken" for e in entries)
    text = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"{folder}: {len(entries)} files, {size}" + (f" ({text})" if text else "")


def _age(changed: float) -> str:
    """Format the time since `changed`, in one unit.

    >>> _age(time.time() - 125), _age(time.time() - 3 * 86400)
    ('2 min', '3 d')
    """
    passed = max(time.time() - changed, 0.0)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if passed >= size:
            return f"{passed / size:.0f} {unit}"
    return f"{passed:.0f} s"


def _verify(options: argparse.Namespace) -> Lines:
    cache = default_cache()
    entries = cache.entries()
    yield _summary(cache.folder, entries)
    broken = [entry for entry in entries if entry.problem]
    for entry in broken:
        yield f"{entry.path}: {entry.problem}"
        if options.remove:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
    if broken:
        yield f"{len(broken)} broken" + (
            ", removed" if options.remove else "; --remove removes them, and so does clear"
        )
        return 1
    yield "all are sound"
    return 0


def _clear(options: argparse.Namespace) -> Lines:
    cache = default_cache()
    folder, count, size = cache.info()
    cache.clear()
    remaining = cache.info()[1]
    yield (
        f"removed {count - remaining} files, {amount(size, 'B')}, from {folder}" if folder else "the disk cache is off"
    )
    if remaining:
        yield f"{remaining} files could not be removed"
    return 1 if remaining else 0
