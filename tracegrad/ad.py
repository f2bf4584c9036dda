"""Reverse-mode differentiation: one sweep, used by the eager tape and by the graph transform.

A tape is a sequence of entries `(answer, op, operands, params)` in the order of computation. Cotangents are symbolic
where they are zero: a value without an entry in the result has the cotangent 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from tracegrad.avals import is_literal
from tracegrad.ops.elementwise import add
from tracegrad.ops.op import Op

__all__ = ["Entry", "active_values", "reverse_sweep"]

Entry = tuple[Any, Op, tuple[Any, ...], dict[str, Any]]


def active_values(tape: Iterable[Entry], wanted: Iterable[Any], key: Callable[[Any], Hashable] = id) -> set[Hashable]:
    """Keys of the values through which a derivative with respect to `wanted` flows."""
    active = {key(x) for x in wanted if x.dtype.kind == "f"}
    for ans, op, operands, _ in tape:
        for i, x in enumerate(operands):
            if not is_literal(x) and key(x) in active and op.differentiable_in(i):
                if ans.dtype.kind == "f":
                    active.add(key(ans))
                break
    return active


def reverse_sweep(
    tape: list[Entry],
    seeds: Mapping[Hashable, Any],
    active: Callable[[Any], bool],
    key: Callable[[Any], Hashable] = id,
) -> dict[Hashable, Any]:
    """Cotangents by key, from `seeds`, the cotangents of some answers; only `active` operands receive one.

    Every rule is applied in ops, so the cotangents are of the kind of the operands: ndarrays, Tensors with a tape of
    their own, or nodes of a graph.
    """
    cotangents = dict(seeds)
    for ans, op, operands, params in reversed(tape):
        ct = cotangents.get(key(ans))
        if ct is None or ans.dtype.kind != "f":
            continue
        for i, x in enumerate(operands):
            if is_literal(x) or not op.differentiable_in(i) or not active(x):
                continue
            ct_x = op.pull(i, ct, ans, operands, params)
            if ct_x is not None:
                k = key(x)
                cotangents[k] = add(cotangents[k], ct_x) if k in cotangents else ct_x
    return cotangents
