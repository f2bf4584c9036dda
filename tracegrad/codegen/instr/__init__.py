"""Emit LLVM IR of single instructions of the loop IR, and the support functions that they call."""
