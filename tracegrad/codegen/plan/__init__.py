"""Plan a program: its steps, its buffers, and optimizations across kernels."""
