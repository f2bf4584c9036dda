"""Proxies of `logging` and `warnings` in traced code.

Log records hold the values of the call being traced, because handlers may read them later. Logging reads values
without guards. A loop that logs is not folded, so every iteration logs.
"""

from __future__ import annotations

import functools
import json
import logging
import warnings
from collections.abc import Callable
from typing import Any

from tracegrad import tree
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.loops.range_counter import before_output
from tracegrad.trace.proxies.ambient_state import reader
from tracegrad.trace.proxies.standard_library import refused_effect
from tracegrad.trace.sources.sources import Attribute, Fixed
from tracegrad.trace.sources.state_sources import FunctionResult
from tracegrad.trace.values.text_conversions import record_text
from tracegrad.trace.values.tracer import Tracer

_LEVELS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log")


def _shown(x: object) -> object:
    return x.shown() if isinstance(x, Tracer) else x


def by_value(function: Callable[..., Any], args: Any, kwargs: Any) -> object:
    """A function applied to the values of the call being traced, which it may store."""
    return function(*tree.map(_recorded_value, list(args)), **tree.map(_recorded_value, kwargs))


def _recorded_value(x: object) -> object:
    value = _shown(x)
    if value is not x:
        record_text(x, value)
    return value


def release() -> None:
    """Print pending output of traced code, before other output."""
    trace = current_trace()
    if trace is not None and trace.world.open:
        trace.world.printed.release()


def _logs(method: Callable[..., object]) -> Callable[..., object]:
    """A method or function of `logging` that receives values; it reports the caller of this function."""

    @functools.wraps(method)
    def call(*args: object, stacklevel: int = 1, **kwargs: object) -> Any:
        before_output()
        release()
        return method(*[tree.map(_shown, x) for x in args], stacklevel=stacklevel + 1, **kwargs)

    return call


class Logger:
    """Proxy of a logger."""

    def __init__(self, real: Any):
        self._real = real

    def __getattr__(self, name: str) -> Any:
        result = getattr(self._real, name)
        if name in _LEVELS:
            return _logs(result)
        if name in ("isEnabledFor", "getEffectiveLevel", "hasHandlers"):
            return reader(result)
        if callable(result):
            return refused_effect(result, f"{type(self._real).__qualname__}.{name}")
        trace = current_trace()
        if trace is None or not trace.world.open:
            return result
        return trace.world.translate(result, Attribute(Fixed(self._real, "a logger"), name))

    def __repr__(self) -> str:
        return repr(self._real)


@functools.wraps(logging.getLogger)
def _get_logger(name: str | None = None) -> object:
    return Logger(logging.getLogger(name))


def _errors(category: type) -> tuple[object, ...]:
    """The warning filters, if one of them may raise a warning of the category as an error; else empty."""
    known = [each for each in warnings.filters if issubclass(category, each[2])]
    return (*known,) if any(each[0] == "error" for each in known) else ()


@functools.wraps(warnings.warn)
def _warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **options: Any) -> None:
    """`warnings.warn`; whether the warning may be an error is guarded."""
    before_output()
    release()
    trace = current_trace()
    if trace is not None and trace.world.open:
        kind = type(message) if isinstance(message, Warning) else category or UserWarning
        if isinstance(kind, type):
            trace.world.assume(FunctionResult(_errors, (kind,)), "equals", _errors(kind))
    warnings.warn(message, category, stacklevel + 1, source, **options)


def _writes(function: Callable[..., object]) -> Callable[..., Any]:
    """A function that formats numbers in containers, and guards them."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        return function(*[tree.map(_guarded_value, x) for x in args], **kwargs)

    return call


def _guarded_value(x: object) -> object:
    if not isinstance(x, Tracer):
        return x
    value = x._plain("format()")
    record_text(x, value)
    return value


# The replacements, by the id of the replaced object.
TALK: dict[int, Any] = {
    id(logging.getLogger): _get_logger,
    id(warnings.warn): _warn,
    id(json.dump): _writes(json.dump),
    id(json.dumps): _writes(json.dumps),
    **{id(getattr(logging, name)): _logs(getattr(logging, name)) for name in _LEVELS},
}
