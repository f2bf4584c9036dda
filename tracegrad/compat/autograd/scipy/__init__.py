"""SciPy's own functions, which are traced directly, except `signal.convolve`, which has autograd's arguments."""

from tracegrad.compat.autograd.scipy import integrate, linalg, signal, special, stats

__all__ = ["integrate", "linalg", "signal", "special", "stats"]
