"""Dispatch a call to its compiled program, and generate the fast path of each program."""
