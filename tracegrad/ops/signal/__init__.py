"""Signal processing: Fourier transforms, filters, and splines."""
