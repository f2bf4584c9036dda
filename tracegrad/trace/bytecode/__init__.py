"""CPython bytecode: instructions, exception regions, and local variables of frames."""
