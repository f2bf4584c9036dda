"""Public packages that others wrote for HIPS autograd, whose own tests run on tracegrad."""
