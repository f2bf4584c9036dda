"""PyTorch's names of settings of the process: threads, deterministic algorithms, precision of products."""

from __future__ import annotations

from tracegrad import settings
from tracegrad.errors import located

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_float32_matmul_precision",
    "get_num_threads",
    "set_float32_matmul_precision",
    "set_num_threads",
    "use_deterministic_algorithms",
]

_PRECISIONS = ("highest", "high", "medium")


class _Requested:
    """What programs have asked for and is so without a choice: results are deterministic, products are in full."""

    deterministic = False
    precision = "highest"


def get_num_threads() -> int:
    """Return the number of threads of compiled functions: `settings.num_threads`, or the number of usable CPUs.

    Returns
    -------
    int
        Number.

    Examples
    --------
    >>> get_num_threads() >= 1
    True
    """
    return settings.thread_count()


def set_num_threads(number: int) -> None:
    """Set `settings.num_threads`, the number of threads of compiled functions.

    RuntimeError unless it is positive.

    Parameters
    ----------
    number : int
        Number.

    Examples
    --------
    >>> from tracegrad import settings
    >>> with settings.override():
    ...     set_num_threads(1)
    ...     get_num_threads()
    1
    """
    if number <= 0:
        raise RuntimeError(located("set_num_threads expects a positive integer"))
    settings.num_threads = int(number)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Say whether results must be deterministic. They are, with and without it.

    Parameters
    ----------
    mode : bool
        Whether they must be.
    warn_only : bool, default False
        Without effect.

    Examples
    --------
    >>> use_deterministic_algorithms(True)
    >>> are_deterministic_algorithms_enabled()
    True
    >>> use_deterministic_algorithms(False)
    """
    _Requested.deterministic = bool(mode)


def are_deterministic_algorithms_enabled() -> bool:
    """Return what `use_deterministic_algorithms` was called with; False at first.

    Returns
    -------
    bool
        Whether results must be deterministic.

    Examples
    --------
    >>> are_deterministic_algorithms_enabled()
    False
    """
    return _Requested.deterministic


def set_float32_matmul_precision(precision: str) -> None:
    """Say how exact products of float32 must be at least. They are computed in float32.

    RuntimeError for another word.

    Parameters
    ----------
    precision : {"highest", "high", "medium"}
        Precision.

    Examples
    --------
    >>> set_float32_matmul_precision("high")
    >>> get_float32_matmul_precision()
    'high'
    >>> set_float32_matmul_precision("highest")
    """
    if precision not in _PRECISIONS:
        raise RuntimeError(
            located(
                f"{precision} is not one of 'highest', 'high', or 'medium'; "
                "the precision of products must be one of these"
            )
        )
    _Requested.precision = precision


def get_float32_matmul_precision() -> str:
    """Return what `set_float32_matmul_precision` was called with; "highest" at first.

    Returns
    -------
    str
        Precision.

    Examples
    --------
    >>> get_float32_matmul_precision()
    'highest'
    """
    return _Requested.precision
