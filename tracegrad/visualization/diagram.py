"""Diagram data model: positions, edges between them, and panels that show a box at some positions.

The forward and the backward panel of a tape share positions and edges. An operation and its backward node have the same
position, and so have a leaf and the node that accumulates its gradient. Each edge goes down in one panel and up in the
other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.typing import NDArray


MAX_LETTERS = 30


@record(frozen=True, slots=True)
class BoxLine:
    """Line of a box: its topic (printed paler), and its text."""

    key: str
    text: str = ""


@record(slots=True)
class DiagramBox:
    """One box; `kind` chooses its colours, and `group`, if it is not negative, another over them."""

    kind: str
    title: str
    lines: list[BoxLine] = field(default_factory=list)
    hint: str = ""
    group: int = -1


@record(slots=True)
class Panel:
    """One picture: its boxes by position. `upward`: its edges point from their heads to their tails."""

    title: str
    boxes: dict[int, DiagramBox]
    upward: bool = False


@record(slots=True)
class Diagram:
    """Panels over the same positions and edges; an edge is (tail, head, output of the tail, kind)."""

    title: str
    count: int
    edges: list[tuple[int, int, int, str]]
    panels: list[Panel]
    legend: dict[str, str]
    multi_output: set[int] = field(default_factory=set)  # positions whose edges show the output number
    groups: list[str] = field(default_factory=list)  # their texts in the legend


# -- text ------------------------------------------------------------------------------------------------------------
def shortened(text: str, max_length: int = MAX_LETTERS) -> str:
    """Shorten `text` to one line of at most `max_length` characters, by omitting the middle.

    >>> shortened("BinaryCrossEntropyWithLogitsBackward0", 20)
    'BinaryCros…Backward0'
    """
    text = " ".join(text.split())
    if len(text) <= max_length:
        return text
    tail = (max_length - 1) // 2
    return f"{text[: max_length - 1 - tail]}…{text[-tail:]}"


def shape_text(shape: Sequence[int], dtype: Any) -> str:
    """Shape and dtype, as graphs print them.

    >>> shape_text((2, 3), np.dtype("float32"))
    'f32[2,3]'
    """
    dtype = np.dtype(dtype)
    try:
        return str(Aval(tuple(shape), dtype))
    except KeyError:
        return f"{dtype.name}[{','.join(map(str, shape))}]"


def array_of(x: object) -> NDArray | None:
    """Return the elements of an array or a Tensor, if they are available."""
    array = getattr(x, "array", x)
    if isinstance(array, np.ndarray | np.generic):
        return np.asarray(array)
    return None


def value_text(x: Any) -> str:
    """Describe an array or Tensor briefly: its value if it is one number without axes, else shape and dtype."""
    array = array_of(x)
    if array is None:
        return shape_text(x.shape, x.dtype)
    return number_text(array[()]) if array.ndim == 0 else shape_text(array.shape, array.dtype)


def number_text(x: object) -> str:
    """Format a number in at most about ten characters.

    >>> number_text(np.float64(1 / 3)), number_text(2), number_text(3.0)
    ('0.3333', '2', '3.0')
    """
    x = x.item() if isinstance(x, np.generic) else x
    if isinstance(x, float) and math.isfinite(x):
        return f"{x:.1f}" if x == int(x) and abs(x) < 1e6 else f"{x:.4g}"
    if isinstance(x, complex):
        return f"{x:.3g}"
    return str(x)
