"""`tg.scipy`: SciPy's solvers with compiled derivatives, of functions of pytrees.

The names, arguments and results are those of `scipy.optimize` and `scipy.integrate`, and so are the solvers, which run
in Python and C and call compiled functions. Within traced functions these are SciPy's functions as traced code has
them (`tracegrad.solvers`): a node with derivatives by the implicit function theorem.
"""

from tracegrad.scipy.bvp import solve_bvp
from tracegrad.scipy.integrate import quad, solve_ivp
from tracegrad.scipy.least_squares import curve_fit, least_squares
from tracegrad.scipy.loss_plot import LossPlot
from tracegrad.scipy.minimize import minimize
from tracegrad.scipy.roots import root, root_scalar

__all__ = [
    "LossPlot", "curve_fit", "least_squares", "minimize", "quad", "root", "root_scalar", "solve_bvp", "solve_ivp",
]  # fmt: skip
