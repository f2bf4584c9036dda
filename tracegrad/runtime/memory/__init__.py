"""Allocate the memory of outputs and arenas."""
