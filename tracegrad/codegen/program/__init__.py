"""The program: its bytecode, the interpreter, regions, and compilation units."""
