"""Recorders of op nodes: the generated function fills the same fields as the loops of `record_any`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import Tensor
from tracegrad.torch.tape.recording import node_recorder
from tracegrad.torch.tape.recording.op_node import OpNode
from tracegrad.torch.tape.recording.saved_tensor import SavedArray

CALLS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "nothing saved": lambda x, y: -x,
    "operand saved": lambda x, y: x.sin(),
    "result saved": lambda x, y: x.exp(),
    "both operands": lambda x, y: x * y,
    "number on the left": lambda x, y: 2.0 / x,
    "number on the right": lambda x, y: x**2.5,
    "constant operand": lambda x, y: x * y.detach(),
    "broadcast": lambda x, y: x * y[0],
    "parameters": lambda x, y: x.sum(0),
    "shapes": lambda x, y: x @ y.t(),
    "several results": lambda x, y: x.sort(dim=1)[0],
    "three operands": lambda x, y: tg.where(x > 1.0, x, y),
    "many operands": lambda x, y: tg.cat([x, y, x, y, x]),
}


def _plain(value: Any) -> Any:
    if isinstance(value, SavedArray):
        return "saved", np.asarray(value.array).tolist(), value.version
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _fields(node: OpNode) -> list[Any]:
    edges = [edge.name() if edge else edge for edge in node.edges]
    shown = [(x.shape, x.dtype) if hasattr(x, "shape") else _plain(x) for x in (*node.operands, node.saved_result)]
    return [node.name(), edges, shown, node.params, node.hooks, node.shapes]


def _node(call: Callable[[Tensor, Tensor], Any]) -> OpNode:
    x, y = (tg.tensor(np.arange(k, k + 6.0).reshape(2, 3), requires_grad=True) for k in (1, 2))
    node = call(x, y).grad_fn
    assert isinstance(node, OpNode)
    return node


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_generated_recorder_fills_the_fields_that_the_loops_fill(
    call: Callable[[Tensor, Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = _node(call)
    want = _fields(node)
    loops: list[OpNode] = []

    def record(*args: Any) -> OpNode:
        loops.append(node_recorder.record_any(*args))
        return loops[-1]

    with tg.autograd.forward_ad.dual_level():  # an unusual mode takes the general path
        monkeypatch.setattr("tracegrad.torch.tape.recording.recorded_array.record_any", record)
        general = _node(call)
    assert any(general is made for made in loops)
    got = _fields(general)
    assert got == want


def test_recorders_of_one_pattern_share_their_code() -> None:
    node_recorder._factory.cache_clear()
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    for dtype in (np.float32, np.float64):
        for shape in ((2,), (2, 1), (1, 2)):
            x.to(dtype).reshape(shape).sum()
    assert node_recorder._factory.cache_info().currsize <= 2
