"""One kernel: loop optimizations, vectorization, and its LLVM IR."""
