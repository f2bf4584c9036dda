"""Define the loop IR: kernels, polynomials of symbolic sizes, access footprints, and the steps of a plan."""
