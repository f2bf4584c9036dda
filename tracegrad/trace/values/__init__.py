"""Values of a trace: arrays, numbers, views, containers, and Python's functions of them."""
