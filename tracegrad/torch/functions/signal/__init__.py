"""Functions of signals: the short-time Fourier transform."""
