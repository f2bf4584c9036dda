"""Anomaly detection: name the operation that made a nan in a gradient, and its line in the user's code.

Compiled functions check their results in this mode, off their fast paths (`tracegrad.runtime.diagnostics.nan_origin`).
"""

from __future__ import annotations

import threading
import warnings
import weakref
from typing import Any

from tracegrad.settings import unusual
from tracegrad.torch.modes import STATE

__all__ = ["detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_detect_anomaly"]


class _ThreadLocalKey(threading.local):
    """Key of a thread in `settings.unusual`; its entry is removed when the thread ends."""

    def __init__(self) -> None:
        self.key: Any = _ThreadLocalKey._KeyToken()
        weakref.finalize(self.key, unusual.pop, id(self.key), None)

    class _KeyToken:
        pass


_thread = _ThreadLocalKey()


class set_detect_anomaly:
    """Switch anomaly detection in this thread on or off; as a context manager, for the length of a block.

    Parameters
    ----------
    mode : bool
        Whether to detect anomalies.
    check_nan : bool
        Whether nan in a result of a backward pass is an error, also in the result of a compiled function.

    Raises
    ------
    RuntimeError
        In a backward pass, for nan. The text names the user's line where the nan arose.

    Notes
    -----
    In this mode, a node records the lines that made it. If its derivative fails, the backward pass issues a warning
    with these lines.

    Examples
    --------
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
    """Context manager in which anomalies of backward passes are detected. It is slow, and issues a warning about that.

    Parameters
    ----------
    check_nan : bool
        Whether nan in a result of a backward pass is an error.

    See Also
    --------
    set_detect_anomaly : The same without the warning.

    Notes
    -----
    Compiled functions without nan run their usual programs. Only the overhead of a call increases.

    Examples
    --------
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
        _update_state()


def _set(mode: bool, check_nan: bool) -> None:
    STATE.watching, STATE.check_nan = bool(mode), check_nan
    _update_state()


def _update_state() -> None:
    STATE.update_unusual()
    if STATE.watching:
        unusual[id(_thread.key)] = None
    else:
        unusual.pop(id(_thread.key), None)


def is_anomaly_enabled() -> bool:
    """Return whether anomaly detection is on in this thread.

    Returns
    -------
    bool
        True if it is on.

    Examples
    --------
    >>> is_anomaly_enabled()
    False
    """
    return STATE.watching


def is_anomaly_check_nan_enabled() -> bool:
    """Return whether nan counts as an anomaly.

    Returns
    -------
    bool
        True if nan is an error in anomaly detection.

    Examples
    --------
    >>> is_anomaly_check_nan_enabled()
    True
    """
    return STATE.check_nan
