"""BLAS: the library, and which product runs by which routine."""
