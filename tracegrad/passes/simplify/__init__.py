"""The simplifier: all rules, until nothing changes."""
