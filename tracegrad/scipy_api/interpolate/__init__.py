"""Shadows of `scipy.interpolate`."""
