"""Shadows of `scipy.spatial`."""
