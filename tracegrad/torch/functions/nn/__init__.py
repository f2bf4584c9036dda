"""Functions of `tracegrad.torch.nn.functional`."""
