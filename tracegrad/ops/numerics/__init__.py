"""Accurate scalar functions, with pairs of floats where one float is not enough."""
