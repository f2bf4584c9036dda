"""Random numbers and other values that differ between calls."""
