"""Recording: the node that an op on a Tensor adds to the tape, and its saved values."""
