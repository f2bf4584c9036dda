"""The world outside a trace: what it reads, the guards on that, and what it writes."""
