"""Special functions and their derivatives."""
