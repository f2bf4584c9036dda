"""Loops of traced code, recorded as loops while they run."""
