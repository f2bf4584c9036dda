"""Linear algebra: contractions, factorizations, eigenvalues, and matrix functions."""
