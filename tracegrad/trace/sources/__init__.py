"""Sources: where a value that traced code reads comes from, and how it is found again."""
