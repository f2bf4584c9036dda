"""Calls of functions as ops: custom rules, failures, and random streams."""
