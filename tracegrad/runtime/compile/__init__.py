"""Compile LLVM IR: pass pipelines, JIT linking, fingerprints, and the disk cache."""
