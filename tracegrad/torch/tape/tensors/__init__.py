"""Tensor: factories, views, in-place updates, dtypes, and conversion."""
