; Pack the first factor of a matrix product before OpenBLAS reads it.
;
; OpenBLAS's kernels without packing (tiles.ll) are slow if A is transposed, or if its columns are not aligned to cache
; lines or share cache sets. With these kernels the copy costs less than it gains.
;
; Columns of the copy are aligned to cache lines, with a stride of an odd number of lines, because an even number would
; share cache sets. The copy uses several threads if the product does.

declare void $copy(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)

@one_$name = internal constant $type 1.0
@plain_$name = internal constant i8 78                 ; N
@by_columns_$name = internal constant i8 67            ; C

%copied_$name = type { $types }

define internal void @copied_$name(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
                                   ptr %b, ptr %ldb, ptr %beta, ptr %c, ptr %ldc, i1 %small) {
entry:
  %distance = alloca i32
  %call = alloca %copied_$name
  %height = call i64 @integer(ptr %m)
  %depth = call i64 @integer(ptr %k)
  %lines = call i64 @ceil_div(i64 %height, i64 $line_elements)
  %odd = or i64 %lines, 1
  %apart = mul i64 %odd, $line_elements
  %places = mul i64 %apart, %depth
  %bytes = mul i64 %places, $element_bytes
  %enough = add i64 %bytes, 64
  %memory = call ptr @malloc(i64 %enough)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %without, label %begin
without:
  call void $openblas(ptr %transa, ptr %transb, ptr %m, ptr %n, ptr %k, ptr %alpha, ptr %a, ptr %lda,
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
  %parts = call i64 @ceil_div(i64 %columns, i64 $packed_columns)
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
  %first = mul i64 %number, $packed_columns
  %stride = call i64 @integer(ptr %lda)
  %from = mul i64 %first, %stride
  %source = getelementptr $type, ptr %a, i64 %from
  %plain = call i1 @is_plain(ptr %transa)
  br i1 %plain, label %as_they_are, label %turn
turn:
  call void @extent(ptr %width, ptr %m, i64 %first, i64 $packed_columns)
  %target = getelementptr $type, ptr %copy, i64 %first
  call void $copy(ptr @by_columns_$name, ptr %transa, ptr %k, ptr %width, ptr @one_$name,
                  ptr %source, ptr %lda, ptr %target, ptr %distance)
  br label %done
as_they_are:
  call void @extent(ptr %width, ptr %k, i64 %first, i64 $packed_columns)
  %count = call i64 @integer(ptr %width)
  %height = call i64 @integer(ptr %m)
  %bytes = mul i64 %height, $element_bytes
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
