"""A copy of the first factor of a matrix product, made before it is multiplied, as LLVM IR beside the gemm of `blas`.

OpenBLAS's kernels that do not pack (`tiled`) read a transposed A slowly, and one whose columns begin anywhere in a line
or share places in the cache. Where they are used, a copy costs less than they gain: on Sapphire Rapids a product of 160
floats cubed takes 1.05 of the time in which OpenBLAS packs it, and without the copy 1.15; of 128 by 2048 by 128 doubles
0.72 instead of 0.95.
"""

from __future__ import annotations

from string import Template

__all__ = ["COPIED", "FIELDS", "PART"]

PART = 64  # columns of what is copied that are copied at once

# Columns of the copy begin lines, and lie an odd number of these apart: at even ones they would share places in the
# cache. The copy is made on several threads if the product is.
COPIED = Template("""
declare void $copy(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)

@one_$name = internal constant $type 1.0
@plain_$name = internal constant i8 78                 ; N
@by_columns_$name = internal constant i8 67            ; C

%copied_$name = type { ptr, ptr, ptr, ptr, ptr, ptr, ptr }

define internal void @copied_$name(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                                   ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc, i1 %small) {
entry:
  %distance = alloca i32
  %call = alloca %copied_$name
  %height = call i64 @integer(ptr %m)
  %depth = call i64 @integer(ptr %k)
  %lines = call i64 @ceil_div(i64 %height, i64 $line)
  %odd = or i64 %lines, 1
  %apart = mul i64 %odd, $line
  %places = mul i64 %apart, %depth
  %bytes = mul i64 %places, $bytes
  %enough = add i64 %bytes, 64
  %memory = call ptr @malloc(i64 %enough)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %without, label %begin
without:
  call void $raw(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                 ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc)
  ret void
begin:
  %number = ptrtoint ptr %memory to i64
  %beyond = add i64 %number, 63
  %line = and i64 %beyond, -64
  %copy = inttoptr i64 %line to ptr
  %narrow = trunc i64 %apart to i32
  store i32 %narrow, ptr %distance
$store
  %plain = call i1 @is_plain(ptr %transa)
  %columns = select i1 %plain, i64 %depth, i64 %height
  %parts = call i64 @ceil_div(i64 %columns, i64 $part)
  call void @each(ptr @part_$name, ptr %call, i64 %parts, i1 %small)
  call void @unpacked_$name(ptr @plain_$name, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %copy,
                            ptr %distance, ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc, i1 %small)
  call void @free(ptr %memory)
  ret void
}

define internal void @part_$name(ptr %call, i64 %number) {
entry:
  %width = alloca i32
$load
  %first = mul i64 %number, $part
  %stride = call i64 @integer(ptr %lda)
  %from = mul i64 %first, %stride
  %source = getelementptr $type, ptr %a, i64 %from
  %plain = call i1 @is_plain(ptr %transa)
  br i1 %plain, label %as_they_are, label %turn
turn:
  call void @extent(ptr %width, ptr %m, i64 %first, i64 $part)
  %target = getelementptr $type, ptr %copy, i64 %first
  call void $copy(ptr @by_columns_$name, ptr %transa, ptr %k, ptr %width, ptr @one_$name,
                  ptr %source, ptr %lda, ptr %target, ptr %distance)
  br label %done
as_they_are:
  call void @extent(ptr %width, ptr %k, i64 %first, i64 $part)
  %count = call i64 @integer(ptr %width)
  %height = call i64 @integer(ptr %m)
  %bytes = mul i64 %height, $bytes
  %apart = call i64 @integer(ptr %distance)
  %to = mul i64 %first, %apart
  %begin = getelementptr $type, ptr %copy, i64 %to
  br label %column
column:
  %j = phi i64 [ 0, %as_they_are ], [ %j_next, %column ]
  %behind = mul i64 %j, %stride
  %one = getelementptr $type, ptr %source, i64 %behind
  %place = mul i64 %j, %apart
  %its_copy = getelementptr $type, ptr %begin, i64 %place
  call void @llvm.memcpy.p0.p0.i64(ptr %its_copy, ptr %one, i64 %bytes, i1 false)
  %j_next = add i64 %j, 1
  %more = icmp slt i64 %j_next, %count
  br i1 %more, label %column, label %done
done:
  ret void
}
""")

# What a part needs to know of its call: %copied_$name.
FIELDS = tuple((field, "ptr") for field in ("transa", "m", "k", "a", "lda", "copy", "distance"))
