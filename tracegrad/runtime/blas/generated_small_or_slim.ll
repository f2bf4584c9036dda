; Whether the generated GEMM computes a product of these sizes, which OpenBLAS would pack.
;
; With AVX2: products below 2**21 multiply-adds, or a quarter of it for floats with a transposed B; products with few
; rows or few terms; and, for floats, products that would be cut into rows, if A is no larger than 2 MiB.

define internal i1 @is_generated_$name(i64 %height, i64 %width, i64 %depth, ptr %transa, ptr %transb, ptr %alpha) {
  %area = mul i64 %height, %width
  %work = mul i64 %area, %depth
  %a_area = mul i64 %height, %depth
  %a_plain = call i1 @is_plain(ptr %transa)
  %b_plain = call i1 @is_plain(ptr %transb)
  %factor = load $type, ptr %alpha
  %read = fcmp une $type %factor, 0.0
  %most = select i1 %b_plain, i64 2097152, i64 $max_transposed_work
  %little = icmp sle i64 %work, %most
  %low = icmp sle i64 %height, $max_rows
  %shallow = icmp sle i64 %depth, 32
  %thin = icmp sle i64 %width, $max_columns
  %near = icmp sle i64 %a_area, 524288
  %thin_and_near = and i1 %thin, %near
  %little_or_low = or i1 %little, %low
  %shallow_or_thin = or i1 %shallow, %thin_and_near
  %worth = or i1 %little_or_low, %shallow_or_thin
  %chosen = and i1 %worth, %read
  ret i1 %chosen
}
