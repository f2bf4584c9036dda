"""Backward pass along the tape, hooks, and forward mode."""
