"""PyTorch's face: the Tensor and its tape, PyTorch's functions, and its namespaces of these names."""
