"""Dispatch: from a call to its compiled program, and the fast path in machine code."""
