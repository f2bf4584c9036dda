"""The driver: it traces a call and closes the graph."""
