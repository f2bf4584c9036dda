"""Tuning constants of plans: fusion, threads, strips and memory."""

from tracegrad.target.constants import chosen, measured
from tracegrad.utils.lazy_dataclass import record


@record(frozen=True)
class Fusion:
    """Constants that decide which values are stored, and which share a kernel."""

    max_constant_size: int = measured(
        8, "elements", "compile", "maximum size that is a constant of the code; larger ones are symbols"
    )
    max_depth: int = chosen(100, "ops", "maximum inlined ops along one path: bounds the recursion of lowering")
    max_inlined_cost: int = measured(
        400,
        "cost units",
        "compile",
        "maximum inlined cost: bounds code size, because LLVM's time grows faster than the code",
    )
    max_scalar_cost: int = measured(
        60,
        "cost units",
        "workloads",
        "a value of one element is recomputed (and hoisted out of the loop) up to this cost",
    )
    min_stored_cost: int = measured(
        12,
        "cost units",
        "workloads",
        "minimum cost of a value that is stored because kernels would compute it repeatedly",
    )
    max_group_cost: int = measured(
        400, "cost units", "compile", "maximum cost of one kernel, including its stores: bounds compile time"
    )
    max_group_values: int = measured(32, "values", "compile", "maximum stored values of one kernel")
    cached_bytes: int = measured(
        1 << 16,
        "bytes",
        "kernels",
        "bytes that stay in a cache from one kernel to the next: operands that touch less are not packed",
    )
    min_arg_row_bytes: int = measured(
        256,
        "bytes",
        "kernels",
        "minimum bytes of a row whose argmax and max are fused: the widest vectors of an iteration",
    )
    max_one_hot_readers: int = measured(
        2, "kernels", "workloads", "maximum kernels that compute the rows of a one-hot scatter"
    )
    max_split_parts: int = measured(16, "kernels", "kernels", "maximum parts of a kernel that is split at its guards")
    min_guarded_cost: int = measured(
        24, "cost units", "kernels", "minimum cost of an element at which its guards are negligible"
    )


@record(frozen=True)
class Threading:
    """Constants of the work that threads share. A cost unit is about one addition."""

    min_parallel_cost: int = measured(
        200_000, "cost units", "kernels", "minimum cost of a loop, or a kernel, that uses threads"
    )
    share_cost: int = chosen(131_072, "cost units", "cost of the iterations that a thread runs at a time")
    max_shares: int = chosen(64, "parts", "maximum parts of a loop whose iterations run in parallel")
    max_iteration_bytes: int = chosen(
        1 << 26, "bytes", "maximum bytes of temporaries of parallel iterations, for all threads"
    )
    chunk_cost: int = measured(131_072, "cost units", "kernels", "cost of one chunk of a kernel")
    max_reduced_chunks: int = measured(64, "chunks", "kernels", "maximum chunks of a kernel that reduces across chunks")
    max_long_reduced_chunks: int = measured(
        16,
        "chunks",
        "kernels",
        "maximum chunks of a kernel that reduces across chunks, if the partial results are long",
    )
    min_chunk_elements: int = measured(
        4096,
        "elements",
        "kernels",
        "minimum elements of a chunk: in smaller ones, prefetches hit lines of other threads",
    )
    min_reduced_rows: int = measured(
        512,
        "rows",
        "kernels",
        "minimum rows of a reduction across chunks: with fewer, partial results are too large in comparison",
    )
    max_partial_elements: int = measured(
        1 << 15, "elements", "kernels", "maximum elements of a partial result per chunk"
    )
    min_split_row: int = measured(4096, "elements", "kernels", "minimum elements of a row that is partitioned")
    min_run_bytes: int = measured(
        1 << 14,
        "bytes",
        "kernels",
        "minimum bytes of a part of a row, if there are four: shorter runs are not prefetched",
    )
    shared_load_rows: int = measured(8, "rows", "kernels", "rows of one thread that share loads")
    release_gil_cost: int = chosen(100_000, "cost units", "minimum cost of a program that is called without the GIL")
    typical_iterations: int = chosen(100, "iterations", "assumed iterations of a loop of unknown length")
    poll_cost: int = chosen(20_000_000, "cost units", "cost of the iterations between two polls for signals")
    spin_time: int = measured(
        150_000,
        "ns",
        "mlp_step",
        "time that a worker spins after a region: longer than the serial gaps between the regions of one "
        "call, because waking a thread is slow, and short enough to be no load on an idle machine",
    )


@record(frozen=True)
class StripMining:
    """Constants of strips: of scans, of kernels that run strip by strip (fusions), and of stencils (wavefront)."""

    scan_bytes: int = chosen(
        16_384, "bytes", "bytes of the carries of a strip of a scan: fits in the first-level cache"
    )
    min_scan_rows: int = chosen(64, "rows", "minimum rows of a strip of a scan, for the overhead of its loops")
    scan_share: int = chosen(
        20, "strips", "a strip costs at least this many times the kernels that are repeated for every strip"
    )
    min_fused_rows: int = measured(16, "rows", "workloads", "minimum rows of a strip fusion")
    min_fused_bytes: int = measured(
        1 << 16,
        "bytes",
        "workloads",
        "minimum bytes that kernels pass to each other, which would not stay in the cache without a strip fusion",
    )
    fused_strip_bytes: int = measured(
        1 << 18,
        "bytes",
        "workloads",
        "bytes of a strip of a strip fusion, in all arrays: fits in the second-level cache",
    )
    min_fused_strip: int = measured(
        512, "elements", "workloads", "minimum elements of a strip of a strip fusion, for the overhead of its loops"
    )
    max_fused_strip_bytes: int = measured(1 << 19, "bytes", "workloads", "maximum bytes of a strip of a strip fusion")
    min_wavefront_bytes: int = measured(
        1 << 20,
        "bytes",
        "workloads",
        "minimum bytes accessed by each iteration of a stencil, more than the second-level cache holds",
    )
    wavefront_chunk_bytes: int = measured(
        1 << 16, "bytes", "workloads", "bytes of a chunk of a wavefront, in all arrays"
    )
    wavefront_bytes: int = measured(
        3 << 18, "bytes", "workloads", "bytes of the chunks of a wavefront, which stay in the second-level cache"
    )
    max_wavefront_cost: int = measured(
        48, "cost units", "workloads", "cost of an element at which an iteration is compute-bound"
    )
    max_wavefront_iterations: int = measured(
        8,
        "iterations",
        "workloads",
        "maximum iterations of a wavefront: with more, partial chunks at the ends cost more than is gained",
    )


@record(frozen=True)
class MemoryLayout:
    """Constants of buffers, arenas and the memory of results."""

    cache_line: int = measured(64, "bytes", "kernels", "bytes of a cache line")
    page: int = measured(4096, "bytes", "kernels", "bytes of a page")
    block_offset: int = measured(
        27,
        "cache lines",
        "workloads",
        "lines between page offsets of consecutive blocks: up to six blocks are at least seven lines apart",
    )
    stack_alignment: int = measured(
        64, "bytes", "kernels", "alignment of the stack of a kernel: a vector on it is in one cache line"
    )
    max_stack_carry: int = measured(
        512, "bytes", "programs", "maximum bytes of a carry on the stack, where LLVM promotes it to registers"
    )
    max_improved_blocks: int = measured(
        400, "blocks", "compile", "maximum blocks of an improved placement, whose time is quadratic"
    )
    stack_arena: int = measured(
        4096,
        "bytes",
        "call_overhead",
        "maximum bytes of an arena on the stack; a larger one is retained between calls, because touching "
        "fresh memory is expensive",
    )
    min_huge_bytes: int = chosen(
        1 << 22, "bytes", "bytes from which on memory is advised to use huge pages on Linux, as in NumPy"
    )
    min_large_arena: int = chosen(1 << 20, "bytes", "minimum bytes of a large arena")
    max_idle_arenas: int = chosen(1 << 30, "bytes", "maximum bytes of all idle large arenas")
    max_arena_room: int = measured(
        1 << 26, "bytes", "first_calls", "maximum bytes by which a large arena is longer than its program needs"
    )
    min_retained_bytes: int = measured(
        1 << 17, "bytes", "kernels", "minimum bytes of a retained block; NumPy and the C library retain smaller ones"
    )
    max_idle_bytes: int = chosen(1 << 28, "bytes", "maximum bytes of retained blocks")
    max_idle_blocks: int = chosen(64, "blocks", "maximum retained blocks")
    num_block_offsets: int = measured(
        5, "places", "workloads", "page offsets at which the data of consecutive blocks begin"
    )
