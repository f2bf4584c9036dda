"""Represent failures as values: a number that says which exception an op raises.

Compiled code in which an op raises leaves no result. A path on which an exception was caught contains the number of the
failure instead of the op: the path is valid where the op raises the same exception again.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tracegrad.ops.calls.custom_call import opaque
from tracegrad.ops.core.op import Op
from tracegrad.typing import Array


def failure_number(error: Exception | None) -> int:
    """A number for an exception: 0 for none, equal numbers for equal classes and texts.

    >>> failure_number(None), failure_number(ValueError("a")) == failure_number(ValueError("a")) > 0
    (0, True)
    """
    return 0 if error is None else 1 + zlib.crc32(f"{type(error).__name__}: {error}".encode())


class _ExceptionProbe:
    """Callable that applies an op only to obtain its exception."""

    def __init__(self, op: Op, params: dict[str, Any]):
        self.op, self.params = op, params

    def __repr__(self) -> str:
        return repr(f"the failure of {self.op.name}")

    def __call__(self, *operands: Array) -> tuple[np.int64, ...]:
        try:
            self.op.impl(*operands, **self.params)
        except Exception as error:  # every exception has a number
            return (np.int64(failure_number(error)),)
        return (np.int64(0),)


def failure(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """The number of the exception that this application of `op` raises, an int64.

    >>> from tracegrad.ops.linalg.solve import inv
    >>> bool(failure(inv, (np.eye(2),), {})), bool(failure(inv, (np.ones((2, 2)),), {}))
    (False, True)
    """
    return opaque(*operands, results=(((), "i64"),), call=_ExceptionProbe(op, params))[0]
