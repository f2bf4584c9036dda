"""What calls on Tensors need beside a graph: the derivative, and where Tensors are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad.avals import Aval
from tracegrad.torch.modes import DEFAULT, STATE
from tracegrad.trace.sources.sources import Source
from tracegrad.utils.lazy_dataclass import record

__all__ = ["DefaultDtype", "GradMode", "TapeTrace"]


# -- sources -----------------------------------------------------------------------------------------------------------
class GradMode(Source):
    """Whether operations are recorded."""

    __slots__ = ()

    def read(self) -> bool:
        return STATE.enabled

    def text(self, name: Callable[[Any], str]) -> str:
        return f"{name(STATE)}.enabled"

    def __str__(self) -> str:
        return "is_grad_enabled()"


class DefaultDtype(Source):
    """The name of the dtype of Tensors that are made of Python floats."""

    __slots__ = ()

    def read(self) -> str:
        return DEFAULT.dtype.name

    def text(self, name: Callable[[Any], str]) -> str:
        return f"{name(DEFAULT)}.dtype.name"

    def __str__(self) -> str:
        return "get_default_dtype()"


# -- what a trace leaves -----------------------------------------------------------------------------------------------
@record(slots=True, eq=False)
class TapeTrace:
    """What calls on Tensors need beside a graph.

    `joint` has the inputs of the graph and then a cotangent for each of `roots`; its outputs are the outputs of the
    graph and then the cotangents of the Tensors at `wanted`. `spent` says why there is no derivative, if there is none.
    """

    stand_ins: tuple[tuple[Source, int], ...]  # and the numbers of the inputs that have their values
    wanted: tuple[Source, ...]
    roots: tuple[Aval, ...]
    joint: Any = None
    spent: str = ""
