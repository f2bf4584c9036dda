"""What all functions share: registration, operands, dtypes, dimensions, and `out=`."""
