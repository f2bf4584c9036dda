"""Anomaly detection: which operation made the nan of a gradient, and where in the user's code it stands.

Compiled functions look at their results meanwhile, off their hot paths (`tracegrad.runtime.diagnostics.nan_origin`).
"""

from __future__ import annotations

import threading
import warnings
import weakref
from typing import Any

from tracegrad.settings import unusual
from tracegrad.torch.modes import STATE

__all__ = ["detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_detect_anomaly"]


class _Thread(threading.local):
    """Of each thread, the key by which it keeps calls from hot paths; it goes with the thread."""

    def __init__(self) -> None:
        self.key: Any = _Thread._Key()
        weakref.finalize(self.key, unusual.pop, id(self.key), None)

    class _Key:
        pass


_thread = _Thread()


class set_detect_anomaly:
    """Look for anomalies from now on in this thread, or not; as a context manager, for a while.

    Nodes recorded meanwhile know the lines that made them. A backward pass gives a warning with the lines of a node
    whose derivative fails; with `check_nan`, nan in a result is a failure (RuntimeError). So it is in the result of a
    compiled function, whose error names the user's line where the nan arose.

    >>> with set_detect_anomaly(True):
    ...     is_anomaly_enabled()
    True
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        self._previous = STATE.watching, STATE.check_nan
        _set(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _set(*self._previous)


class detect_anomaly:
    """A context in which anomalies are looked for, see `set_detect_anomaly`. It is slow, and says so in a warning.
    Compiled functions are as fast as ever where no nan is, but for what calls cost beside their programs.

    >>> from tracegrad import tensor
    >>> x = tensor([0.0], requires_grad=True)
    >>> import warnings; warnings.simplefilter("ignore")
    >>> with detect_anomaly():  # doctest: +ELLIPSIS
    ...     (x.sqrt() * 0.0).backward()
    Traceback (most recent call last):
    RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output...
    """

    def __init__(self, check_nan: bool = True):
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self._previous = STATE.watching, STATE.check_nan, STATE.unusual
        STATE.watching, STATE.check_nan, STATE.unusual = True, self.check_nan, True
        unusual[id(_thread.key)] = None

    def __exit__(self, *_: object) -> None:
        STATE.watching, STATE.check_nan, STATE.unusual = self._previous
        _settle()


def _set(mode: Any, check_nan: bool) -> None:
    STATE.watching, STATE.check_nan = bool(mode), check_nan
    _settle()


def _settle() -> None:
    STATE.settle()
    if STATE.watching:
        unusual[id(_thread.key)] = None
    else:
        unusual.pop(id(_thread.key), None)


def is_anomaly_enabled() -> bool:
    """Whether anomalies are looked for in this thread.

    >>> is_anomaly_enabled()
    False
    """
    return STATE.watching


def is_anomaly_check_nan_enabled() -> bool:
    """Whether nan counts as an anomaly.

    >>> is_anomaly_check_nan_enabled()
    True
    """
    return STATE.check_nan
