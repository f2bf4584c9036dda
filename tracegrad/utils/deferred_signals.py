"""Deferred signals: sections of code that no signal handler may interrupt.

LLVM's bindings transfer memory and locks in several Python steps. An exception of a signal handler between two of them
would end the process, or block other threads.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from typing import Any

# `_signal` is used because the functions of `signal` convert results to enum members, which is slow.
_NUMBERS = sorted(map(int, signal.valid_signals()))


class uninterrupted:
    """Context manager that defers Python's signal handlers to its end.

    Python runs handlers in the main thread: in other threads, the block does nothing.

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
        self.deferred: list[tuple[int, Any]] = []
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number, handler in zip(_NUMBERS, map(_signal.getsignal, _NUMBERS)):
                # The default handlers and handlers of C code are not Python functions.
                if type(handler) is not int and callable(handler):
                    self.handlers[number] = handler
                    _signal.signal(number, self._note)
        except ValueError:  # a subinterpreter cannot set handlers
            self.handlers.clear()
        except BaseException:
            self._restore()
            raise

    def _note(self, number: int, frame: object) -> None:
        self.deferred.append((number, frame))

    def _restore(self) -> None:
        for number, handler in self.handlers.items():
            _signal.signal(number, handler)

    def __exit__(self, *_: object) -> None:
        self._restore()
        for number, frame in self.deferred:
            self.handlers[number](number, frame)
