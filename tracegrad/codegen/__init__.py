"""Compile a graph to LLVM IR: lowering, loop IR, plan, kernels, libraries, program, entry point."""
