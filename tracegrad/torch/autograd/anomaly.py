"""Anomaly detection: which operation made the nan of a gradient, and where in the user's code it stands."""

from __future__ import annotations

import warnings
from typing import Any

from tracegrad.torch.modes import STATE

__all__ = ["detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_detect_anomaly"]


class set_detect_anomaly:
    """Look for anomalies from now on in this thread, or not; as a context manager, for a while.

    Nodes recorded meanwhile know the lines that made them. A backward pass gives a warning with the lines of a node
    whose derivative fails; with `check_nan`, nan in a result is a failure (RuntimeError).

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

    def __exit__(self, *_: object) -> None:
        STATE.watching, STATE.check_nan, STATE.unusual = self._previous
        STATE.settle()


def _set(mode: Any, check_nan: bool) -> None:
    STATE.watching, STATE.check_nan = bool(mode), check_nan
    STATE.settle()


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
