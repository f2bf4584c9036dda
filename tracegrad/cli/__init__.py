"""Commands of `python -m tracegrad`: each yields lines of text, and returns an exit code.

    info                     versions, the CPU, BLAS, threads, the cache, how calls are made, tuning constants
    cache ls|verify|clear    the disk cache: list it, check it, empty it
    bench                    compiled code, eager mode and NumPy on this machine, in a few seconds
    explain TARGET ARG ...   the compiled form of a function; a target is module:function, or file.py:function
    profile TARGET ARG ...   the time of each step of a function

Exit codes: 0 for success, 1 for a broken cache or a function that raises, 2 for an invalid command.
"""

from __future__ import annotations

import argparse

from tracegrad.cli import bench, cache, explain, info

__all__ = ["parser"]


def parser() -> argparse.ArgumentParser:
    """Make the argument parser; parsed arguments have a function `run`, which yields lines and an exit code."""
    result = argparse.ArgumentParser(
        prog="python -m tracegrad", description="Look at tracegrad, and at what becomes of a function."
    )
    commands = result.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in (info, cache, bench, explain):
        module.add_to(commands)
    return result
