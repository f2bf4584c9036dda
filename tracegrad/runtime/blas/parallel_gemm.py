"""Partition a GEMM into tiles for threads, as LLVM IR of `library`'s gemm.

The tiles depend only on the sizes, on the transposed factor, on the column strides, and on the machine, so bits do not
depend on the number of threads. One thread skips the tiles where the whole product has the same bits.
"""

from __future__ import annotations

from string import Template

from tracegrad.target.tuning import TUNING

__all__ = ["FIELDS", "GEMM_ENTRY", "JOINED", "SMALL_A", "TILED", "UNPACKED"]

# `pool.parallel_for` over the tiles of C. Products below 2**21 multiply-adds (2**20 for doubles with AVX2 and on AMD)
# with matrices of fewer than 2**18 elements run in the calling thread. Waking another thread costs as much as it saves
# there.
# Each tile packs its operands again, so narrow tiles cost more. A tile with partial columns writes C in short pieces. C
# is therefore cut into whole columns until there are four tiles, or as many as the machine has CPUs. A tile has up to
# 512 columns, and at least 512 bytes of a row (32 floats if one thread need not cut). It is then cut into rows, down to
# 64, or 1024 if that costs nothing. Tiles of the generated GEMM, which packs little, have down to 32 rows and columns.
# A tile has at most 2**30 multiply-adds, for balance, and at least 2**18, in case m, n or k is tiny; 2**20 if A is
# transposed, because OpenBLAS's kernels for small matrices read it slowly.
#
# The kernels for small matrices do not pack. Up to `UNPACKED` multiply-adds they are faster if A is small and the span
# of a transposed B and the stride of C are limited. A product is then cut into tiles of that size, of up to 96 rows and
# some dozens of columns. The kernels read A repeatedly. `pack_operand` therefore packs an A of more than 64 KiB, which
# exceeds the first-level cache. It also packs an A of more than 32 KiB whose column stride is a multiple of 512 bytes,
# because its columns share cache sets, and transposes a transposed A. On CPUs other than AMD's the kernels are faster
# only if A has up to `SMALL_A` elements and k is at least 16, or the product is small.
# Small products that need no tiles are called directly, before any other test.
UNPACKED = dict.fromkeys(("SkylakeX", "Cooperlake", "SapphireRapids"), 1_000_000)  # dgemm_small_kernel_permit
SMALL_A = TUNING.blas.max_small_a
# OpenBLAS kernels for which an uncut product has the bits of its tiles, so that one thread need not cut it: for doubles
# always, for floats if tiles have all rows of C and a multiple of 12 columns.
JOINED = ("Haswell", "Zen")
TILED = Template("""
$declare_own
declare void $raw(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)

%call_$name = type { ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64, ptr }

define void @$name(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                   ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc) {
entry:
  %twice = icmp eq ptr %a, %b
  br i1 %twice, label %one_matrix, label %measured
one_matrix:
  %is_done = call i1 @symmetric_$name(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                                      ptr %ldb, ptr %beta, ptr %c, ptr %ldc)
  br i1 %is_done, label %done, label %measured
done:
  ret void
measured:
  %height = call i64 @integer(ptr %m)
  %width = call i64 @integer(ptr %n)
  %depth = call i64 @integer(ptr %k)
  %area = mul i64 %height, %width
  %work = mul i64 %area, %depth
  %a_area = mul i64 %height, %depth
  %b_area = mul i64 %depth, %width
  %read = add i64 %a_area, %b_area
  %touched = add i64 %read, %area
  %light = icmp slt i64 %work, $alone
  %brief = icmp slt i64 %touched, 262144
  %small = and i1 %light, %brief
  %plain = call i1 @is_plain(ptr %transa)
  %b_plain = call i1 @is_plain(ptr %transb)
  %tiny = icmp sle i64 %work, $at_once
  %other_layout = xor i1 %b_plain, true
  %read_fast_small = or i1 %plain, %other_layout
  %tiny_and_brief = and i1 %tiny, %brief
  %briefly = and i1 %tiny_and_brief, %read_fast_small
  %empty = icmp eq i64 %work, 0
  %begins = or i1 %briefly, %empty
  br i1 %begins, label %at_once, label %look
at_once:
  musttail call void $raw(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                          ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc)
  ret void
look:
  %large = icmp sgt i64 %work, $unpacked
  %a_little = icmp sle i64 %a_area, 262144
  %shallow = icmp sle i64 %depth, 800
  %c_lies = call i64 @integer(ptr %ldc)
  %c_near = icmp sle i64 %c_lies, 528
  %flat = and i1 %shallow, %c_near
  %fit_c = and i1 %flat, %large
  %fit = and i1 %fit_c, %a_little
  br i1 %fit, label %weigh, label %packed
weigh:
  %b_lies = call i64 @integer(ptr %ldb)
  %b_span = mul i64 %b_lies, %depth
  %b_worth = icmp sge i64 %height, 32
  %b_little = icmp sle i64 %b_span, 786432
  %b_read = and i1 %b_worth, %b_little
  %b_near = or i1 %b_plain, %b_read
  %not_too_large = icmp sle i64 %work, $largest
  %fit_small = and i1 %b_near, %not_too_large
  %a_small = icmp sle i64 %a_area, $small_a
  %deep = icmp sge i64 %depth, 16
  %a_worth = and i1 %a_small, %deep
  %b_small = icmp sle i64 %b_span, 131072
  %b_read_again = and i1 %b_worth, %b_small
  %b_nearer = or i1 %b_plain, %b_read_again
  %fit_large = and i1 %a_worth, %b_nearer
  %worth = or i1 %fit_small, %fit_large
  br i1 %worth, label %look_at_a, label %packed
look_at_a:
  %a_lies = call i64 @integer(ptr %lda)
  %a_near = icmp sle i64 %a_lies, 528
  %readable = and i1 %plain, %a_near
  %a_bytes = mul i64 %a_area, $bytes
  %heavy = icmp sgt i64 %a_bytes, 65536
  %medium = icmp sgt i64 %a_bytes, 32768
  %a_apart = mul i64 %a_lies, $bytes
  %a_within = and i64 %a_apart, 511
  %a_shares = icmp eq i64 %a_within, 0
  %a_crowded = and i1 %medium, %a_shares
  %a_slow = or i1 %heavy, %a_crowded
  %a_fast = xor i1 %a_slow, true
  %fast = and i1 %readable, %a_fast
  %broad = icmp sge i64 %width, 64
  %not_fast = xor i1 %fast, true
  %worth_a_copy = and i1 %broad, %not_fast
  br i1 %worth_a_copy, label %copied, label %as_it_lies
as_it_lies:
  br i1 %readable, label %unpacked, label %packed
copied:
  call void @copied_$name(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                          ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc, i1 %small)
  ret void
unpacked:
  call void @unpacked_$name(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                            ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc, i1 %small)
  ret void
packed:
  %owned = call i1 @is_own_$name(i64 %height, i64 %width, i64 %depth, ptr %transa, ptr %transb, ptr %alpha)
  %routine = select i1 %owned, ptr $own, ptr $raw
  br i1 %small, label %whole, label %cut
whole:
  call void %routine(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                 ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc)
  ret void
cut:
  %columns_fewest = call i64 @ceil_div(i64 %width, i64 512)
  %row_work = shl i64 %columns_fewest, 30
  %rows_by_work = call i64 @ceil_div(i64 %work, i64 %row_work)
  %rows_by_height = call i64 @ceil_div(i64 %height, i64 1024)
  %thin = icmp sle i64 %width, $narrow
  %not_thin = xor i1 %thin, true
  %lowest = select i1 %owned, i64 32, i64 64
  %narrowest = select i1 %owned, i64 32, i64 $narrowest
  %rows_fewest = select i1 %thin, i64 %rows_by_height, i64 %rows_by_work
  br label %measure
measure:
  %rows_so_far = phi i64 [ %rows_fewest, %cut ], [ %rows_next, %halve ]
  %columns_so_far = phi i64 [ %columns_fewest, %cut ], [ %columns_next, %halve ]
  %tiles_so_far = mul i64 %rows_so_far, %columns_so_far
  %edge_down = call i64 @ceil_div(i64 %height, i64 %rows_so_far)
  %edge_across = call i64 @ceil_div(i64 %width, i64 %columns_so_far)
  %few = icmp slt i64 %tiles_so_far, $tiles
  %tall = icmp sgt i64 %edge_down, %lowest
  %across = icmp sgt i64 %edge_across, %narrowest
  %wide = and i1 %across, %not_thin
  %divisible = or i1 %tall, %wide
  %more = and i1 %few, %divisible
  br i1 %more, label %halve, label %limit
halve:
  %rows_double = shl i64 %rows_so_far, 1
  %columns_double = shl i64 %columns_so_far, 1
  %rows_next = select i1 %wide, i64 %rows_so_far, i64 %rows_double
  %columns_next = select i1 %wide, i64 %columns_double, i64 %columns_so_far
  br label %measure
limit:
  %read_fast = or i1 %plain, %owned
  %bits = select i1 %read_fast, i64 18, i64 20
  %whole_tiles = lshr i64 %work, %bits
  %most = call i64 @llvm.smax.i64(i64 %whole_tiles, i64 1)
  %rows_most = call i64 @llvm.smin.i64(i64 %rows_so_far, i64 %most)
  %columns_left = sdiv i64 %most, %rows_most
  %columns_most = call i64 @llvm.smin.i64(i64 %columns_so_far, i64 %columns_left)
  %packed_height = call i64 @tile_edge(i64 %height, i64 %rows_most, i64 16)
  %packed_width = call i64 @tile_edge(i64 %width, i64 %columns_most, i64 $step)
  %one_row = icmp sge i64 %packed_height, %height
  %alike = or i1 %one_row, $joins_rows
  %joins = and i1 %alike, $joins
  %alike_or_owned = or i1 %joins, %owned
  %threads = call i64 $limit()
  %alone = icmp eq i64 %threads, 1
  %uncut = and i1 %alike_or_owned, %alone
  br i1 %uncut, label %whole, label %tiled
tiled:
  call void @tiles_$name(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                         ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc, i64 %packed_height, i64 %packed_width, i1 false,
                         ptr %routine)
  ret void
}

; The product in tiles that are not packed.
define internal void @unpacked_$name(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                                     ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc, i1 %small) {
  %height = call i64 @integer(ptr %m)
  %width = call i64 @integer(ptr %n)
  %depth = call i64 @integer(ptr %k)
  %rows_needed = call i64 @ceil_div(i64 %height, i64 96)
  %tile_height = call i64 @tile_edge(i64 %height, i64 %rows_needed, i64 16)
  %column_work = mul i64 %tile_height, %depth
  %widest = sdiv i64 $unpacked, %column_work
  %dozens = sdiv i64 %widest, 12
  %most_columns = mul i64 %dozens, 12
  %columns_needed = call i64 @ceil_div(i64 %width, i64 %most_columns)
  %even_columns = call i64 @ceil_div(i64 %width, i64 %columns_needed)
  %even_dozens = call i64 @ceil_div(i64 %even_columns, i64 12)
  %tile_width = mul i64 %even_dozens, 12
  call void @tiles_$name(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                         ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc, i64 %tile_height, i64 %tile_width, i1 %small,
                         ptr $raw)
  ret void
}

define internal void @tiles_$name(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                                  ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc,
                                  i64 %tile_height, i64 %tile_width, i1 %alone, ptr %routine) {
entry:
  %call = alloca %call_$name
  %height = call i64 @integer(ptr %m)
  %width = call i64 @integer(ptr %n)
  %rows = call i64 @ceil_div(i64 %height, i64 %tile_height)
  %columns = call i64 @ceil_div(i64 %width, i64 %tile_width)
$store
  %tiles = mul i64 %rows, %columns
  call void @each(ptr @tile_$name, ptr %call, i64 %tiles, i1 %alone)
  ret void
}

define internal void @tile_$name(ptr %call, i64 %tile) {
entry:
  %m_tile = alloca i32
  %n_tile = alloca i32
$load
  %row = sdiv i64 %tile, %columns
  %column = srem i64 %tile, %columns
  %top = mul i64 %row, %tile_height
  %left = mul i64 %column, %tile_width
  call void @extent(ptr %m_tile, ptr %m, i64 %top, i64 %tile_height)
  call void @extent(ptr %n_tile, ptr %n, i64 %left, i64 %tile_width)
  %a_rows = call i1 @is_plain(ptr %transa)
  %a_stride = call i64 @integer(ptr %lda)
  %a_step = select i1 %a_rows, i64 1, i64 %a_stride
  %a_offset = mul i64 %top, %a_step
  %a_tile = getelementptr $type, ptr %a, i64 %a_offset
  %b_columns = call i1 @is_plain(ptr %transb)
  %b_stride = call i64 @integer(ptr %ldb)
  %b_step = select i1 %b_columns, i64 %b_stride, i64 1
  %b_offset = mul i64 %left, %b_step
  %b_tile = getelementptr $type, ptr %b, i64 %b_offset
  %c_stride = call i64 @integer(ptr %ldc)
  %c_column = mul i64 %left, %c_stride
  %c_offset = add i64 %c_column, %top
  %c_tile = getelementptr $type, ptr %c, i64 %c_offset
  call void %routine(ptr %transa, ptr %transb, ptr %m_tile, ptr %n_tile, ptr %k, ptr %alpha, ptr %a_tile,
                 ptr %lda, ptr %b_tile, ptr %ldb, ptr %beta, ptr %c_tile, ptr %ldc)
  ret void
}
""")

GEMM_ENTRY = Template("""
declare void $parallel_for(ptr, ptr, i64)
declare i64 $limit()
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @integer(ptr %word) {
  %narrow = load i32, ptr %word
  %wide = sext i32 %narrow to i64
  ret i64 %wide
}

define internal i64 @ceil_div(i64 %x, i64 %y) {
  %up = add i64 %x, %y
  %sum = sub i64 %up, 1
  %quotient = sdiv i64 %sum, %y
  ret i64 %quotient
}

; The length of %parts even parts, in whole steps of the kernels.
define internal i64 @tile_edge(i64 %length, i64 %parts, i64 %step) {
  %even = call i64 @ceil_div(i64 %length, i64 %parts)
  %steps = call i64 @ceil_div(i64 %even, i64 %step)
  %edge = mul i64 %steps, %step
  ret i64 %edge
}

; What is left of the length at %whole from %start on, at most %most, to %part.
define internal void @extent(ptr %part, ptr %whole, i64 %start, i64 %most) {
  %length = call i64 @integer(ptr %whole)
  %rest = sub i64 %length, %start
  %wide = call i64 @llvm.smin.i64(i64 %rest, i64 %most)
  %narrow = trunc i64 %wide to i32
  store i32 %narrow, ptr %part
  ret void
}

; Whether a matrix is taken as it stands ("N" or "n"), not transposed.
define internal i1 @is_plain(ptr %trans) {
  %letter = load i8, ptr %trans
  %lower = or i8 %letter, 32
  %plain = icmp eq i8 %lower, 110
  ret i1 %plain
}

; Calls %part(%call, i) for each i below %count: here, one after the other, if %alone, or else on several threads.
define internal void @each(ptr %part, ptr %call, i64 %count, i1 %alone) {
entry:
  br i1 %alone, label %next, label %shared
shared:
  call void $parallel_for(ptr %part, ptr %call, i64 %count)
  ret void
next:
  %i = phi i64 [ 0, %entry ], [ %following, %next ]
  call void %part(ptr %call, i64 %i)
  %following = add i64 %i, 1
  %more = icmp slt i64 %following, %count
  br i1 %more, label %next, label %done
done:
  ret void
}
""")

# The parameters of a tile: %call_$name.
FIELDS = (
    *((field, "ptr") for field in ("transa", "transb", "m", "n", "k", "alpha")),
    *((field, "ptr") for field in ("a", "lda", "b", "ldb", "beta", "c", "ldc")),
    *((field, "i64") for field in ("tile_height", "tile_width", "columns")),
    ("routine", "ptr"),
)
