"""The loop IR: kernels, polynomials of symbolic sizes, footprints, and the steps of a plan."""
