"""Ops on arrays that are only partly valid (ragged arrays)."""
