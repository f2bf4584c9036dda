"""Tracing: from a Python function and the arguments of a call to a graph and its guards."""
