"""Show a progress line during a long compilation: function, kernels done, kernels in all, time.

It appears after two seconds if stderr is a terminal and `settings.progress` allows it, and is erased when the program
is compiled. Only compilations that the main thread waits for are shown. Without a terminal, nothing is printed.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tracegrad.settings import settings
from tracegrad.target.tuning import TUNING

AFTER = TUNING.diagnostics.progress_delay
BETWEEN = TUNING.diagnostics.progress_interval


class _ProgressLine:
    """The progress line: its state, and the thread that prints it."""

    def __init__(self, name: str, stream: Any):
        self.name, self.stream = name, stream
        self.total = self.done = 0
        self._start, self._width = time.perf_counter(), 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, name="tracegrad-progress", daemon=True)

    def begin(self) -> None:
        """Start the thread, which prints after a delay."""
        self._thread.start()

    def _write(self) -> None:
        wait = AFTER
        while not self._over.wait(wait) and _line is self:  # even if `end` is not called
            self._show(str(self))
            wait = BETWEEN
        if self._width:
            self._show("")
            self._width = 0
            self._show("")

    def __str__(self) -> str:
        kernels = f"{self.done} of {self.total} kernels, " if self.total else ""
        return f"tracegrad: compiling {self.name}: {kernels}{time.perf_counter() - self._start:.1f} s"

    def _show(self, text: str) -> None:
        shown = text[: shutil.get_terminal_size().columns - 1]
        try:
            self.stream.write("\r" + shown.ljust(self._width))
            self.stream.flush()
            self._width = len(shown)
        except (OSError, ValueError):  # the terminal is gone, or the stream closed
            self._over.set()

    def end(self) -> None:
        """Erase the line, if there is one."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()


_line: _ProgressLine | None = None


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Show progress during a compilation; `name` is the user's name of the program."""
    global _line
    if _line is not None or not _is_watched():
        yield
        return
    line = _ProgressLine(name or "a function", sys.stderr)
    _line = line
    try:
        line.begin()
        yield
    finally:
        _line = None
        line.end()


def _is_watched() -> bool:
    """Whether stderr is a terminal and the main thread waits."""
    if not settings.progress or threading.current_thread() is not threading.main_thread():
        return False
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, ValueError):  # stderr is missing or closed
        return False


def advance(done: int = 0, added: int = 0) -> None:
    """Count compiled kernels, or `added` kernels to compile; does nothing without a progress line."""
    line = _line
    if line is not None and threading.current_thread() is threading.main_thread():
        line.total += added
        line.done += done
