"""What calls on Tensors need beside a graph: where Tensors are found, and what every call does to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracegrad.avals import Aval
from tracegrad.torch.modes import STATE
from tracegrad.trace.sources import Source

__all__ = ["GradMode", "TapeTrace", "TensorEffect"]


# -- sources -----------------------------------------------------------------------------------------------------------
class GradMode(Source):
    """Whether operations are recorded."""

    __slots__ = ()

    def read(self) -> bool:
        return STATE.enabled

    def text(self, name: Callable[[Any], str]) -> str:
        return f"{name(self.read)}()"

    def __str__(self) -> str:
        return "is_grad_enabled()"


# -- what a trace leaves -----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, eq=False)
class TensorEffect:
    """What every call does to the Tensor at `source`: write the output at `position` into it ("data"), or make that, or
    nothing (None), or the Tensor at another source, its gradient ("grad")."""

    kind: str
    source: Source
    position: Any
    root: int = -1
    times: int = 1  # how often the function updates it in place, as its version counts


@dataclass(slots=True, eq=False)
class TapeTrace:
    """What calls on Tensors need beside a graph.

    `joint` has the inputs of the graph and then a cotangent for each of `roots`; its outputs are the outputs of the
    graph and then the cotangents of the Tensors at `wanted`. `spent` says why there is no derivative, if there is none.
    """

    stand_ins: tuple[tuple[Source, int], ...]  # and the numbers of the inputs that have their values
    wanted: tuple[Source, ...]
    roots: tuple[Aval, ...]
    effects: tuple[TensorEffect, ...]
    joint: Any = None
    spent: str = ""
