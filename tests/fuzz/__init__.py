"""Random NumPy programs: NumPy's own results against compiled and eager ones, and derivatives against differences.

- `grammar`: the lines that a program may consist of.
- `writer`: writes a program, line by line, each as NumPy runs it.
- `checking`: runs a program in all ways and compares.
- `shrinking`: takes lines out of a program that fails while it fails; what is left is kept in `kept/` and tested.

`random_programs` has those that are about memory (what is a view of what), `random_loops` those about loops.
"""
