; Functions that the other files of a gemm share.

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
