"""Generate arrays and indices for property tests."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import strategies as st

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def _array(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(1.0, 1 + math.prod(shape)).reshape(shape)


@st.composite
def slices(draw: Any, n: int) -> slice:
    bound = st.none() | st.integers(-n - 2, n + 2)
    step = draw(st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3]))
    return slice(draw(bound), draw(bound), step)


@st.composite
def entry(draw: Any, kind: str, n: int, together: tuple[int, ...]) -> Any:
    """One entry of an index, for an axis of size `n`; arrays have the shape `together`."""
    if kind == "slice":
        return draw(slices(n))
    if kind == "mask":
        return np.arange(n) < draw(st.sampled_from([1, 1, 2]))
    position = st.integers(-n, n - 1)
    if kind == "int":
        return draw(position)
    if kind == "list":
        return [draw(position)]
    length = math.prod(together)
    drawn = draw(st.lists(position, min_size=length, max_size=length))
    return np.array(drawn, dtype=draw(st.sampled_from(["int64", "int8"]))).reshape(together)


@st.composite
def indices(draw: Any, shape: tuple[int, ...], advanced: bool) -> Any:
    """An index for an array of `shape`: slices, integers, new axes, an ellipsis, integer arrays, lists, masks."""
    entries: list[Any] = []
    together = draw(st.sampled_from([(), (2,), (3, 1), (1, 2)]))
    axis = 0
    while axis < len(shape):
        n = shape[axis]
        kinds = ["slice", "slice", "none", "stop"] + ["int"] * (n > 0)
        if advanced:
            kinds += ["array", "array", "list"] * (n > 0) + ["mask"]
        kind = draw(st.sampled_from(kinds))
        if kind == "none":
            entries.append(None)
            continue
        if kind == "stop":
            break
        entries.append(draw(entry(kind, n, together)))
        axis += 1
    if draw(st.booleans()) and axis <= len(shape):
        entries.insert(draw(st.integers(0, len(entries))), Ellipsis)
    if len(entries) == 1 and draw(st.booleans()):
        return entries[0]
    return tuple(entries)


@st.composite
def arrays_and_indices(draw: Any, advanced: bool) -> tuple[np.ndarray, Any]:
    # NumPy lets wrong masks pass in arrays that have no elements.
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4) if advanced else SHAPES)
    return _array(shape), draw(indices(shape, advanced))
