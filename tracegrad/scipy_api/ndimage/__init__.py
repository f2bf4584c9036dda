"""Shadows of `scipy.ndimage`."""
