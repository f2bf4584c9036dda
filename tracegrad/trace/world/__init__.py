"""The world outside a trace: reads, the guards on them, and writes."""
