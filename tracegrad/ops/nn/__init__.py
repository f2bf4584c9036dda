"""Neural network ops: activations, correlations, patches, and losses."""
