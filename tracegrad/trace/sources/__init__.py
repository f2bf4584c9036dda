"""Sources: access paths to the values that traced code reads, which each call can follow again."""
