"""The CPU that code is generated for: its features, cache lines and pages."""
