"""Ops on arrays of which only a part is valid."""
