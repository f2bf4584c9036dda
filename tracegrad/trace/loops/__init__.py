"""Loops of traced code that are recorded as they are written."""
