"""`scipy.spatial`."""
