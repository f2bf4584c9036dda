"""The commands of `python -m tracegrad`: each gives lines of text, and an exit code.

    info                     versions, the CPU, BLAS, threads, the cache, and how calls are made
    cache ls|verify|clear    the disk cache: what is in it, whether it is sound, empty it
    bench                    compiled code, eager mode and NumPy on this machine, in some seconds
    explain TARGET ARG ...   what a function is compiled to; a target is module:function, or file.py:function
    profile TARGET ARG ...   what it takes its time for

Exit codes: 0 for success, 1 if something is broken or a function raises, 2 for a command that cannot be meant.
"""

from __future__ import annotations

import argparse

from tracegrad.cli import bench
from tracegrad.cli import cache as stored
from tracegrad.cli import explain as functions
from tracegrad.cli import info as machine

__all__ = ["parser"]


def parser() -> argparse.ArgumentParser:
    """The parser. What it parses has a function `run` of itself, which yields lines and returns the exit code."""
    made = argparse.ArgumentParser(
        prog="python -m tracegrad", description="Look at tracegrad, and at what becomes of a function."
    )
    commands = made.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in (machine, stored, bench, functions):
        module.add_to(commands)
    return made
