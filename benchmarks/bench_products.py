"""Are matrix products as fast as the BLAS, for all sizes and layouts of the factors?

The products are square, of layers and of attention, slim and shallow, and stacks of small ones. The peers are
`np.matmul` and SciPy's BLAS, called directly. Transposed products are `x @ y.T` and `x.T @ y`; products of parts of
rows are `x[:, :k] @ y`. `--cores 1` compares one thread with one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness import QUICK, Case, Factory, Settings
from benchmarks.peers import need

PACKAGES = ("tracegrad",)
DTYPES = ("float64", "float32")
SQUARES = (16, 24, 32, 48, 64, 96, 128, 200, 256, 384, 512, 1024)
OTHERS = (
    (128, 256, 784), (128, 784, 256), (784, 256, 128), (256, 128, 784), (128, 128, 256), (128, 10, 128),  # of layers
    (512, 64, 64), (512, 128, 64), (512, 512, 128), (128, 512, 512), (16, 512, 128), (128, 512, 16), (16, 3200, 128),
    (3200, 16, 128), (10_000, 10, 64), (4, 256, 256), (512, 8, 512), (512, 512, 8), (1000, 1000, 10), (33, 77, 129),
    (256, 4, 256), (128, 128, 1024), (16, 2000, 2000), (1000, 2, 1000), (1000, 1000, 2), (8, 256, 784), (10_000, 3, 3),
)  # fmt: skip
STACKS = ((64, 8, 8, 8), (64, 12, 12, 12), (64, 16, 16, 16), (64, 24, 24, 24), (64, 32, 32, 32), (64, 64, 64, 64))
STACKS += ((32, 128, 128, 16), (32, 128, 16, 128), (32, 64, 64, 32), (256, 8, 64, 8))

Product = Callable[[Any, Any], Any]
PRODUCTS: dict[str, Product] = {
    "x @ y": lambda x, y: x @ y,
    "x @ y.T": lambda x, y: x @ np.swapaxes(y, -1, -2),
    "x.T @ y": lambda x, y: np.swapaxes(x, -1, -2) @ y,
    "x[:, :k] @ y": lambda x, y: x[..., : y.shape[-2]] @ y,
}


def by_blas(name: str, dtype: str, x: Any, y: Any) -> Callable[[], Any]:
    """The product by SciPy's BLAS: the transposed product of the transposed factors, which are in order F."""
    from scipy.linalg import blas

    gemm = blas.dgemm if dtype == "float64" else blas.sgemm
    transposed = {"trans_a": name == "x @ y.T", "trans_b": name == "x.T @ y"}
    return lambda: gemm(1.0, y.T, x.T, **transposed).T


def case(name: str, dtype: str, sizes: tuple[int, ...]) -> Case:
    *stack, m, n, k = sizes
    shapes = {
        "x @ y": ((m, k), (k, n)),
        "x @ y.T": ((m, k), (n, k)),
        "x.T @ y": ((k, m), (k, n)),
        "x[:, :k] @ y": ((m, 2 * k), (k, n)),
    }[name]
    x, y = (np.random.default_rng(i).standard_normal((*stack, *shape)).astype(dtype) for i, shape in enumerate(shapes))
    product = PRODUCTS[name]
    peers: dict[str, Factory] = {
        "tracegrad": lambda: functools.partial(need("tracegrad").trace(product), x, y),
        "numpy": lambda: functools.partial(product, x, y),
    }
    if not stack and name != "x[:, :k] @ y":
        peers["BLAS"] = lambda: by_blas(name, dtype, x, y)
    title = f"{name}, {''.join(f'{count} of ' for count in stack)}{m} by {n} by {k}, {dtype}"
    return Case(title, peers, lambda: product(x, y), brief=True)


def cases(settings: Settings) -> Iterator[Case]:
    squares = [(n, n, n) for n in SQUARES]
    for sizes in [(64, 64, 64), (64, 16, 16, 16)] if settings == QUICK else [*squares, *OTHERS, *STACKS]:
        for dtype in DTYPES:
            for name in PRODUCTS:
                yield case(name, dtype, sizes)
