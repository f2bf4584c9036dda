"""SciPy's solvers in traced code: `scipy.optimize`, and integrals of functions in `scipy.integrate`.

A function that is handed to a solver becomes a graph, whose captures are operands (`constant_array.py`). The solver is
SciPy's own: it runs at each call of the compiled program, on that graph. Derivatives are not those of its steps, but of
what its result is: the solution of an equation (`implicit.py`), or an integral (`quadrature.py`).
"""
