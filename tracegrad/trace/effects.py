"""What calls on Tensors need beside a graph: where Tensors are found, and what every call does to them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracegrad.avals import Aval
from tracegrad.torch.modes import STATE
from tracegrad.trace.sources import Source

__all__ = ["Argument", "Effect", "GradMode", "TapeTrace", "TensorResult", "on_call"]


# -- sources -----------------------------------------------------------------------------------------------------------
class _Calls(threading.local):
    """The Tensors of the call under way in this thread, by the number of their leaf."""

    tensors: dict[int, Any] | None = None


_calls = _Calls()


class on_call:
    """While the sources that begin at arguments mean those of a call with these `tensors`."""

    def __init__(self, tensors: dict[int, Any]):
        self.tensors = tensors

    def __enter__(self) -> None:
        self.before, _calls.tensors = _calls.tensors, self.tensors

    def __exit__(self, *_: object) -> None:
        _calls.tensors = self.before


class Argument(Source):
    """The Tensor that is leaf number `name` of the arguments of the call under way."""

    __slots__ = ()

    def read(self) -> Any:
        if _calls.tensors is None:
            raise LookupError("no call is under way")
        return _calls.tensors[self.name]

    def text(self, name: Callable[[Any], str]) -> str:
        return f"{name(self.read)}()"

    def __str__(self) -> str:
        return f"the Tensor argument {self.name}"


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
class TensorResult:
    """An output that is a Tensor; `root` is its number among those with a derivative, or -1."""

    root: int


@dataclass(frozen=True, slots=True, eq=False)
class Effect:
    """What every call does to the Tensor at `source`: write the output at `position` into it ("data"), or make that, or
    nothing (None), or the Tensor at another source, its gradient ("grad")."""

    kind: str
    source: Source
    position: Any
    root: int = -1


@dataclass(slots=True, eq=False)
class TapeTrace:
    """What calls on Tensors need beside a graph.

    `joint` has the inputs of the graph and then a cotangent for each of `roots`; its outputs are the outputs of the
    graph and then the cotangents of the Tensors at `wanted`. `spent` says why there is no derivative, if there is none.
    """

    stand_ins: tuple[tuple[Source, int], ...]  # and the numbers of the inputs that have their values
    wanted: tuple[Source, ...]
    roots: tuple[Aval, ...]
    effects: tuple[Effect, ...]
    joint: Any = None
    spent: str = ""
