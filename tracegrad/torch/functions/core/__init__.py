"""Infrastructure of all functions: registration, operands, dtypes, dimensions, and `out=`."""
