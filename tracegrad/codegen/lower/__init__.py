"""Lowering: from a graph to fusion groups, and from these to the loop IR."""
