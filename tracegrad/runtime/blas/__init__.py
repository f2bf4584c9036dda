"""Bind BLAS, and choose the GEMM routine of each matrix product."""
