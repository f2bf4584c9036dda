"""Compilation: pass pipelines, LLVM's JIT, fingerprints, and the disk cache."""
