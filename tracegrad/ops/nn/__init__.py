"""Ops of neural networks: activations, correlations, patches, and losses."""
