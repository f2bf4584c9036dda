"""Rewrite bytecode of traced code before it runs: call sites, loops, and constants."""
