"""Arrays whose sizes are numbers of a loop, and their slices."""
