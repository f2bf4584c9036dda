"""Lower a graph to fusion groups, and fusion groups to the loop IR."""
