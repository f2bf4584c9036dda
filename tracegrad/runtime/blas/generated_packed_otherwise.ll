; Whether the generated GEMM computes a product of these sizes, which OpenBLAS would pack.
;
; With AVX-512 on AMD CPUs: all products, except small ones, and tiles of their size (`unpacked_work`), for which
; OpenBLAS has kernels without packing. If only A is transposed, OpenBLAS has them for at most 1200 elements of C and 32
; terms (sgemm_small_kernel_permit). The generated GEMM is slower for a transposed A with short columns and a B with few
; columns. It is also slower for few columns times an A that is not transposed and exceeds the caches, and, for floats,
; if vectors would have one or two rows.

define internal i1 @is_generated_$name(i64 %height, i64 %width, i64 %depth, ptr %transa, ptr %transb, ptr %alpha) {
  %area = mul i64 %height, %width
  %work = mul i64 %area, %depth
  %a_area = mul i64 %height, %depth
  %a_plain = call i1 @is_plain(ptr %transa)
  %b_plain = call i1 @is_plain(ptr %transb)
  %factor = load $type, ptr %alpha
  %read = fcmp une $type %factor, 0.0
  %large = icmp sgt i64 %work, $unpacked_work
  %broad = icmp sgt i64 %area, 1200
  %shallow = icmp slt i64 %depth, 32
  %packed = or i1 %broad, %shallow
  %turned = xor i1 %a_plain, true
  %turned_alone = and i1 %turned, %b_plain
  %long = icmp sgt i64 %depth, 5
  %wide = icmp sgt i64 %width, 32
  %long_or_wide = or i1 %long, %wide
  %packed_small = and i1 %packed, %turned_alone
  %small = and i1 %packed_small, %long_or_wide
  %some = or i1 %large, %small
  %far = icmp sgt i64 %a_area, 1048576
  %thin = icmp slt i64 %width, $min_far_columns
  %far_and_thin = and i1 %far, %thin
  %reread = and i1 %far_and_thin, %a_plain
  %low = icmp sle i64 %height, $max_slow_rows
  %empty = and i1 %low, %b_plain
  %slow = or i1 %reread, %empty
  %fast = xor i1 %slow, true
  %worth = and i1 %some, %fast
  %chosen = and i1 %worth, %read
  ret i1 %chosen
}
