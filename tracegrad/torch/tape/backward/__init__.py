"""The backward pass along the tape, hooks, and forward mode."""
