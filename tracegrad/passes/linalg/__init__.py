"""Rules of linear algebra: small products, diagonal and triangular matrices, shared factorizations."""
