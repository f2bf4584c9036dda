; Compute the product of a matrix with its own transpose (SYRK).
;
; Half of the result is computed and the rest copied. The caller uses gemm as always: equal addresses of the factors,
; with one of them transposed, select this code. The lower triangle of the column-major result is split into tiles that
; depend on the sizes only. Diagonal tiles are a syrk, the others a gemm, and each tile is mirrored as soon as it is
; computed. If the generated GEMM replaces OpenBLAS's packed products, tiles are small and diagonal tiles whole.
;
; Below 17 rows, 32 terms or 2**15 multiply-adds, the copy costs as much as it saves. Tiles have edges of up to 256, and
; there are at least three for threads, from 64 rows and 2**21 multiply-adds of the whole product on. Tiles of the
; generated GEMM have edges of up to 32, or 64 from 257 rows on: with 4 of them along an edge, 10 of 16 are computed.

declare void $syrk(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)
declare void $mirror(ptr, ptr, i64, i64, i64)

%symmetric_$name = type { $types }

; Whether this was such a product, and is done.
define internal i1 @symmetric_$name(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                                    ptr %ldb, ptr %beta, ptr %c, ptr %ldc) {
entry:
  %call = alloca %symmetric_$name
  %height = call i64 @integer(ptr %m)
  %width = call i64 @integer(ptr %n)
  %depth = call i64 @integer(ptr %k)
  %a_lies = call i64 @integer(ptr %lda)
  %b_lies = call i64 @integer(ptr %ldb)
  %a_plain = call i1 @is_plain(ptr %transa)
  %b_plain = call i1 @is_plain(ptr %transb)
  %factor = load $type, ptr %beta
  %scale = load $type, ptr %alpha
  %square = icmp eq i64 %height, %width
  %one = icmp eq i64 %a_lies, %b_lies
  %turned = xor i1 %a_plain, %b_plain
  %fresh = fcmp oeq $type %factor, 0.0
  %reads = fcmp une $type %scale, 0.0
  %tall = icmp sge i64 %height, 17
  %deep = icmp sge i64 %depth, 32
  %both = and i1 %square, %one
  %such = and i1 %both, %turned
  %such_and_read = and i1 %such, %reads
  %new = and i1 %such_and_read, %fresh
  %area = mul i64 %height, %height
  %work = mul i64 %area, %depth
  %much = icmp sge i64 %work, 32768
  %tall_and_deep = and i1 %tall, %deep
  %worth = and i1 %tall_and_deep, %much
  %all = and i1 %new, %worth
  br i1 %all, label %cut, label %other
other:
  ret i1 false
cut:
  %light = icmp slt i64 %work, 2097152
  %low = icmp slt i64 %height, 64
  %small = or i1 %light, %low
  %few_rows = icmp sle i64 %height, 256
  %generated_edge = select i1 %few_rows, i64 32, i64 64
  %longest = select i1 $by_generated, i64 %generated_edge, i64 256
  %fewest = call i64 @ceil_div(i64 %height, i64 %longest)
  %at_least = select i1 $by_generated, i64 1, i64 2
  %shared = call i64 @llvm.smax.i64(i64 %fewest, i64 %at_least)
  %by_blas = xor i1 $by_generated, true
  %uncut = and i1 %small, %by_blas
  %parts = select i1 %uncut, i64 1, i64 %shared
  %edge = call i64 @tile_edge(i64 %height, i64 %parts, i64 16)
  %count = call i64 @ceil_div(i64 %height, i64 %edge)
  %next = add i64 %count, 1
  %twice = mul i64 %count, %next
  %tiles = lshr i64 %twice, 1
$store
  call void @each(ptr @symmetric_tile_$name, ptr %call, i64 %tiles, i1 %small)
  ret i1 true
}

define internal void @symmetric_tile_$name(ptr %call, i64 %tile) {
entry:
  %uplo = alloca i8
  %m_tile = alloca i32
  %n_tile = alloca i32
$load
  store i8 76, ptr %uplo
  br label %find
find:
  %row = phi i64 [ 0, %entry ], [ %row_next, %further ]
  %before = phi i64 [ 0, %entry ], [ %behind, %further ]
  %row_next = add i64 %row, 1
  %behind = add i64 %before, %row_next
  %here = icmp slt i64 %tile, %behind
  br i1 %here, label %found, label %further
further:
  br label %find
found:
  %column = sub i64 %tile, %before
  %top = mul i64 %row, %edge
  %left = mul i64 %column, %edge
  call void @extent(ptr %m_tile, ptr %m, i64 %top, i64 %edge)
  call void @extent(ptr %n_tile, ptr %m, i64 %left, i64 %edge)
  %rows = call i64 @integer(ptr %m_tile)
  %columns = call i64 @integer(ptr %n_tile)
  %a_rows = call i1 @is_plain(ptr %transa)
  %a_stride = call i64 @integer(ptr %lda)
  %step = select i1 %a_rows, i64 1, i64 %a_stride
  %a_offset = mul i64 %top, %step
  %a_tile = getelementptr $type, ptr %a, i64 %a_offset
  %b_offset = mul i64 %left, %step
  %b_tile = getelementptr $type, ptr %a, i64 %b_offset
  %c_stride = call i64 @integer(ptr %ldc)
  %c_column = mul i64 %left, %c_stride
  %c_offset = add i64 %c_column, %top
  %c_tile = getelementptr $type, ptr %c, i64 %c_offset
  %other_column = mul i64 %top, %c_stride
  %other_offset = add i64 %other_column, %left
  %other_tile = getelementptr $type, ptr %c, i64 %other_offset
  %diagonal = icmp eq i64 %row, %column
  br i1 %diagonal, label %triangle, label %rectangle
triangle:
  br i1 $by_generated, label %whole, label %half
whole:
  call void $routine(ptr %transa, ptr %transb, ptr %m_tile, ptr %n_tile, ptr %k, ptr %alpha, ptr %a_tile, ptr %lda,
                     ptr %b_tile, ptr %lda, ptr %beta, ptr %c_tile, ptr %ldc)
  ret void
half:
  call void $syrk(ptr %uplo, ptr %transa, ptr %m_tile, ptr %k, ptr %alpha, ptr %a_tile, ptr %lda, ptr %beta,
                   ptr %c_tile, ptr %ldc)
  br label %mirror
rectangle:
  call void $routine(ptr %transa, ptr %transb, ptr %m_tile, ptr %n_tile, ptr %k, ptr %alpha, ptr %a_tile, ptr %lda,
                     ptr %b_tile, ptr %lda, ptr %beta, ptr %c_tile, ptr %ldc)
  br label %mirror
mirror:
  call void $mirror(ptr %other_tile, ptr %c_tile, i64 %c_stride, i64 %columns, i64 %rows)
  ret void
}
