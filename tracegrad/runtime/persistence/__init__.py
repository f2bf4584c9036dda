"""Serialize traces to disk, and restore them in another process."""
