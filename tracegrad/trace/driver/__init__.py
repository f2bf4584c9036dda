"""The trace driver: trace one call and close its graph."""
