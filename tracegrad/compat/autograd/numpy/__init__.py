"""NumPy itself, whose functions are traced directly; functions that join arrays take generators too.

`make_diagonal`, which only autograd has, is here as well.

>>> from tracegrad.compat.autograd import numpy as anp
>>> import numpy as np
>>> anp.sin is np.sin, anp.linalg.solve is np.linalg.solve
(True, True)
"""

from tracegrad.compat.autograd.numpy import diagonals as diagonals
from tracegrad.compat.autograd.numpy import fft as fft
from tracegrad.compat.autograd.numpy import joining as joining
from tracegrad.compat.autograd.numpy import linalg as linalg
from tracegrad.compat.autograd.numpy import numpy_boxes as numpy_boxes
from tracegrad.compat.autograd.numpy import numpy_jvps as numpy_jvps
from tracegrad.compat.autograd.numpy import numpy_vjps as numpy_vjps
from tracegrad.compat.autograd.numpy import numpy_vspaces as numpy_vspaces
from tracegrad.compat.autograd.numpy import numpy_wrapper as numpy_wrapper
from tracegrad.compat.autograd.numpy import random as random
from tracegrad.compat.autograd.numpy.diagonals import make_diagonal as make_diagonal
from tracegrad.compat.autograd.numpy.joining import column_stack as column_stack
from tracegrad.compat.autograd.numpy.joining import concatenate as concatenate
from tracegrad.compat.autograd.numpy.joining import hstack as hstack
from tracegrad.compat.autograd.numpy.joining import stack as stack
from tracegrad.compat.autograd.numpy.joining import vstack as vstack
from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "numpy")
