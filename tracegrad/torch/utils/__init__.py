"""Namespace of `torch.utils`: loading of data, and checkpoints of functions."""
