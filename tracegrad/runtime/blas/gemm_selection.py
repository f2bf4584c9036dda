"""Choose between the generated GEMM (`codegen.libs.gemm`) and OpenBLAS, as LLVM IR of `library`'s gemm.

The choice depends on the sizes, on the transposed factors, and on the machine, so bits do not depend on the number of
threads. If alpha is zero the factors must not be read, so OpenBLAS is used, because the generated GEMM reads them.
"""

from __future__ import annotations

from string import Template

__all__ = ["NONE", "PACKED_OTHERWISE", "PARAMETERS", "SMALL_OR_SLIM"]

_HEAD = """
; Whether a product of these sizes, which OpenBLAS would pack, is one of our own.
define internal i1 @is_own_$name(i64 %height, i64 %width, i64 %depth, ptr %transa, ptr %transb, ptr %alpha) {
  %area = mul i64 %height, %width
  %work = mul i64 %area, %depth
  %a_area = mul i64 %height, %depth
  %a_plain = call i1 @is_plain(ptr %transa)
  %b_plain = call i1 @is_plain(ptr %transb)
  %factor = load $type, ptr %alpha
  %read = fcmp une $type %factor, 0.0
"""
_END = """
  %own = and i1 %worth, %read
  ret i1 %own
}
"""

NONE = Template(_HEAD + "  %worth = and i1 false, %read" + _END)

# With AVX2: products below 2**21 multiply-adds, or a quarter of it for floats with a transposed B; products with few
# rows or few terms; and, for floats, products that would be cut into rows, if A is no larger than 2 MiB.
SMALL_OR_SLIM = Template(
    _HEAD
    + """
  %most = select i1 %b_plain, i64 2097152, i64 $little
  %little = icmp sle i64 %work, %most
  %low = icmp sle i64 %height, $low
  %shallow = icmp sle i64 %depth, 32
  %thin = icmp sle i64 %width, $thin
  %near = icmp sle i64 %a_area, 524288
  %thin_and_near = and i1 %thin, %near
  %little_or_low = or i1 %little, %low
  %shallow_or_thin = or i1 %shallow, %thin_and_near
  %worth = or i1 %little_or_low, %shallow_or_thin
"""
    + _END
)

# With AVX-512 on AMD CPUs: all products, except small ones, and tiles of their size (`parallel_gemm.UNPACKED`), for
# which OpenBLAS has kernels without packing. If only A is transposed, OpenBLAS has them for at most 1200 elements of C
# and 32 terms (sgemm_small_kernel_permit). The generated GEMM is slower for a transposed A with short columns and a B
# with few columns. It is also slower for few columns times an A that is not transposed and exceeds the caches, and,
# for floats, if vectors would have one or two rows.
PACKED_OTHERWISE = Template(
    _HEAD
    + """
  %large = icmp sgt i64 %work, $unpacked
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
  %thin = icmp slt i64 %width, $few
  %far_and_thin = and i1 %far, %thin
  %reread = and i1 %far_and_thin, %a_plain
  %low = icmp sle i64 %height, $lowest
  %empty = and i1 %low, %b_plain
  %slow = or i1 %reread, %empty
  %fast = xor i1 %slow, true
  %worth = and i1 %some, %fast
"""
    + _END
)

# The parameters that differ between floats and doubles.
PARAMETERS = {
    "sgemm": {"little": "524288", "low": "16", "thin": "64", "few": "16", "lowest": "2"},
    "dgemm": {"little": "2097152", "low": "32", "thin": "0", "few": "64", "lowest": "0"},
}
