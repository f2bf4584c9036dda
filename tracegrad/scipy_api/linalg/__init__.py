"""Shadows of `scipy.linalg`."""
