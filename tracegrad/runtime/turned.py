"""A transposed first factor of a matrix product, turned before it is multiplied, as LLVM IR beside the gemm of `blas`.

OpenBLAS's kernels that do not pack (`tiled`) read a transposed A slowly. Where they would be used if it were not, a
copy as it stands costs less than they gain: a product of 256 doubles cubed takes 0.93 of the time in which OpenBLAS
packs it, and of floats 0.88.
"""

from __future__ import annotations

from string import Template

__all__ = ["FIELDS", "PART", "TURNED"]

PART = 64  # columns of A that are turned at once

# Columns of the copy lie by a line more apart than they are long, for 4,096 bytes apart they would share places in the
# cache. The copy is made on several threads if the product is.
TURNED = Template("""
declare void $copy(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)

@one_$name = internal constant $type 1.0
@plain_$name = internal constant i8 78                 ; N
@transposed_$name = internal constant i8 84            ; T
@by_columns_$name = internal constant i8 67            ; C

%turned_$name = type { ptr, ptr, ptr, ptr, ptr, ptr }

define internal void @turned_$name(ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                                   ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc, i1 %small) {
entry:
  %distance = alloca i32
  %call = alloca %turned_$name
  %height = call i64 @integer(ptr %m)
  %depth = call i64 @integer(ptr %k)
  %apart = add i64 %height, 16
  %places = mul i64 %apart, %depth
  %bytes = mul i64 %places, $bytes
  %enough = add i64 %bytes, 64
  %memory = call ptr @malloc(i64 %enough)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %as_it_is, label %turn
as_it_is:
  call void $raw(ptr @transposed_$name, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                 ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc)
  ret void
turn:
  %number = ptrtoint ptr %memory to i64
  %beyond = add i64 %number, 63
  %line = and i64 %beyond, -64
  %copy = inttoptr i64 %line to ptr
  %narrow = trunc i64 %apart to i32
  store i32 %narrow, ptr %distance
$store
  %parts = call i64 @ceil_div(i64 %height, i64 $part)
  br i1 %small, label %alone, label %shared
shared:
  call void $parallel_for(ptr @turn_$name, ptr %call, i64 %parts)
  br label %multiply
alone:
  %done = phi i64 [ 0, %turn ], [ %next, %alone ]
  call void @turn_$name(ptr %call, i64 %done)
  %next = add i64 %done, 1
  %more = icmp slt i64 %next, %parts
  br i1 %more, label %alone, label %multiply
multiply:
  call void @$name(ptr @plain_$name, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %copy, ptr %distance,
                   ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc)
  call void @free(ptr %memory)
  ret void
}

define internal void @turn_$name(ptr %call, i64 %number) {
entry:
  %width = alloca i32
$load
  %first = mul i64 %number, $part
  call void @extent(ptr %width, ptr %m, i64 %first, i64 $part)
  %stride = call i64 @integer(ptr %lda)
  %from = mul i64 %first, %stride
  %source = getelementptr $type, ptr %a, i64 %from
  %target = getelementptr $type, ptr %copy, i64 %first
  call void $copy(ptr @by_columns_$name, ptr @transposed_$name, ptr %k, ptr %width, ptr @one_$name,
                  ptr %source, ptr %lda, ptr %target, ptr %distance)
  ret void
}
""")

# What a part needs to know of its call: %turned_$name.
FIELDS = tuple((field, "ptr") for field in ("m", "k", "a", "lda", "copy", "distance"))
