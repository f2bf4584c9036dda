"""How long does SciPy take to minimize with compiled derivatives? The Rosenbrock function of 1,000 variables.

`tg.scipy.minimize` computes the derivatives that the method needs. `scipy.optimize.minimize` gets JAX's jitted value
and gradient, and its Hessian-vector product. Both must find the minimum, to seven digits. First calls are measured in
new processes, after the packages have been imported.
"""

from __future__ import annotations

import functools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.harness import Case, Factory, Run, Settings, Timed, printed
from benchmarks.peers import need

PACKAGES = ("tracegrad", "jax")
START = np.zeros(1000)
METHODS: dict[str, dict[str, Any]] = {  # with options by which they end at the minimum
    "L-BFGS-B": {"ftol": 1e-15, "gtol": 1e-8},
    "Newton-CG": {"xtol": 1e-10},
}

CHILD = "from benchmarks.bench_minimize import print_measured; print_measured({method!r}, {peer!r})"


def rosenbrock(x: Any) -> Any:
    """The function, in operators and methods that both have."""
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def found(result: Any) -> Any:
    """Where the minimum is."""
    assert result.success, result.message
    return result.x


def tracegrad(method: str) -> Run:
    minimize = need("tracegrad").scipy.minimize
    return lambda: found(minimize(rosenbrock, START, method=method, options=METHODS[method]))


def jax(method: str) -> Run:
    module, minimize = need("jax"), need("scipy.optimize").minimize
    both = module.jit(module.value_and_grad(rosenbrock))
    product = module.jit(lambda x, v: module.jvp(module.grad(rosenbrock), (x,), (v,))[1])
    more = {"hessp": product} if method == "Newton-CG" else {}
    return lambda: found(minimize(both, START, jac=True, method=method, options=METHODS[method], **more))


PEERS: dict[str, Callable[[str], Run]] = {"tracegrad": tracegrad, "jax": jax}


def warm(method: str, peer: str) -> Run:
    return PEERS[peer](method)


def print_measured(method: str, peer: str) -> None:
    """Seconds of the first call after the imports, and what it found."""
    peers.PRIMES.clear()  # nothing is compiled ahead of the clock
    need("scipy.optimize")
    module = need(peer)
    if peer == "jax":
        module.config.update("jax_enable_x64", True)
        module.devices()
    start = time.perf_counter()
    x = PEERS[peer](method)()
    print(json.dumps({"seconds": time.perf_counter() - start, "x": x.tolist()}))


def cold(method: str, peer: str) -> Run:
    need(peer)

    def run() -> Timed:
        with tempfile.TemporaryDirectory(prefix="cold-") as empty:
            environment = {"TRACEGRAD_CACHE_DIR": empty, "TRACEGRAD_FIRST_CALL": "replay"}
            measured = printed(CHILD.format(method=method, peer=peer), environment)
        return Timed(measured["seconds"], np.array(measured["x"]))

    return run


def cases(settings: Settings) -> Iterator[Case]:
    for method in METHODS:
        for start, factory in (("", warm), ("new process: ", cold)):
            makers: dict[str, Factory] = {peer: functools.partial(factory, method, peer) for peer in PEERS}
            name = f"{start}minimize, Rosenbrock function of {START.size:,} variables, {method}"
            yield Case(name, makers, lambda: np.ones(START.size), once=True, tolerance=1e-7)
