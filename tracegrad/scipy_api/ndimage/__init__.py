"""`scipy.ndimage`."""
