"""Persistence: what of a trace is written to disk, and how it is read."""
