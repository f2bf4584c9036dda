"""From a graph to LLVM IR: schedule, loops, scalar and vector code, the entry point."""
