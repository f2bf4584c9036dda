"""Shadows of `scipy.stats`."""
