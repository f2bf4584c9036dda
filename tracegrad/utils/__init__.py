"""What is not about derivatives: logging, formatting, lazy imports, pickling."""
