"""Name each optimization that `settings.disable` (TRACEGRAD_DISABLE) can leave out.

A program computes the same without any of them, slower or in more memory. If a result is wrong, leave out one name
after the other, or half of the names at a time. The name whose absence mends the result leads to the module at fault.

`OPTIMIZATIONS` is the one list. The code that decides whether to optimize asks `tracegrad.settings.disabled(name)`
while it traces, plans or builds a fast path, and never in a call of a finished program. A kernel of the loop IR carries
the names of `CHANGES_KERNELS`, because its code is emitted later. `REQUIRED` has the passes that cannot be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["CHANGES_KERNELS", "OPTIMIZATIONS", "REQUIRED", "STAGES", "Optimization", "names_of", "table_lines"]


class Optimization(NamedTuple):
    """An optimization: the stage of the compiler that applies it, and what it does."""

    stage: str
    text: str


STAGES = {
    "trace": "from a call to a graph",
    "passes": "from graph to graph",
    "lower": "from a graph to kernels",
    "kernels": "from a kernel to LLVM IR",
    "plan": "steps and buffers of a program",
    "runtime": "calls of a program",
}

_DESCRIPTIONS = {
    "trace": {
        "rerolling": "make a scan of a Python loop whose iterations were recorded one by one",
        "loop-capture": "close a loop that asks for values while it is recorded",
        "loop-folding": "count a long `for` loop with a traced number from its first iteration on",
        "appended-lists": "keep a list that a loop appends to as an array",
        "indexed-lists": "keep a list that a loop indexes as an array",
        "if-conversion": "compute what the paths of an iteration share once, and select the values that differ",
        "induction-variables": "compute a carry with a constant step from the loop counter",
        "scanned-reads": "turn reads at the loop counter into rows of a scan",
        "hoisted-reads": "read a part of an array before the loop if no iteration writes it",
        "ragged-padding": "pad iterations with arrays of different sizes, and reroll them",
        "convolution-idiom": "compute a sum of products of windows as one product",
        "checkpointing": "recompute iterations of a loop whose residuals exceed `settings.loop_memory`",
        "rematerialization": "recompute cheap residuals in the backward pass of a call on Tensors",
        "closure-sharing": "share programs among functions that are made of the same code",
    },
    "passes": {
        "segment-fusion": "run a loop in the segments of its derivative, so that both can be fused",
        "small-matmul": "lower small matrix products, and products with a vector, to loops",
        "batched-products": "batch the products of all iterations of a loop",
        "simplification": "run the simplifier, which applies the rules of the names below",
        "algebra": "apply the rows of elementwise algebra (passes/algebra/rules.py)",
        "constant-folding": "fold elementwise ops of constants",
        "shape-rules": "simplify data movement and reductions",
        "broadcast-sinking": "apply elementwise ops before a broadcast",
        "boolean-algebra": "simplify combinations of masks",
        "redundant-selects": "remove a select inside a select by the same mask",
        "window-rules": "read a window that was just written, and update windows in place",
        "cotangent-sums": "add cotangents where they are computed: parts, windows, accumulators of loops",
        "like-terms": "collect like terms in sums of cotangents",
        "diagonal-products": "multiply with diagonal matrices elementwise",
        "outer-products": "multiply with outer products without storing them",
        "long-products": "compute a sum of a stack of products as one product",
        "triangular-solves": "solve with Cholesky factors as triangular systems",
        "region-simplification": "simplify operands, carries and results of loops and branches",
        "row-reads": "read an element of an array instead of an element of a copied row",
        "invariant-code-motion": "compute loop-invariant values before the loop",
        "last-iteration-sinking": "compute a carry after the loop if only its last value is used",
        "shared-factorizations": "factor a matrix once for all of its systems",
        "loop-fusion": "fuse loops that share work, and remove unused results of loops",
        "residual-elimination": "read the final array of a loop instead of saved copies",
        "loop-tiling": "run elementwise loops and their derivatives block by block",
    },
    "lower": {
        "inlining": "compute elementwise values where they are read instead of storing them",
        "kernel-fusion": "compute several stored values in one kernel",
        "operand-packing": "copy a strided operand before several kernels read it",
        "transposed-products": "let BLAS write a product in transposed order",
        "full-unrolling": "unroll short loops completely",
        "loop-interchange": "choose the innermost loop of a kernel by its memory accesses",
        "loop-coalescing": "merge adjacent loops that run through memory as one",
        "kernel-cache": "lower equal layers once",
    },
    "kernels": {
        "vectorization": "emit vectors instead of scalar loops, which LLVM may vectorize",
        "multi-row-vectors": "put several short rows in one vector",
        "interleaved-access": "load and store pairs of neighbours together, as complex numbers",
        "transpose-tiling": "transpose by tiles in registers",
        "unroll-and-jam": "unroll the second loop and fuse the copies in the innermost",
        "scalar-replacement": "keep the value of the previous iteration in a register",
        "bound-tightening": "shorten a loop to its mask",
        "interior-splitting": "split the interior of a loop, where no guard is needed, from its boundary",
        "conflict-blocking": "block loops whose accesses collide in cache sets",
        "early-exit": "leave a search as soon as its result is known",
        "prefetch": "prefetch memory in kernels with long arithmetic",
        "fma-contraction": "fuse a product with the sum that uses it",
    },
    "plan": {
        "dead-store-elimination": "store no temporary that only its own kernel reads",
        "in-place-updates": "update arrays and loop carries in place",
        "buffer-reuse": "store a result in a temporary whose last use is the same kernel",
        "arena-reuse": "let temporaries with disjoint lifetimes share memory",
        "input-donation": "store results in donated inputs",
        "fused-arg-reduction": "fuse argmin and argmax with the minimum and the maximum",
        "gemm-accumulation": "let BLAS add a product to an array",
        "scatter-accumulation": "scatter into the array that the result is added to",
        "one-hot-inlining": "compute one-hot rows where they are read",
        "loop-splitting": "run one kernel for each piece of a concatenation, a stack or a roll",
        "strip-fusion": "run several kernels strip by strip of the same rows",
        "strip-mining": "run all iterations of an elementwise loop on one strip of elements after the other",
        "wavefront-tiling": "run several iterations of a stencil on nearby rows",
        "parallel-iterations": "run independent iterations of a loop on several threads",
        "parallel-kernels": "run the chunks of a kernel on several threads",
        "plan-cache": "plan equal graphs once",
        "native-gemm": "cut products into tiles, and compute some of them by tracegrad's own GEMM",
        "native-factorizations": "factor and solve by machine code instead of calls of NumPy",
        "native-sorting": "sort, search and pack bits by machine code instead of calls of NumPy",
        "native-draws": "draw random numbers by machine code instead of calls of NumPy",
    },
    "runtime": {
        "call-replay": "let NumPy answer a first call that is cheaper than to compile",
        "fast-path": "call a known program from generated Python code",
        "inline-caches": "try the fast paths of alternating calls one after the other",
        "native-entry": "check arguments and make results by machine code instead of Python",
        "native-guards": "check guards of the fast path by machine code",
        "native-unpacking": "unpack dicts, lists and tuples of the fast path by machine code",
        "strided-inputs": "read transposed and strided arrays without a copy",
        "output-reuse": "reuse the memory of dead results for new ones",
        "arena-sharing": "take over the idle temporaries of another program",
    },
}

OPTIMIZATIONS = {
    name: Optimization(stage, text) for stage, rows in _DESCRIPTIONS.items() for name, text in rows.items()
}
# The optimizations that are applied when a kernel is emitted: its text names the disabled ones.
CHANGES_KERNELS = frozenset(_DESCRIPTIONS["kernels"])

# The graph passes that cannot be left out, with the reason.
REQUIRED = {
    "decompose": "the code generator has no rules for composite ops",
    "unroll_small_contractions": "BLAS has no products of integers and booleans; `small-matmul` leaves out the others",
}


def names_of(names: Iterable[str]) -> frozenset[str]:
    """The optimizations with these names; underscores stand for hyphens, and empty names for nothing.

    Raises
    ------
    ValueError
        If a name is not in `OPTIMIZATIONS`.

    Examples
    --------
    >>> sorted(names_of(["rerolling", " Buffer_Reuse ", ""]))
    ['buffer-reuse', 'rerolling']
    """
    result = frozenset(name.strip().lower().replace("_", "-") for name in names) - {""}
    for name in sorted(result.difference(OPTIMIZATIONS)):
        raise ValueError(f"unknown optimization {name!r}; `python -m tracegrad info --optimizations` lists them")
    return result


def table_lines() -> Iterator[str]:
    """The table as lines of text: the stages, each with its names."""
    width = max(map(len, OPTIMIZATIONS))
    for stage, text in STAGES.items():
        yield f"{stage}: {text}"
        for name, x in OPTIMIZATIONS.items():
            if x.stage == stage:
                yield f"  {name.ljust(width)}  {x.text}"
