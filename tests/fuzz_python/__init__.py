"""Random Python programs: hooks of classes, registries, memo dicts, match, exceptions, closures, a world that changes.

- `pieces`: what a program may consist of.
- `writer`: puts pieces together.
- `checking`: runs a program plainly and traced, with its derivatives, while the world changes between the calls.

`fuzz` has the programs that are about NumPy, and what shrinks a program that fails.
"""
