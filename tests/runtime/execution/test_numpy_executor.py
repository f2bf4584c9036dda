"""What NumPy computes of a graph op by op: the outputs as they are, in blocks where all is elementwise."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.ir import run
from tracegrad.ops.core.op import Op
from tracegrad.runtime.execution import numpy_executor


def deep(x: Any) -> Any:
    for _ in range(6):
        x = np.sin(x) * np.exp(-0.1 * x * x)
    return x


def slope(f: Callable[..., Any]) -> Callable[..., Any]:
    return tg.grad(lambda *x: np.sum(f(*x)))


LONG, ROWS, SHORT = np.linspace(-1.0, 2.0, 40_001), np.linspace(0.1, 3.0, 50_200).reshape(251, 200), np.ones(100)
Case = tuple[Callable[..., Any], tuple[Any, ...], bool]
CASES: dict[str, Case] = {
    "a derivative": (slope(slope(deep)), (LONG,), True),
    "rows, the last block of which is short": (slope(deep), (ROWS,), True),
    "numbers beside arrays": (lambda x, a: (np.exp(a) * x, x + 2.0 * a), (LONG, 0.5), True),
    "two dtypes, and a choice": (lambda x: np.where(x > 0, x, 2), (LONG.astype(np.float32),), True),
    "a result of another order": (lambda x: np.sin(x) + 1.0, (np.asfortranarray(ROWS),), False),
    "an argument itself": (lambda x: (x, x + 1.0), (LONG,), True),
    "no elements, in many rows": (lambda x: x + 1.0, (np.zeros((2**40, 0)),), False),
    "few elements": (slope(deep), (SHORT,), False),
    "a sum": (lambda x: x * np.sum(x), (LONG,), False),
    "elements from elsewhere": (lambda x: x[::-1] * x, (LONG,), False),
    "arrays of two shapes": (lambda x, y: x * y, (ROWS, ROWS[0]), False),
    "a value beside arrays": (lambda x: (x, np.max(x)), (LONG,), False),
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_the_ops_in_blocks_where_all_is_elementwise(case: str) -> None:
    f, arguments, blocks = CASES[case]
    graph = tg.trace(f).graph(*arguments)
    assert (numpy_executor._blocks_of(graph) is not None) is blocks
    before = [np.array(x) for x in arguments]
    result, right = numpy_executor.execute_graph(graph, arguments), run(graph, arguments)
    for x, y in zip(result, right, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=1e-6 if x.dtype == np.float32 else 1e-14, atol=1e-300)
        assert not any([np.shares_memory(x, argument) for argument in arguments])  # noqa: C419
    for x, y in zip(arguments, before):
        np.testing.assert_array_equal(x, y)


def test_a_long_chain_needs_the_memory_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tg.trace(slope(slope(deep))).graph(LONG)
    peaks = []
    for block in (numpy_executor.BLOCK // 8, 10**9):
        monkeypatch.setattr(numpy_executor, "BLOCK", block)
        tracemalloc.start()
        try:
            numpy_executor.execute_graph(graph, [LONG])
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[0] < 0.4 * peaks[1]


def test_ops_write_into_the_memory_of_operands_that_die(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(0.1, 1.0, numpy_executor.MIN_IN_PLACE).reshape(-1, 1)
    graph = tg.trace(lambda x: np.cumsum(np.exp(-np.sin(np.cos(x))), axis=0)).graph(x)  # cumsum: not in blocks
    assert numpy_executor._blocks_of(graph) is None
    in_place = []
    compute = Op.compute

    def recorded(self: Op[Any], operands: Any, params: dict[str, Any]) -> Any:
        in_place.append((self.name, "out" in params))
        return compute(self, operands, params)

    monkeypatch.setattr(Op, "compute", recorded)
    numpy_executor.execute_graph(graph, [x])
    assert in_place == [("cos", False), ("sin", True), ("negative", True), ("exp", True), ("cumsum", False)]
