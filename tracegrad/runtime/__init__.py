"""Run compiled programs: dispatch, machine code, disk cache, entry points, threads, BLAS."""
