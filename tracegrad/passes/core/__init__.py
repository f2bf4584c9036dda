"""Base of the passes: the rewriter, and constant folding."""
