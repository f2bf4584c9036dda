"""Signals that wait: code that must not be interrupted half-way.

LLVM's bindings hand over memory and locks in several steps of Python; an exception of a signal handler between two of
them would end the process, or stop other threads.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from typing import Any

__all__ = ["uninterrupted"]

# The functions of `signal` make members of enumerations of what they give, which takes longer than all the rest.
_NUMBERS = sorted(map(int, signal.valid_signals()))


class uninterrupted:
    """A block in which Python's signal handlers are not called; when it ends, those of signals that came are.

    Handlers are Python's, and run in the main thread: in others, the block does nothing.

    >>> came = []
    >>> before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    >>> with uninterrupted():
    ...     signal.raise_signal(signal.SIGTERM)
    ...     print(came)
    []
    >>> came == [signal.SIGTERM], signal.signal(signal.SIGTERM, before) is not None
    (True, True)
    """

    def __enter__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.came: list[tuple[int, Any]] = []
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number, handler in zip(_NUMBERS, map(_signal.getsignal, _NUMBERS)):
                # The default ones and those of C are no functions.
                if type(handler) is not int and callable(handler):
                    self.handlers[number] = handler
                    _signal.signal(number, self._note)
        except ValueError:  # an interpreter that is not the main one, where nothing can be set
            self.handlers.clear()
        except BaseException:
            self._restore()
            raise

    def _note(self, number: int, frame: Any) -> None:
        self.came.append((number, frame))

    def _restore(self) -> None:
        for number, handler in self.handlers.items():
            _signal.signal(number, handler)

    def __exit__(self, *_: object) -> None:
        self._restore()
        for number, frame in self.came:
            self.handlers[number](number, frame)
