"""Solvers in traced code: `scipy.optimize`, and integrals of functions in `scipy.integrate`.

A function that is passed to a solver becomes a graph, whose captures are operands. The solver is SciPy's own: it runs
at each call of the compiled program, on that graph. Its steps are not differentiated. The result is: it solves an
equation (`implicit.py`), or is an integral (`quadrature.py`).
"""
