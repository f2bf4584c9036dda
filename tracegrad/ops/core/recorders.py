"""The recorder of each thread: the graph builder that ops without operands are emitted to."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracegrad.ops.core.op import Op


class Recorder:
    """What records ops: the base of graph builders."""

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The result of an op without carriers among its operands."""
        raise NotImplementedError


class _Recorders(threading.local):
    current: Recorder | None = None


RECORDERS = _Recorders()


def active_recorder() -> Any:
    """The innermost builder that is recording in this thread, or None."""
    return RECORDERS.current


def aside() -> AbstractContextManager[None]:
    """Context manager in which code runs without being recorded by an active trace."""
    builder: Any = active_recorder()
    return nullcontext() if builder is None else builder.aside()
