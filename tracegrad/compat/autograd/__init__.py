"""Compatibility layer for HIPS autograd: its transforms, `numpy`, `scipy`, `extend`, `misc` and `test_util`.

After `install()`, `import autograd` imports this package, in third-party code too. `numpy` and `scipy` have NumPy's and
SciPy's own functions, and the functions that transforms return are compiled. As in autograd, complex gradients are the
conjugates of tracegrad's; the output of a function in `grad` may have any shape with one element; and arguments that
are not differentiated may be any objects.

>>> import tracegrad.compat.autograd.numpy as np
>>> from tracegrad.compat.autograd import elementwise_grad, grad
>>> print(grad(lambda x, power: np.sum(x**power))(np.array([1.0, 2.0]), 3))
[ 3. 12.]
>>> print(elementwise_grad(np.tanh)(np.zeros(2)))
[1. 1.]
"""

from tracegrad.compat.autograd import builtins, core, extend, misc, numpy, scipy, test_util, tracer, util, wrap_util
from tracegrad.compat.autograd.builtins import dict, isinstance, list, tuple, type
from tracegrad.compat.autograd.differential_operators import (
    checkpoint,
    deriv,
    elementwise_grad,
    grad,
    grad_and_aux,
    grad_named,
    hessian,
    hessian_tensor_product,
    hessian_vector_product,
    holomorphic_grad,
    jacobian,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_jvp_reversemode,
    make_vjp,
    multigrad_dict,
    tensor_jacobian_product,
    value_and_grad,
    vector_jacobian_product,
)
from tracegrad.compat.autograd.rules import primitive
from tracegrad.utils.lazy_import import second_name

__all__ = [
    "builtins", "checkpoint", "core", "deriv", "dict", "elementwise_grad", "extend", "grad", "grad_and_aux",
    "grad_named", "hessian", "hessian_tensor_product", "hessian_vector_product", "holomorphic_grad", "install",
    "isinstance", "jacobian", "list", "make_ggnvp", "make_hvp", "make_jvp", "make_jvp_reversemode", "make_vjp",
    "misc", "multigrad_dict", "numpy", "primitive", "scipy", "tensor_jacobian_product", "test_util", "tracer",
    "tuple", "type", "util", "value_and_grad", "vector_jacobian_product", "wrap_util",
]  # fmt: skip


def install(name: str = "autograd") -> None:
    """Make `import autograd` import this package, in this process, from now on.

    Call it before any import of autograd; RuntimeError if autograd itself has been imported.

    >>> install("autograd_by_tracegrad")
    >>> import autograd_by_tracegrad.numpy as np
    >>> from autograd_by_tracegrad import grad
    >>> print(grad(np.sin)(0.0))
    1.0
    """
    second_name(name, __name__)
