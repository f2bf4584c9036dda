"""Memory-format arguments: `memory_format=`, `layout=` and `pin_memory=`.

Tensors are strided arrays on the CPU. Two memory formats exist: the one that preserves the order of elements, and
row-major order. Channels-last formats are refused by name; an object that is no format or layout raises TypeError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tracegrad.errors import UnsupportedError, located

__all__ = [
    "channels_last",
    "channels_last_3d",
    "check_format",
    "contiguous_format",
    "layout",
    "memory_format",
    "preserve_format",
    "strided",
    "with_memory",
]


class memory_format(str):
    """Class of memory formats: `preserve_format`, `contiguous_format`, `channels_last` and `channels_last_3d`.

    Examples
    --------
    >>> isinstance(preserve_format, memory_format), contiguous_format
    (True, torch.contiguous_format)
    """

    __slots__ = ()
    __repr__ = str.__str__


class layout(str):
    """Class of memory layouts, of which `strided` is the only one.

    Examples
    --------
    >>> strided, isinstance(strided, layout)
    (torch.strided, True)
    """

    __slots__ = ()
    __repr__ = str.__str__


preserve_format, contiguous_format = memory_format("torch.preserve_format"), memory_format("torch.contiguous_format")
channels_last, channels_last_3d = memory_format("torch.channels_last"), memory_format("torch.channels_last_3d")
strided = layout("torch.strided")


def check_format(name: str, memory_format: object) -> None:
    """Raise UnsupportedError unless the function `name` can have its result in this format."""
    if memory_format is None or memory_format in (preserve_format, contiguous_format):
        return
    if memory_format in (channels_last, channels_last_3d):
        raise UnsupportedError(
            located(
                f"{name}(memory_format={memory_format}): Tensors are made in row-major order; leave memory_format out, "
                "which changes no value"
            )
        )
    kind = type(memory_format).__name__
    raise TypeError(located(f"{name}(): argument 'memory_format' must be torch.memory_format, not {kind}"))


def with_memory(fn: Callable[..., object], name: str) -> Callable[..., object]:
    """Wrap `fn` to accept `layout=`, `pin_memory=` and `memory_format=`, with the values that all Tensors have here."""

    def call(
        *args: object,
        layout: object = None,
        pin_memory: object = False,
        memory_format: object = None,
        **kwargs: object,
    ) -> Any:
        if layout is not None and layout != strided:
            raise UnsupportedError(located(f"{name}(layout={layout}): Tensors are dense; make it without a layout"))
        if pin_memory:
            raise RuntimeError(located(f"{name}(pin_memory=True): tracegrad computes on the CPU; leave pin_memory out"))
        check_format(name, memory_format)
        return fn(*args, **kwargs)

    called: Any = call
    called.__signature__ = _together(inspect.signature(fn), inspect.signature(call))
    called.__name__, called.__qualname__, called.__doc__ = fn.__name__, fn.__qualname__, _documented(fn.__doc__ or "")
    called.__module__, called.__wrapped__ = fn.__module__, fn
    return call


_DOC = """
layout : object, optional
    Memory layout; the only one is dense.
pin_memory : bool, default False
    False: memory is not pinned.
memory_format : object, optional
    Memory format; the only one is the usual order."""


def _documented(doc: str) -> str:
    """Add the arguments to the section Parameters of a docstring."""
    parameters, options, rest = doc.partition("\n**options")
    if not options:
        parameters, options, rest = doc.partition("\n\nReturns\n")
    return f"{parameters}{_DOC}{options}{rest}" if options else doc


def _together(base: inspect.Signature, added: inspect.Signature) -> inspect.Signature:
    """Return the signature of a function with additional keyword-only parameters."""
    base_params = list(base.parameters.values())
    extra = [p for p in added.parameters.values() if p.kind is p.KEYWORD_ONLY]
    at = next((k for k, p in enumerate(base_params) if p.kind is p.VAR_KEYWORD), len(base_params))
    return base.replace(parameters=[*base_params[:at], *extra, *base_params[at:]])
