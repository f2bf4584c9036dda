"""What passes are made of: the rewriter, and constant folding."""
