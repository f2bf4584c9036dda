"""Tuning constants of native routines: products, factorizations, sorting, random draws."""

from tracegrad.target.constants import chosen, measured
from tracegrad.utils.lazy_dataclass import record


@record(frozen=True)
class GemmBlocking:
    """Constants of the generated GEMM: C = A B in column-major order, strips of A times columns of B."""

    max_batched_size: int = measured(
        16,
        "rows",
        "products",
        "maximum rows, columns and terms of products in batches that the generated GEMM computes",
    )
    strip_columns: int = measured(
        256, "columns", "products", "columns of a strip of A: it then fits in the first-level cache"
    )
    packed_strips: int = measured(
        4,
        "strips",
        "products",
        "full strips packed at the same time, in the second-level cache: a part of B is read once for all",
    )
    block_bytes: int = measured(1 << 20, "bytes", "products", "bytes of a block of B")
    max_unpacked_span: int = measured(
        1 << 14, "bytes", "products", "maximum span of the columns of a strip that is not packed"
    )
    max_unpacked_span_of_wide_vectors: int = measured(
        1 << 18, "bytes", "products", "maximum span with 64-byte vectors, unless columns share cache sets"
    )
    max_unpacked_row_span: int = measured(
        1 << 16, "bytes", "products", "maximum span of the rows of a transposed B that is not packed"
    )
    max_unpacked_rows: int = measured(16, "rows", "products", "maximum rows of a B that is never packed")
    max_reread_bytes: int = measured(
        32, "bytes", "products", "bytes of a row of strips up to which a transposed B is not packed"
    )
    min_columns: int = measured(
        16,
        "columns",
        "products",
        "minimum columns of B for packing a strip of A; half as many if the columns of A share cache sets",
    )
    crowded_stride: int = measured(
        2048, "bytes", "products", "strides that are multiples of this number share few cache sets"
    )
    set_stride: int = measured(
        4096, "bytes", "products", "strides that are multiples of this number share one cache set"
    )
    cache_ways: int = measured(8, "cache lines", "products", "lines of a cache set")
    packed_rows: int = measured(
        8, "rows", "products", "rows of a transposed B packed together: they fit in the first-level cache"
    )
    max_short_column: int = measured(
        128, "bytes", "products", "bytes of short columns, whose successors no hardware prefetcher predicts"
    )
    min_prefetched_span: int = measured(
        1 << 18,
        "bytes",
        "products",
        "short columns are prefetched if they span more, which the second-level cache does not hold",
    )
    min_prefetched_stride: int = measured(
        1024, "bytes", "products", "minimum stride of columns of results that are prefetched"
    )
    prefetched_panels: int = measured(3, "parts", "products", "prefetch distance in parts of B")
    narrow_columns: int = measured(4, "columns", "products", "columns of the narrow parts of B")
    pointer_columns: int = measured(
        3, "columns", "products", "neighbouring columns that share a pointer, with strides as indices"
    )


@record(frozen=True)
class BlasTiling:
    """Constants of products that OpenBLAS computes, cut into tiles for threads."""

    packed_columns: int = measured(64, "columns", "products", "columns of the first factor that are packed at once")
    max_unpacked_work: int = measured(
        1 << 22,
        "multiply-adds",
        "products",
        "maximum work of a product that kernels for small matrices compute whatever A is; no bound on AMD",
    )
    max_small_a: int = measured(
        1 << 16, "elements", "products", "maximum elements of A in a larger product that these kernels compute"
    )
    serial_work: int = measured(
        1 << 21, "multiply-adds", "products", "a smaller product of single precision runs in the calling thread"
    )
    serial_work_of_doubles: int = measured(
        1 << 21, "multiply-adds", "products", "a smaller product of double precision runs in the calling thread"
    )
    serial_work_of_joined_doubles: int = measured(
        1 << 20,
        "multiply-adds",
        "products",
        "the limit of double precision for BLAS kernels whose uncut products have the bits of cut ones",
    )
    min_shared_work: int = measured(
        1 << 20, "multiply-adds", "products", "minimum work of a batch of small products for two threads"
    )
    min_shares: int = measured(4, "parts", "products", "minimum parts of a batch of small products for two threads")
    min_threaded_product: int = measured(
        1 << 21, "multiply-adds", "products", "minimum work of a product that uses threads itself"
    )
    max_threaded_products: int = measured(
        8, "products", "products", "a batch of fewer products that use threads themselves is not shared"
    )


@record(frozen=True)
class Factorization:
    """Constants of recursive factorizations and triangular solves."""

    max_rows: int = chosen(1024, "rows", "maximum rows of a matrix that is factored in one thread")
    leaf_rows: int = measured(64, "rows", "workloads", "rows of a matrix that is not split")
    full_product_rows: int = measured(
        128, "rows", "workloads", "rows of a symmetric product whose two triangles are both computed"
    )
    solved_columns: int = measured(64, "columns", "workloads", "right-hand sides that a thread solves for at a time")
    min_forked_work: int = measured(
        1 << 20, "multiply-adds", "workloads", "minimum work of a triangular solve for several threads"
    )


@record(frozen=True)
class NativeRoutines:
    """Constants of sorting, searching and random draws without NumPy."""

    copied_rows: int = measured(8, "rows", "kernels", "interleaved rows copied together: one cache line each time")
    sampled_values: int = measured(16, "elements", "kernels", "integers sampled to reject counting sort")
    max_table_factor: int = measured(
        6, "entries per integer", "functions", "maximum range of a table of integers, as in NumPy"
    )
    interleaved_searches: int = measured(8, "elements", "kernels", "values searched, and booleans tested, together")
    max_ziggurat_draws: int = chosen(
        16, "numbers", "maximum numbers of a compiled draw: in a longer one, a rare branch is too likely"
    )
