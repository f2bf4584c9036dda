"""Calls of a `Function` on the examples of a batch, by the batching rule `vmap` of its class.

The rule runs in the trace around the mapped function, on whole batches. Its results are inputs of the graph of one
example, with a row for each example.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tracegrad import tree
from tracegrad.errors import located
from tracegrad.ops.shape.batching import axes_of_leaves, to_axis
from tracegrad.torch.tape.tensors.tensor import Tensor
from tracegrad.torch.tape.tensors.traced_tensor import TracedTensor

__all__ = ["call_by_batching_rule"]


class VmapInfo(NamedTuple):
    """What a batching rule is told: the number of examples, and the word `randomness` of `torch.vmap`."""

    batch_size: int
    randomness: str


def call_by_batching_rule(cls: Any, args: tuple[object, ...]) -> tuple[object] | None:
    """Call the rule `cls.vmap` with the batches of these arguments; None if none of them depends on the example.

    It is None, too, where a derivative is taken within the function of one example: `forward` is recorded then.
    Otherwise the result is a tuple of one, the results for one example.
    """
    if cls.generate_vmap_rule:
        text = f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden vmap"
        raise RuntimeError(located(f"{text} staticmethod. Set it to False, or delete the method"))
    leaves, structure = tree.flatten(args)
    traced = [x for x in leaves if isinstance(x, TracedTensor)]
    region = traced[0].array.builder.innermost() if traced else None
    if region is None or not region.is_of_examples or any(x._requires for x in traced):
        return None
    inside = [k for k, x in enumerate(leaves) if isinstance(x, TracedTensor) and x.array.builder is region]
    batches, mapped = region.batches([leaves[k].array.node for k in inside])
    if not any(mapped):
        return None
    dims: list[int | None] = [None] * len(leaves)
    for k, x, is_mapped in zip(inside, batches, mapped):
        leaves[k], dims[k] = x if isinstance(x, Tensor) else leaves[k]._like(x), 0 if is_mapped else None
    info = VmapInfo(region.example_draws.size, region.example_draws.randomness or "error")
    with region.outer.outside():
        result = cls.vmap(info, tree.unflatten(structure, dims), *tree.unflatten(structure, leaves))
        output, out_dims = _output_and_dims(result)
        flat, shape = tree.flatten(output)
        rows = [x if d is None else to_axis(x, d % len(x.shape), 0) for x, d in zip(flat, out_dims, strict=True)]
    return (
        tree.unflatten(shape, [x if d is None else region.example_of(x) for x, d in zip(rows, out_dims, strict=True)]),
    )


def _output_and_dims(result: object) -> tuple[object, list[int | None]]:
    """Return the output of a rule, and the batch dimension of each leaf; RuntimeError for another result."""
    if not isinstance(result, tuple) or len(result) != 2:
        text = "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure"
        kind = f"{len(result)} returns" if isinstance(result, tuple) else f"a {type(result)}"
        raise RuntimeError(located(f"{text} compatible with the output. Got {kind} instead"))
    output, dims = result
    axes = axes_of_leaves(dims, output)
    if axes is None:
        text = "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple."
        kinds = f"out_dims has structure {tree.structure(dims)} but output has structure {tree.structure(output)}."
        raise RuntimeError(located(f"{text} {kinds}"))
    return output, axes
