"""Random numbers from explicit keys: they work in `vmap` over keys, in `scan`, and in compiled loops.

A function of a key gives the same numbers at each call, eager, compiled and in a batch; `split` makes new keys. Keys
are uint32 arrays of two elements; other keys raise TypeError, and more than 2**32 elements of one key raise ValueError.
The bits come from Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2,
3, SC 2011), applied to the key and the number of the element; they will not change. The names and arguments are those
of `jax.random`, the bits are not.

>>> import numpy as np, tracegrad as tg
>>> a, b = tg.random.split(tg.random.key(0))
>>> tg.random.normal(a, (2, 3)).shape, bool(np.all(tg.random.uniform(a, (3,)) == tg.random.uniform(b, (3,))))
((2, 3), False)
>>> tg.vmap(lambda key: tg.random.normal(key, (3,)))(tg.random.split(a, 5)).shape
(5, 3)
"""

from tracegrad.random.continuous import (
    beta,
    cauchy,
    dirichlet,
    exponential,
    gamma,
    gumbel,
    laplace,
    logistic,
    multivariate_normal,
    normal,
    t,
    truncated_normal,
    uniform,
)
from tracegrad.random.discrete import bernoulli, categorical, choice, permutation, rademacher, randint
from tracegrad.random.keys import bits, fold_in, key, split

__all__ = [
    "bernoulli",
    "beta",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "gumbel",
    "key",
    "laplace",
    "logistic",
    "multivariate_normal",
    "normal",
    "permutation",
    "rademacher",
    "randint",
    "split",
    "t",
    "truncated_normal",
    "uniform",
]
