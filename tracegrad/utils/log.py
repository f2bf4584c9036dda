"""Logging by topic: one line for each event that is expensive or surprising.

The topics are compile, cache, retrace, loops and source. Each is a logger of the standard library,
`tracegrad.<topic>`, at level INFO. Topics in `TRACEGRAD_LOG` (or `settings.log`) go to stderr, and only there; the
others go where the program's own configuration of `logging` sends them, by default nowhere.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from tracegrad.settings import TOPICS, settings

_LOGGERS = {topic: logging.getLogger(f"tracegrad.{topic}") for topic in TOPICS}


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Handler that writes to the current `sys.stderr`, not to the one at configuration time."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


_HANDLER = _StderrHandler()
_attached: frozenset[str] = frozenset()


def _attach(topics: frozenset[str]) -> None:
    """Send these topics to stderr, and leave the others to the program's own configuration."""
    global _attached
    for topic in topics - _attached:
        _LOGGERS[topic].addHandler(_HANDLER)
        _LOGGERS[topic].setLevel(logging.INFO)
        _LOGGERS[topic].propagate = False
    for topic in _attached - topics:
        _LOGGERS[topic].removeHandler(_HANDLER)
        _LOGGERS[topic].setLevel(logging.NOTSET)
        _LOGGERS[topic].propagate = True
    _attached = topics


def enabled(topic: str) -> bool:
    """Whether `topic` has a listener; check it before work for the message alone.

    >>> with settings.override(log="compile"):
    ...     enabled("compile"), enabled("cache")
    (True, False)
    """
    if settings.log is not _attached:
        _attach(settings.log)
    return _LOGGERS[topic].isEnabledFor(logging.INFO)


def log(topic: str, message: str, *args: object) -> None:
    """Log `message % args` under `topic`; an unknown topic is a KeyError.

    >>> log("retrace", "%s was called with a new shape", "f")
    """
    if enabled(topic):
        _LOGGERS[topic].info(message, *args)
