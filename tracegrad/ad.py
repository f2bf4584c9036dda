"""Differentiate a tape: one reverse and one forward sweep, shared by the eager tape and the graph transforms.

A tape is a sequence of entries `(ans, op, operands, params)` in the order of computation; `ans` is the result, a tuple
for an op with several results. Zero cotangents and tangents are symbolic: a value without an entry in the returned
dict has the cotangent, or tangent, 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Reversible, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.avals import LITERALS, is_literal
from tracegrad.ops.core.forms import Gather
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise.table import accumulate, greater, logical_and, logical_not, logical_or, where
from tracegrad.ops.reduce.reductions import reduce_any
from tracegrad.ops.shape.linear import cast, full, reduced_shape, reshape, unreduce

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


__all__ = [
    "Entry",
    "either_mask",
    "forward_sweep",
    "mask_of_repeated",
    "pull_all_masked",
    "pull_each",
    "pull_masked",
    "receivers",
    "reverse_sweep",
]

Entry = tuple[Any, Op, tuple[Any, ...], dict[str, Any]]


def receivers(tape: Iterable[Entry], wanted: Iterable[Any], key: Callable[[Any], Hashable] = id) -> list[Sequence[int]]:
    """List, for each entry, the operand positions through which a derivative with respect to `wanted` flows."""
    active = {key(x) for x in wanted if x.dtype.kind in "fc"}
    results: list[Sequence[int]] = []
    for ans, op, operands, _ in tape:
        positions: Sequence[int] = [
            i
            for i, x in enumerate(operands)
            if type(x) not in LITERALS and key(x) in active and op.differentiable_in(i)
        ]
        if positions:
            result_keys = [key(y) for y in _results(ans) if y.dtype.kind in "fc"]
            active.update(result_keys)
            positions = positions if result_keys else ()
        results.append(positions)
    return results


def reverse_sweep(
    tape: Reversible[Entry],
    receivers: Sequence[Sequence[int]],
    seeds: Mapping[Hashable, Any],
    key: Callable[[Any], Hashable] = id,
    masks: dict[Hashable, Any] | None = None,
) -> dict[Hashable, Any]:
    """Compute cotangents by key from `seeds`, the cotangents of some results; `receivers` says which operands get one.

    Every rule is applied in ops, so cotangents have the kind of the operands: ndarrays, Tensors with a tape of their
    own, or nodes of a graph.

    A branch that `where` did not take does not contribute to the derivative, even if its own derivative is inf or nan.
    Because 0 * inf and 0 * nan are nan, a cotangent out of a `where` has a *mask*, which is true where the cotangent is
    not 0. The mask is applied again after every rule that multiplies. `masks` holds the masks of the seeds, and
    receives the masks of the computed cotangents.
    """
    cotangents = dict(seeds)
    masks = {} if masks is None else masks
    for (ans, op, operands, params), wanted in zip(reversed(tape), reversed(receivers)):
        if not wanted:
            continue
        pulled: Iterable[tuple[Any, Any]]
        if type(ans) is tuple:
            cts = tuple([cotangents.get(key(y)) if y.dtype.kind in "fc" else None for y in ans])
            if all(ct is None for ct in cts):
                continue
            pulled = pull_all_masked(op, wanted, cts, [masks.get(key(y)) for y in ans], ans, operands, params)
        else:
            k = key(ans)
            ct = cotangents.get(k)
            if ct is None:
                continue
            pulled = pull_each(op, wanted, ct, masks.get(k), ans, operands, params)
        for i, (ct, mask) in zip(wanted, pulled):
            if ct is not None:
                k = key(operands[i])
                if k in cotangents:
                    ct, mask = accumulate(cotangents[k], ct), either_mask(masks.get(k), mask)
                cotangents[k], masks[k] = ct, mask
    return cotangents


def forward_sweep(
    tape: Iterable[Entry], tangents: Mapping[Hashable, object], key: Callable[[Any], Hashable] = id
) -> dict[Hashable, Any]:
    """Compute tangents by key from `tangents`, the tangents of some values; independent values have none.

    Every rule is applied in ops, as in `reverse_sweep`. No masks are needed, because `where` passes on only the tangent
    of the branch that it took.
    """
    table = dict(tangents)
    for ans, op, operands, params in tape:
        args = tuple(
            [
                None if is_literal(x) or not op.differentiable_in(i) else table.get(key(x))
                for i, x in enumerate(operands)
            ]
        )
        outputs = _results(ans)
        if all(t is None for t in args) or not any(y.dtype.kind in "fc" for y in outputs):
            continue
        for y, t in zip(outputs, _results(op.push(args, ans, operands, params))):
            if t is not None and y.dtype.kind in "fc":
                table[key(y)] = t
    return table


def _results(ans: object) -> tuple[Any, ...]:
    return ans if type(ans) is tuple else (ans,)


def pull_masked(
    op: Op, i: int, ct: Any, mask: Any, ans: Any, operands: tuple[Any, ...], params: dict[str, Any]
) -> tuple[Any, Any]:
    """Compute the cotangent of operand `i` and its mask from the cotangent and mask of the result.

    A mask of None means everywhere.
    """
    ct_x = op.pull(i, ct, ans, operands, params)
    if ct_x is None or (mask is None and op is not where):
        return ct_x, None
    if mask is not None and isinstance(op.form, Gather):
        counted = "float64" if ct.dtype.kind == "c" else ct.dtype.name
        count = op.pull(i, cast(mask, dtype=counted), ans, operands, params)
        return ct_x, greater(count, 0.0)  # false where no unmasked element was gathered from
    mask_x = _mask_of_operand(op, i, mask, ans, operands, params)
    if mask_x is not None and not op.form.moves:
        ct_x = where(mask_x, ct_x, 0.0)  # the rule may multiply by inf or nan
    return ct_x, mask_x


def pull_each(
    op: Op,
    wanted: Sequence[int],
    ct: Any,
    mask: Operand | None,
    ans: object,
    operands: tuple[object, ...],
    params: dict[str, tuple[int, ...] | float | str],
) -> Iterable[tuple[Any, Any]]:
    """Apply `pull_masked` to all wanted operands."""
    if not op.pulls_all:
        if mask is None and op is not where:
            return ((op.pull(i, ct, ans, operands, params), None) for i in wanted)
        return (pull_masked(op, i, ct, mask, ans, operands, params) for i in wanted)
    result = op.pull_all(wanted, ct, ans, operands, params)
    if mask is not None and op.pointwise and not op.form.moves:
        return [(None if ct_x is None else where(mask, ct_x, 0.0), mask) for ct_x in result]
    moved = mask is not None and op.form.moves
    return zip(result, op.pull_all(wanted, mask, ans, operands, params) if moved else [None] * len(wanted))


def pull_all_masked(
    op: Op,
    wanted: Sequence[int],
    cts: tuple[object, ...],
    masks: list[Operand | None],
    ans: object,
    operands: tuple[object, ...],
    params: dict[str, object],
) -> list[tuple[Any, Any]]:
    """Apply `pull_masked` to all wanted operands of an op with several results."""
    if not wanted:
        return []
    result = op.pull_all(wanted, cts, ans, operands, params)
    if not op.form.moves or all(mask is None for mask in masks):
        return [(ct_x, None) for ct_x in result]
    moved = tuple([None if ct is None else _mask_of(ct, mask) for ct, mask in zip(cts, masks)])
    return list(zip(result, op.pull_all(wanted, moved, ans, operands, params)))


def _mask_of(ct: Any, mask: Any) -> Any:
    return full(shape=ct.shape, value=True, dtype="bool") if mask is None else mask


def either_mask(x: Any, y: Any) -> Any:
    """Combine the masks of two cotangents into the mask of their sum."""
    return None if x is None or y is None else logical_or(x, y)


def _mask_of_operand(op: Op, i: int, mask: Any, ans: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Compute the mask of the cotangent of operand `i` from the mask of the result; None means everywhere."""
    if op is where and not is_literal(operands[0]):
        selected = operands[0] if i == 1 else logical_not(operands[0])
        return selected if mask is None else logical_and(mask, selected)
    if mask is None or op.pointwise:
        return mask
    axes = params.get("axes")
    if axes is not None and len(operands) == 1 and mask.shape == reduced_shape(operands[0].shape, axes):
        return unreduce(mask, operands[0].shape, axes)  # the op is a reduction
    return op.pull(i, mask, ans, operands, params) if op.form.moves else None


def mask_of_repeated(mask: Array, shape: tuple[int, ...]) -> Any:
    """Reduce the mask of a repeated value to `shape`: true where any repetition is true."""
    new = len(mask.shape) - len(shape)
    axes = tuple(a for a, n in enumerate(mask.shape) if a < new or shape[a - new] != n)
    return reshape(reduce_any(mask, axes=axes), shape=shape)
