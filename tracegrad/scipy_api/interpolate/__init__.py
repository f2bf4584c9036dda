"""`scipy.interpolate`."""
