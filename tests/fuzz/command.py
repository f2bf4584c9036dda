"""The command that checks random programs of a kind, and shrinks, tells and keeps those that fail."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fuzz.shrinking import shrunk

__all__ = ["Kind", "main"]

Failure = Callable[..., "str | None"]


class Kind(NamedTuple):
    """A kind of random programs: how the program of a seed is written, checked, said to fail, told and kept."""

    write: Callable[[int], Any]
    check: Callable[[Any, bool], Any]
    # `failure(program, compiled, counts=None)`: the kind of error and what it is about, or None.
    failure: Failure
    told: Callable[[Any], str]
    keep: Callable[[Any, int], None]
    # The attributes that a shrunk program has, if it fails with them too.
    plainest: Mapping[str, Any]
    # The option for how many programs are checked, and each which is compiled by default.
    count: str
    every: int


def main(kind: Kind, prog: str, description: str | None) -> int:
    """Check the programs that the options ask for; the exit code says whether one failed."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument(kind.count, dest="count", type=int, default=1000, help="how many programs (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="the first one's seed (default 0)")
    every = f"compile each n-th, 0 for none (default {kind.every})"
    parser.add_argument("--every", type=int, default=kind.every, help=every)
    parser.add_argument("--keep", action="store_true", help="keep what fails, shrunk, as a test")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        compiled = bool(options.every) and seed % options.every == 0
        program = kind.write(seed)
        failure = kind.failure(program, compiled, counts)
        if failure:
            failed += 1
            small = shrunk(program, lambda p, compiled=compiled: kind.failure(p, compiled), **kind.plainest)
            sys.stdout.write(f"-- {seed}{' compiled' * compiled}: {failure}\n{kind.told(small)}")
            try:
                kind.check(small, compiled)
            except Exception as error:
                sys.stdout.write(f"{type(error).__name__}: {str(error)[:600]}\n")
            if options.keep:
                kind.keep(small, seed)
            sys.stdout.flush()
    for what, n in sorted(counts.items()):
        sys.stdout.write(f"{n:7} {what}\n")
    sys.stdout.write(f"{options.count} programs from {options.seed} on, {failed} failed\n")
    return bool(failed)
