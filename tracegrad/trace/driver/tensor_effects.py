"""Record Tensor side effects of a traced call: grad mode, default dtype, and the derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad.avals import Aval
from tracegrad.torch.modes import DEFAULT, STATE
from tracegrad.trace.sources.sources import Source
from tracegrad.utils.lazy_dataclass import record


# -- sources -----------------------------------------------------------------------------------------------------------
class GradMode(Source):
    """A source: whether grad mode is enabled."""

    __slots__ = ()

    def read(self) -> bool:
        return STATE.enabled

    def text(self, name: Callable[..., object]) -> str:
        return f"{name(STATE)}.enabled"

    def __str__(self) -> str:
        return "is_grad_enabled()"


class DefaultDtype(Source):
    """A source: the name of the default dtype of Tensors made from Python floats."""

    __slots__ = ()

    def read(self) -> str:
        return DEFAULT.dtype.name

    def text(self, name: Callable[..., object]) -> str:
        return f"{name(DEFAULT)}.dtype.name"

    def __str__(self) -> str:
        return "get_default_dtype()"


# -- the result of a trace ---------------------------------------------------------------------------------------------
@record(slots=True, eq=False)
class TapeTrace:
    """The Tensor part of a trace, in addition to its graph.

    `joint` has the inputs of the graph and then a cotangent for each of `roots`; its outputs are the outputs of the
    graph and then the cotangents of the Tensors at `wanted`. `spent` says why there is no derivative, if there is none.
    """

    outside_tensors: tuple[tuple[Source, int], ...]  # sources, and the numbers of the inputs with the values
    wanted: tuple[Source, ...]
    roots: tuple[Aval, ...]
    joint: Any = None
    spent: str = ""
