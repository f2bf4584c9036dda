"""Generate the program: bytecode encoder, interpreter, regions, and compilation units."""
