"""How kernels are cut into chunks: by sizes alone, into rows that go together or long runs along memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exact import compiled
from graphs import graph_of

from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.partition import (
    MAX_LONG_CHUNKS,
    MAX_PARTIAL_ELEMENTS,
    MIN_REDUCED_ROWS,
    MIN_SPLIT_ROW,
    RUN,
    TOGETHER,
)
from tracegrad.codegen.plan.planner import plan
from tracegrad.ops.shape.linear import reduce_sum


def launched(shape: tuple[int, int], axis: int, dtype: Any = np.float64) -> Launch:
    (step,) = plan(graph_of(reduce_sum, [np.zeros(shape, dtype)], {"axes": (axis,)})).steps
    assert isinstance(step, Launch)
    return step


@pytest.mark.parametrize("shape", [(100, 100_000), (2000, 5000), (1000, 1000), (33, 40_000)], ids=str)
def test_rows_that_are_reduced_go_together(shape: tuple[int, int]) -> None:
    step = launched(shape, 1)
    assert step.blocks.number > 1
    assert step.blocks.size % TOGETHER == 0


def test_few_rows_are_a_chunk_each() -> None:
    assert launched((10, 1_000_000), 1).blocks.number == 10


@pytest.mark.parametrize("shape", [(MIN_REDUCED_ROWS, 5000), (1000, 1000), (10_000, MAX_PARTIAL_ELEMENTS)], ids=str)
def test_many_rows_are_cut_where_columns_are_reduced(shape: tuple[int, int]) -> None:
    step = launched(shape, 0)
    assert step.kernel.chunked == 0
    assert 1 < step.blocks.number <= MAX_LONG_CHUNKS
    assert step.blocks.size % TOGETHER == 0
    assert step.partials


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(100, MIN_SPLIT_ROW), (20, 1_000_000), (1000, MAX_PARTIAL_ELEMENTS + 1)], ids=str)
def test_long_rows_are_cut_along_memory_where_columns_are_reduced(shape: tuple[int, int], dtype: Any) -> None:
    step = launched(shape, 0, dtype)
    assert step.kernel.chunked == 1
    assert step.blocks.number >= 4
    assert not step.partials
    assert step.blocks.size >= min(RUN // np.dtype(dtype).itemsize, shape[1] // 4)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(37, 4111), (531, 4099), (1025, 517), (9, 33_001), (70, 32_771)], ids=str)
def test_sums_of_chunks_are_whole(shape: tuple[int, int], axis: int) -> None:
    x = np.random.default_rng(0).integers(-1000, 1000, shape).astype(np.float64)  # whose sums are exact in any order
    (got,) = compiled(graph_of(reduce_sum, [x], {"axes": (axis,)})).run([x])
    np.testing.assert_array_equal(got, x.sum(axis))
