"""The Tensor: factories, views, updates in place, dtypes, and conversion."""
