"""Accurate scalar functions, by pairs of floats where one is not enough."""
