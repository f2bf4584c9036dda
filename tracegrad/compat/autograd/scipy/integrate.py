"""SciPy's own integrators; `odeint` takes the parameters of its function by position or as `args`."""

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "scipy.integrate")
