"""LLVM IR of one instruction of a kernel, and the support functions that it calls."""
