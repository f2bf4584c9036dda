"""NumPy itself, whose functions are traced as they are.

>>> from tracegrad.compat.autograd import numpy as anp
>>> import numpy as np
>>> anp.sin is np.sin, anp.linalg.solve is np.linalg.solve
(True, True)
"""

from tracegrad.compat.autograd.numpy import fft as fft
from tracegrad.compat.autograd.numpy import linalg as linalg
from tracegrad.compat.autograd.numpy import numpy_boxes as numpy_boxes
from tracegrad.compat.autograd.numpy import numpy_vjps as numpy_vjps
from tracegrad.compat.autograd.numpy import numpy_vspaces as numpy_vspaces
from tracegrad.compat.autograd.numpy import numpy_wrapper as numpy_wrapper
from tracegrad.compat.autograd.numpy import random as random
from tracegrad.later import mirrored

__getattr__, __dir__ = mirrored(globals(), "numpy")
