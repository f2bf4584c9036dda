"""Describe the target CPU of generated code: its features, cache lines and pages."""
