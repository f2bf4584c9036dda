"""Tuning constants of traces, loops and passes."""

from tracegrad.target.constants import chosen, measured
from tracegrad.utils.lazy_dataclass import record


@record(frozen=True)
class GraphRewriting:
    """Constants of passes: when a rewritten graph is faster."""

    max_loop_size: int = measured(
        8, "rows", "kernels", "maximum rows, columns and terms of a matrix product that is a loop"
    )
    max_loop_vector: int = measured(
        1 << 30,
        "elements",
        "kernels",
        "maximum elements of the matrix of a matrix-vector or outer product that is a loop",
    )
    max_loop_size_in_stack: int = measured(
        4, "rows", "kernels", "as max_loop_size, for stacks of products, which are one call"
    )
    min_stack: int = measured(
        16, "products", "kernels", "minimum products of a stack to which max_loop_size_in_stack applies"
    )
    max_window: int = measured(
        16, "elements", "workloads", "elements up to which a sum of products needs no windows that are stored"
    )
    min_diagonal: int = chosen(32, "rows", "minimum rows of a diagonal matrix that is multiplied by its elements")
    min_rank_one: int = chosen(16, "rows", "minimum rows and columns for which an outer product is not formed")
    max_rank_one_terms: int = chosen(
        4, "terms", "maximum terms of a sum of outer products that are multiplied one by one"
    )
    max_complex_rows: int = chosen(
        4, "rows", "maximum rows, or columns, of a complex factor for which the other is read only once"
    )
    min_short_sum: int = measured(
        512,
        "elements",
        "kernels",
        "minimum elements of a sum of booleans or short integers that is computed in 32 bits",
    )
    min_accumulator: int = measured(
        64,
        "elements",
        "factorizations",
        "minimum elements of an accumulator that begins with the array its result would be added to",
    )
    min_sliced: int = measured(
        256, "elements", "factorizations", "minimum elements of an array of which only a part is read or written"
    )
    min_slice_ratio: int = measured(
        16, "times a window", "factorizations", "minimum size of an array relative to a small window of it"
    )
    max_terms: int = measured(
        16, "terms", "compile", "a longer sum is a term itself, so that the time is linear in the size of the graph"
    )
    max_compared_loops: int = measured(
        128, "nodes", "compile", "maximum loops that are compared with each other for shared work"
    )
    min_batched_iterations: int = measured(
        4, "iterations", "workloads", "minimum iterations of a loop whose products are batched"
    )
    max_batched_rows: int = measured(
        64, "rows", "workloads", "maximum rows of a product that gains by those of other iterations"
    )
    min_batched_work: int = measured(
        1 << 14, "multiply-adds", "workloads", "minimum work of a product of one iteration that is batched"
    )
    max_batched_bytes: int = chosen(1 << 25, "bytes", "maximum bytes of the operands, or results, of all iterations")
    min_tiled_bytes: int = chosen(
        1 << 22, "bytes", "minimum bytes of the rows that a loop saves, from which on it is tiled"
    )
    tile_bytes: int = chosen(1 << 18, "bytes", "bytes of the rows of one tile: fits in the second-level cache")
    min_tile: int = chosen(64, "elements", "minimum elements of a tile")
    max_tile: int = chosen(4096, "elements", "maximum elements of a tile")
    min_tiles: int = chosen(8, "tiles", "minimum tiles of a loop")
    max_element_bytes: int = chosen(
        1 << 16, "bytes", "maximum bytes of the rows of one element, above which even the shortest tile does not fit"
    )
    max_hoisted: int = chosen(
        1 << 16, "elements", "elements that are worth their memory in any case, outside of a loop"
    )
    min_sunk_work: int = measured(
        1 << 15, "operations", "workloads", "minimum saved operations of computations that are sunk out of a loop"
    )
    function_work: int = measured(8, "operations", "workloads", "operations that a function, or a quotient, counts for")


@record(frozen=True)
class LoopRolling:
    """Constants of loops: which are rerolled or folded, and what they may store."""

    min_iterations: int = measured(
        8,
        "iterations",
        "loops",
        "minimum iterations of a loop that is rerolled: the code of a shorter one is small and faster",
    )
    min_nodes: int = measured(100, "nodes", "loops", "minimum nodes of all iterations of a loop that is rerolled")
    max_window_bytes: int = chosen(
        1 << 25, "bytes", "maximum bytes of all windows of a convolution that is one product"
    )
    min_hoisted_ratio: int = measured(
        2,
        "times a part",
        "factorizations",
        "minimum size of an updated array relative to a part that is read before the loop",
    )
    max_checkpoint_levels: int = chosen(
        3, "levels", "maximum levels of segments: each level runs the iterations once more"
    )
    max_assumed_iterations: int = measured(
        1 << 12,
        "iterations",
        "factorizations",
        "maximum iterations for which memory is reserved because there might be so many",
    )
    max_recorded_nodes: int = measured(
        3000, "nodes", "factorizations", "recorded nodes of a loop from which on it is folded"
    )
    min_folded: int = measured(8, "iterations", "factorizations", "minimum iterations of a loop that is folded")
    min_folded_around: int = measured(
        4,
        "iterations",
        "factorizations",
        "minimum iterations of a loop that is folded because a loop in it is, or because its iterations read values",
    )
    min_folded_within: int = measured(
        3,
        "iterations",
        "factorizations",
        "minimum iterations of a loop in a folded one that is folded because its iterations read values",
    )
    min_remaining_ratio: float = measured(
        0.3,
        "parts of max_recorded_nodes",
        "factorizations",
        "part of the nodes that must still come for a loop to be folded",
    )
    estimated_after: int = measured(
        3,
        "iterations",
        "factorizations",
        "iterations after which the nodes of all are estimated; all that iterations share is recorded in "
        "the first, which tells nothing of the others",
    )
    max_unrolled_nodes: int = chosen(400, "nodes", "nodes of a loop that may stay recorded iteration by iteration")
    list_capacity: int = chosen(64, "elements", "initial capacity of a list that a loop of unknown length appends to")


@record(frozen=True)
class Tracing:
    """Constants of traces: attempts, and arrays that are constants."""

    max_attempts: int = chosen(
        100,
        "attempts",
        "maximum attempts to trace one call before it runs as plain Python; programs with loops of all "
        "kinds restart a few times",
    )
    max_slow_attempts: int = chosen(8, "attempts", "maximum attempts to trace one call after slow_time")
    slow_time: float = chosen(30.0, "s", "time of attempts after which few more are made")
    max_created: int = chosen(
        1 << 16,
        "elements",
        "maximum elements of a created array that is a constant: a larger one is computed where it is "
        "used, rather than read from memory",
    )
    max_constant: int = chosen(
        1 << 20, "elements", "maximum elements of an array that an operation on constants makes a constant"
    )
    max_constants_of_line: int = chosen(
        16, "constants", "constants from one line of code; with more of them, there is one in each iteration of a loop"
    )
