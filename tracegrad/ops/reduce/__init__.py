"""Reductions, scans, sorting, and searches."""
