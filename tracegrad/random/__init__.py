"""Random numbers from explicit keys: they work in `vmap` over keys, in `scan`, and in compiled loops.

A function of a key gives the same numbers at each call, eager, compiled and in a batch; `split` makes new keys. Keys
are uint32 arrays of two elements; other keys raise TypeError, and more than 2**32 elements of one key raise ValueError.
The bits come from Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2,
3, SC 2011), applied to the key and the number of the element; they will not change. The names and arguments are those
of `jax.random`, the bits are not.

PyTorch's names of the default generator are here too: `fork_rng`, `get_rng_state`, `manual_seed` and others.

>>> import numpy as np, tracegrad as tg
>>> a, b = tg.random.split(tg.random.key(0))
>>> tg.random.normal(a, (2, 3)).shape, bool(np.all(tg.random.uniform(a, (3,)) == tg.random.uniform(b, (3,))))
((2, 3), False)
>>> tg.vmap(lambda key: tg.random.normal(key, (3,)))(tg.random.split(a, 5)).shape
(5, 3)
"""

from importlib import import_module

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


def __getattr__(name: str) -> object:
    if name.startswith("__") or name not in _OF_PYTORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module("tracegrad.torch.tape.tensors.default_rng"), name)


_OF_PYTORCH = (
    *("Generator", "default_generator", "fork_rng", "get_rng_state"),
    *("initial_seed", "manual_seed", "seed", "set_rng_state"),
)
