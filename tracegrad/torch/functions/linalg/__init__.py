"""Matrix products, norms, and the functions of `tracegrad.torch.linalg`."""
