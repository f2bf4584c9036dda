"""Utilities independent of derivatives: logging, formatting, lazy imports, pickling."""
