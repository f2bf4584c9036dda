"""Lazy modules: layers that get the sizes of their parameters from the first input."""
