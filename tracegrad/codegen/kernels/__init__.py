"""Generate the LLVM IR of one kernel: loop optimizations, vectorization, and code generation."""
