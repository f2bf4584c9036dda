"""SciPy's solvers with compiled derivatives for functions of pytrees, `tg.scipy`.

Names, arguments and results are the same as in `scipy.optimize` and `scipy.integrate`. The solvers are SciPy's: they
run in Python and C, and call compiled functions. In traced functions the names are the solver nodes of traced code
(`tracegrad.solvers`), with derivatives by the implicit function theorem.
"""

from tracegrad.scipy.bvp import solve_bvp
from tracegrad.scipy.integrate import quad, solve_ivp
from tracegrad.scipy.least_squares import curve_fit, least_squares
from tracegrad.scipy.loss_plot import LossPlot
from tracegrad.scipy.minimize import minimize
from tracegrad.scipy.roots import root, root_scalar

__all__ = [
    "LossPlot",
    "curve_fit",
    "least_squares",
    "minimize",
    "quad",
    "root",
    "root_scalar",
    "solve_bvp",
    "solve_ivp",
]
