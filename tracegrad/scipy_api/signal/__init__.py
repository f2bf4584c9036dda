"""Shadows of `scipy.signal`."""
