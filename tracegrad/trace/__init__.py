"""Trace Python functions: record one call as a graph, its guards and its effects (tracing)."""
