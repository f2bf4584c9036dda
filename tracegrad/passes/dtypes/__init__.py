"""Legalization of dtypes: complex numbers as pairs, and half precision."""
