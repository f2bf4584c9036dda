"""Progress line on stderr with the iterations of a solver."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Any

__all__ = ["Progress"]

BETWEEN = 0.1  # seconds between two updates of the line


class Progress:
    """Count evaluations and iterations, and report them if `shown`.

    On a terminal the report is one line, updated at most each tenth of a second; elsewhere it is printed once, at the
    end.
    """

    def __init__(self, name: str, shown: bool, stream: object = None):
        self.name, self.shown, self.stream = name, shown, stream or sys.stderr
        self.evaluations = self.iterations = 0
        self.value: float | None = None
        self._next, self._width = 0.0, 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self.shown:
            self._write("\n")

    def counting(self, fun: Any, cost: Any = None) -> Any:
        """Wrap `fun`, a function to a value, a tuple with a value, or an object with a `cost`; count its calls."""
        if not self.shown:
            return fun

        def call(*args: object) -> Any:
            result = fun(*args)
            self.evaluations += 1
            if cost is not None:
                self.value = cost(result)
            else:
                self.value = result[0] if isinstance(result, tuple) else result
            return result

        return call

    def iterating(self, jac: object) -> Any:
        """Wrap `jac` if it is a function; each of its calls counts as an iteration."""
        if not self.shown or not callable(jac):
            return jac

        def call(*args: object) -> Any:
            self.iterated()
            return jac(*args)

        return call

    def iterated(self) -> None:
        """Count an iteration that has ended."""
        self.iterations += 1
        now = time.perf_counter()
        if self.shown and now >= self._next and self._on_terminal():
            self._write("")
            self._next = now + BETWEEN

    def __str__(self) -> str:
        value = "" if self.value is None else f", f = {self.value:.6g}"
        return f"{self.name}: {self.iterations} iterations, {self.evaluations} evaluations{value}"

    def _on_terminal(self) -> bool:
        return bool(getattr(self.stream, "isatty", lambda: False)())

    def _write(self, end: str) -> None:
        terminal = self._on_terminal()
        text = str(self)[: shutil.get_terminal_size().columns - 1] if terminal else str(self)
        stream: Any = self.stream
        stream.write(f"{chr(13) * terminal}{text.ljust(self._width)}{end}")
        stream.flush()
        self._width = len(text)
