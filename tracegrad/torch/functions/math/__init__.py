"""Functions of elements, reductions, and statistics."""
