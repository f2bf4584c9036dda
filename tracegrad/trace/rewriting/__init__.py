"""Traced code rewritten before it runs: call sites, loops, and constants."""
