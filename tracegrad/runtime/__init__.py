"""What runs compiled programs: machine code, the disk cache, entry points, threads, BLAS."""
