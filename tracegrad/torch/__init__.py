"""PyTorch front end: the Tensor and its tape, PyTorch's functions, and PyTorch's namespaces."""
