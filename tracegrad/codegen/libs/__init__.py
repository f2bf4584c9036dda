"""Emit library routines that programs call: GEMM, factorizations, sorting, packed bits, random numbers."""
