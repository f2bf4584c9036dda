"""Forward mode through loops: find the values of an iteration with tangents, and the body that computes them."""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.ir import Graph
from tracegrad.transforms.jvp_graph import pushed

__all__ = ["pushed_iteration"]


def pushed_iteration(body: Graph, tangent_inputs: Sequence[int], carries: int) -> tuple[list[int], Graph, list[int]]:
    """Forward mode of a body: the inputs with tangents in some iteration, the body, and the results with tangents. The
    body takes its inputs and their tangents, and returns its results and their tangents."""
    moving = set(tangent_inputs)
    while True:
        both, result = pushed(body, sorted(moving))
        new = moving.union(k for k in result if k < carries)
        if new == moving:
            return sorted(moving), both, result
        moving = new
