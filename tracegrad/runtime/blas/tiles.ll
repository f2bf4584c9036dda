; Partition a GEMM into tiles for threads.
;
; The tiles depend only on the sizes, on the transposed factor, on the column strides, and on the machine, so bits do
; not depend on the number of threads. One thread skips the tiles where the whole product has the same bits.
;
; `pool.parallel_for` over the tiles of C. Products below 2**21 multiply-adds (2**20 for doubles with AVX2 and on AMD)
; with matrices of fewer than 2**18 elements run in the calling thread. Waking another thread costs as much as it saves
; there. Each tile packs its operands again, so narrow tiles cost more. A tile with partial columns writes C in short
; pieces. C is therefore cut into whole columns until there are four tiles, or as many as the machine has CPUs. A tile
; has up to 512 columns, and at least 512 bytes of a row (32 floats if one thread need not cut). It is then cut into
; rows, down to 64, or 1024 if that costs nothing. Tiles of the generated GEMM, which packs little, have down to 32 rows
; and columns. A tile has at most 2**30 multiply-adds, for balance, and at least 2**18, in case m, n or k is tiny; 2**20
; if A is transposed, because OpenBLAS's kernels for small matrices read it slowly.
;
; The kernels for small matrices do not pack. Up to `unpacked_work` multiply-adds they are faster if A is small and the
; span of a transposed B and the stride of C are limited. A product is then cut into tiles of that size, of up to 96
; rows and some dozens of columns. The kernels read A repeatedly. pack_operand.ll therefore packs an A of more than 64
; KiB, which exceeds the first-level cache. It also packs an A of more than 32 KiB whose column stride is a multiple of
; 512 bytes, because its columns share cache sets, and transposes a transposed A. On CPUs other than AMD's the kernels
; are faster only if A has up to `max_small_a` elements and k is at least 16, or the product is small. Small products
; that need no tiles are called directly, before any other test.

$declare_generated
declare void $openblas(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)

%call_$name = type { $types }

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
  %light = icmp slt i64 %work, $serial_work
  %brief = icmp slt i64 %touched, 262144
  %small = and i1 %light, %brief
  %plain = call i1 @is_plain(ptr %transa)
  %b_plain = call i1 @is_plain(ptr %transb)
  %tiny = icmp sle i64 %work, $immediate_work
  %other_layout = xor i1 %b_plain, true
  %read_fast_small = or i1 %plain, %other_layout
  %tiny_and_brief = and i1 %tiny, %brief
  %briefly = and i1 %tiny_and_brief, %read_fast_small
  %empty = icmp eq i64 %work, 0
  %begins = or i1 %briefly, %empty
  br i1 %begins, label %at_once, label %look
at_once:
  musttail call void $openblas(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                          ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc)
  ret void
look:
  %large = icmp sgt i64 %work, $unpacked_work
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
  %not_too_large = icmp sle i64 %work, $max_unpacked_work
  %fit_small = and i1 %b_near, %not_too_large
  %a_small = icmp sle i64 %a_area, $max_small_a
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
  %a_bytes = mul i64 %a_area, $element_bytes
  %heavy = icmp sgt i64 %a_bytes, 65536
  %medium = icmp sgt i64 %a_bytes, 32768
  %a_apart = mul i64 %a_lies, $element_bytes
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
  %generated = call i1 @is_generated_$name(i64 %height, i64 %width, i64 %depth, ptr %transa, ptr %transb, ptr %alpha)
  %routine = select i1 %generated, ptr $generated, ptr $openblas
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
  %thin = icmp sle i64 %width, $narrow_columns
  %not_thin = xor i1 %thin, true
  %lowest = select i1 %generated, i64 32, i64 64
  %narrowest = select i1 %generated, i64 32, i64 $min_tile_columns
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
  %read_fast = or i1 %plain, %generated
  %bits = select i1 %read_fast, i64 18, i64 20
  %whole_tiles = lshr i64 %work, %bits
  %most = call i64 @llvm.smax.i64(i64 %whole_tiles, i64 1)
  %rows_most = call i64 @llvm.smin.i64(i64 %rows_so_far, i64 %most)
  %columns_left = sdiv i64 %most, %rows_most
  %columns_most = call i64 @llvm.smin.i64(i64 %columns_so_far, i64 %columns_left)
  %packed_height = call i64 @tile_edge(i64 %height, i64 %rows_most, i64 16)
  %packed_width = call i64 @tile_edge(i64 %width, i64 %columns_most, i64 $column_step)
  %one_row = icmp sge i64 %packed_height, %height
  %alike = or i1 %one_row, $joins_rows
  %joins = and i1 %alike, $joins_tiles
  %alike_or_generated = or i1 %joins, %generated
  %threads = call i64 $limit()
  %alone = icmp eq i64 %threads, 1
  %uncut = and i1 %alike_or_generated, %alone
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
  %widest = sdiv i64 $unpacked_work, %column_work
  %dozens = sdiv i64 %widest, 12
  %most_columns = mul i64 %dozens, 12
  %columns_needed = call i64 @ceil_div(i64 %width, i64 %most_columns)
  %even_columns = call i64 @ceil_div(i64 %width, i64 %columns_needed)
  %even_dozens = call i64 @ceil_div(i64 %even_columns, i64 12)
  %tile_width = mul i64 %even_dozens, 12
  call void @tiles_$name(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                         ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc, i64 %tile_height, i64 %tile_width, i1 %small,
                         ptr $openblas)
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
