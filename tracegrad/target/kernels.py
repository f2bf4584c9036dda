"""Tuning constants of kernels: vectors, unrolling, prefetches, transposition."""

from tracegrad.target.constants import chosen, measured
from tracegrad.utils.lazy_dataclass import record


@record(frozen=True)
class ScalarCosts:
    """Costs of scalar operations, in cost units: an operation that is not listed costs 1."""

    function: int = chosen(20, "cost units", "cost of an elementary function")
    bits: int = chosen(6, "cost units", "cost of a function of the bits of a float, as nextafter")
    others: tuple[tuple[str, int], ...] = chosen(
        (("div", 4), ("sqrt", 5), ("floor_divide", 8), ("remainder", 12), ("power", 50), ("half_value", 6)),
        "cost units",
        "costs of other operations",
    )


@record(frozen=True)
class Vectorization:
    """Constants of vectorization, for all kernels."""

    vector_bytes: int = measured(
        32,
        "bytes",
        "kernels",
        "width of masked vectors on CPUs with AVX2; most reduce their frequency after 64-byte vectors",
    )
    compute_vector_bytes: int = measured(
        32,
        "bytes",
        "kernels",
        "width of vectors in expensive loops that do not wait for memory; short rows are slower with 64",
    )
    memory_vector_bytes: int = measured(
        32, "bytes", "kernels", "width of the vectors of a memory-bound loop: longer ones may cross cache lines"
    )
    max_cheap_cost: int = measured(
        12, "cost units", "kernels", "maximum cost of an iteration that computes several vectors"
    )
    max_unmasked_cost: int = measured(
        35, "cost units", "kernels", "a costlier loop is only emitted with masks, whose overhead is small then"
    )
    max_shuffled_stride: int = measured(
        8, "elements", "kernels", "maximum stride for which LLVM shuffles whole vectors"
    )
    min_interleaved_calls: int = measured(
        6,
        "functions",
        "workloads",
        "elementary functions of a dependence chain that is longer than out-of-order execution covers: "
        "two vectors are then interleaved, at the cost of compile time",
    )
    min_row_elements: int = measured(3, "elements", "kernels", "minimum elements of a row with an access of its own")
    max_rows: int = measured(8, "rows", "kernels", "maximum rows in a vector: each strided row is a load")
    cost_per_gather: int = measured(
        15, "cost units", "kernels", "minimum cost of an iteration per gather: cheap loops are faster with scalar loads"
    )
    counted_vectors: int = measured(4, "vectors", "kernels", "vectors of booleans that an iteration counts")
    min_early_exit: int = measured(
        256, "elements", "kernels", "minimum elements of a row for an early exit: the vectors of an iteration"
    )
    merged_bytes: int = measured(64, "bytes", "kernels", "bytes of partial results that are combined at a time")


@record(frozen=True)
class Unrolling:
    """Constants of full unrolling and of unroll-and-jam."""

    max_instructions: int = measured(
        96, "instructions", "workloads", "maximum instructions of an unrolled kernel with reductions"
    )
    max_choice_instructions: int = chosen(
        240, "instructions", "maximum instructions of an unrolled kernel without reductions"
    )
    max_copies: int = measured(16, "copies", "workloads", "maximum copies of a loop body")
    jam_factor: int = measured(
        4, "copies", "kernels", "unroll factor of unroll-and-jam; twice as many copies of a short body with vectors"
    )
    max_jam_instructions: int = measured(12, "instructions", "kernels", "maximum instructions of a body that is jammed")
    max_constant_bytes: int = measured(
        32, "bytes", "kernels", "maximum bytes of an innermost loop of constant extent that LLVM unrolls"
    )
    max_jam_row_bytes: int = measured(
        512, "bytes", "kernels", "maximum bytes of a jammed row that only waits for its additions"
    )


@record(frozen=True)
class Prefetching:
    """Constants of software prefetches in kernels."""

    rows: int = measured(4, "rows", "elementwise", "prefetch distance in strided memory")
    lines: int = measured(8, "cache lines", "elementwise", "prefetch distance in contiguous memory")
    min_cost_per_load: int = measured(
        16, "cost units", "elementwise", "minimum cost per loaded element: the CPU's own prefetcher is too late then"
    )


@record(frozen=True)
class Transposition:
    """Constants of transposing kernels and copies, and of loops across memory."""

    interleaved_bytes: int = measured(
        16, "bytes", "kernels", "bytes within which neighbours are interleaved by one instruction"
    )
    vector_bytes: int = measured(
        32, "bytes", "kernels", "width of vectors of 4- and 8-byte elements: longer ones may cross cache lines"
    )
    max_arrays: int = measured(2, "arrays", "kernels", "maximum transposed arrays whose tiles fit in registers")
    strip_columns: int = measured(256, "columns", "kernels", "columns of a strip of tiles")
    small_edge: int = measured(
        8, "elements", "kernels", "edge of a small tile, the minimum extent of a loop that is not unrolled"
    )
    block_edge: int = measured(
        16, "elements", "products", "edge of a block of a transposed matrix: one or two cache lines"
    )
    conflict_block: int = measured(
        8, "elements", "kernels", "block of an innermost loop across memory whose lines share cache sets"
    )
    conflict_stride: int = measured(
        512, "elements", "kernels", "strides that are multiples of this number share cache sets"
    )
