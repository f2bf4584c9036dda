"""Diagnostics: where nan comes from, times of steps, and peaks of the machine."""
