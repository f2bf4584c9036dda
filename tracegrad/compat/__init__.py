"""Other libraries' names for what tracegrad does, so that code written for them runs as it is."""
