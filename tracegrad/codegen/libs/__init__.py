"""Library routines that programs call: matrix products, factorizations, sorting, packed bits."""
