"""The entry point: a CPython function in machine code that unpacks arguments and runs the program."""
