"""Recording: how an op on a Tensor leaves a node on the tape, and what the node saves."""
