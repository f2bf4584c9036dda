"""Random numbers and other values that a call does not give twice."""
