"""`scipy.linalg`."""
