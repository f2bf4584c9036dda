"""Does any kernel lose to unfused NumPy? One function at a time (`kernels.py`), value only, without fusion.

Operands fit the first cache, the second cache, or memory; they may have a few elements; threads of another library may
run at the same time. The peer "copy" copies as many bytes as the operands and the result have, by a Numba loop: the
limit of memory. The peer "BLAS" is the product alone, by SciPy's BLAS. `--cores 1` compares one thread with one.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.harness import QUICK, Case, Factory, Run, Settings, Timed, leaves
from benchmarks.kernels import DTYPES, GROUPS, STREAMS, TINY, by_blas, operand
from benchmarks.peers import need

PACKAGES = ("tracegrad", "numba", "torch")
IN_MEMORY = 4_000_000
SIZES = (1_000, 100_000, IN_MEMORY)
FEW = (1, 10, 100)
BESIDE = ("add", "exp", "sum", "max axis 0", "transpose", "matvec", "softmax rows")


def copying(count: int, answer: Any) -> Run:
    """Copy half of `count` bytes: as many are read and written. Zeros never written to would be read from no memory."""
    numba = need("numba")
    source, target = np.ones((2, max(count // 16, 1)))

    @numba.njit("void(float64[::1], float64[::1])")
    def copy(source, target):  # type: ignore[no-untyped-def]
        for i in range(source.size):
            target[i] = source[i]

    def run() -> Any:
        copy(source, target)
        return answer

    return run


def blas(name: str, dtype: str, arrays: Any) -> Run:
    letter = {"float64": "d", "float32": "s"}[dtype]
    return functools.partial(by_blas, name, letter, *arrays)


def after_torch(run: Run) -> Run:
    """`run`, timed by itself when threads of PyTorch have just computed, and are not asleep yet."""
    torch = need("torch")
    a = torch.ones(500, 500)

    def timed() -> Timed:
        torch.mm(a, a)
        start = time.perf_counter()
        result = run()
        return Timed(time.perf_counter() - start, result)

    return timed


def case(group: str, name: str, dtype: str, size: int, beside: bool = False) -> Case:
    """One function on arrays of about so many elements."""
    function, letters = GROUPS[group][name]
    arrays = tuple([operand(letter, dtype, size) for letter in letters])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = function(*arrays)
    peers: dict[str, Factory] = {
        "tracegrad": lambda: functools.partial(need("tracegrad").trace(function), *arrays),
        "numpy": lambda: functools.partial(function, *arrays),
    }
    if beside:
        peers = {peer: lambda factory=factory: after_torch(factory()) for peer, factory in peers.items()}  # type: ignore[misc]
    elif group in STREAMS and size >= IN_MEMORY:
        count = sum(x.nbytes for x in leaves([*arrays, expected]))
        peers["copy"] = lambda: copying(count, expected)
    elif group == "products" and by_blas(name, {"float64": "d", "float32": "s"}[dtype], *arrays) is not None:
        peers["BLAS"] = lambda: blas(name, dtype, arrays)
    # The threads of a BLAS, or of PyTorch, spin for a while; nothing else has any.
    settle = 0.001 if group != "products" and not beside else None
    title = f"{name}, {dtype}, {size}{' beside torch' * beside}"
    return Case(title, peers, lambda: expected, settle_seconds=settle, brief=True)


def cases(settings: Settings) -> Iterator[Case]:
    """One at a time: together the arrays would fill the memory. Until the last is done, NumPy does not warn."""
    with np.errstate(all="ignore"):
        yield from _cases(settings)


def _cases(settings: Settings) -> Iterator[Case]:
    for size in SIZES[:2] if settings == QUICK else SIZES:
        for group, rows in GROUPS.items():
            for dtype in DTYPES[group][: 1 if settings == QUICK else None]:
                for name in rows:
                    yield case(group, name, dtype, size)
    for group, rows in GROUPS.items():
        for name in rows:
            for size in FEW if name in TINY else ():
                yield case(group, name, DTYPES[group][0], size)
            if name in BESIDE:
                yield case(group, name, DTYPES[group][0], 1_000_000, beside=True)
