"""The trace builder: record nodes, evaluate values that Python code needs, and note guards."""
