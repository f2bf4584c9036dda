"""Emit the entry point: a CPython builtin in machine code that unpacks arguments and runs the program."""
