"""`scipy.stats`."""
