"""`scipy.signal`."""
