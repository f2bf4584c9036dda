"""The workloads: programs as people write them in NumPy, each with its data and the derivative to compute.

A function takes the array namespace `xp` and then its arguments, so that NumPy (traced), JAX, PyTorch, PyTensor and
HIPS autograd run the same lines. `namespaces` has the functions whose names differ.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.namespaces import convolved, drawn, erf, largest, logsumexp, relu, sizes, solved_lower
from benchmarks.recurrences import characters, heat, heat_by_hand, lstm, lstm_by_hand, sequence, text

__all__ = ["Workload", "workloads"]


class Workload(NamedTuple):
    """A function of `xp` and of what `data()` makes, of which the first, a tree of arrays, is differentiated.

    derived: makes of `value_and_grad`, `grad` and `hessian` (a namespace, or a module that has them) and the function
        what is called; value and gradient if None.
    """

    name: str
    fun: Callable[..., Any]
    data: Callable[[], tuple[Any, ...]]
    derived: Callable[[Any, Callable[..., Any]], Callable[..., Any]] | None = None
    by_hand: Callable[..., Any] | None = None  # value and gradient, in loops that numba compiles
    in_numpy: Callable[..., Any] | None = None  # value and gradient, as somebody writes them in NumPy
    iterations: int = 1  # of its Python loop; who unrolls loops compiles each


# -- small functions ---------------------------------------------------------------------------------------------
def rosenbrock(xp: Any, x: Any) -> Any:
    return xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def three(xp: Any, x: Any) -> Any:
    return xp.sin(x[0]) * x[1] + xp.exp(-(x[2] ** 2)) / (1.0 + x[0] ** 2)


def entangled(xp: Any, x: Any, a: Any) -> Any:
    return xp.sum(xp.sin(a @ x) ** 2) + xp.sum(x**4) / 4.0


# -- elementwise -------------------------------------------------------------------------------------------------
def chain(xp: Any, x: Any, w: Any, b: Any) -> Any:
    return xp.sum(xp.tanh(x * w + b) * xp.exp(-(x**2)))


def deep(xp: Any, x: Any) -> Any:
    for _ in range(4):
        x = xp.sin(x) * xp.exp(-0.1 * x * x) + 0.5 * xp.tanh(x)
    return xp.sum(x)


def black_scholes(xp: Any, market: Any, strike: Any, rate: float) -> Any:
    """The sum of the prices of calls; market: spot, volatility, time."""
    spot, vol, time = market
    spread = vol * xp.sqrt(time)
    d1 = (xp.log(spot / strike) + (rate + 0.5 * vol**2) * time) / spread
    d2 = d1 - spread

    def below(z: Any) -> Any:
        return 0.5 * (1.0 + erf(xp, z * math.sqrt(0.5)))

    return xp.sum(spot * below(d1) - strike * xp.exp(-rate * time) * below(d2))


def greeks(module: Any, fun: Callable[..., Any]) -> Callable[..., Any]:
    """Delta, vega and theta, and how the sum of the deltas changes: gamma, vanna and charm."""

    def delta(market: Any, *rest: Any) -> Any:
        first = module.grad(fun)(market, *rest)
        return first[0].sum(), first

    def both(market: Any, *rest: Any) -> Any:
        (_, first), second = module.value_and_grad(delta, has_aux=True)(market, *rest)
        return first, second

    return both


def third(module: Any, fun: Callable[..., Any]) -> Callable[..., Any]:
    """The third derivative of a sum whose terms have an element each."""
    first = module.grad(fun)
    second = module.grad(lambda x: first(x).sum())
    return module.grad(lambda x: second(x).sum())  # type: ignore[no-any-return]


# -- rows ----------------------------------------------------------------------------------------------------------
def cross_entropy(xp: Any, z: Any, labels: Any, rows: Any) -> Any:
    return xp.mean(logsumexp(xp, z) - z[rows, labels])


def clusters(xp: Any, centers: Any, x: Any) -> Any:
    """The mean squared distance to the nearest center."""
    distances = xp.sum(x**2, 1)[:, None] - 2.0 * (x @ centers.T) + xp.sum(centers**2, 1)
    return xp.mean(-largest(-distances, 1))


def mixture(xp: Any, parameters: Any, x: Any, table: Any, one: Any) -> Any:
    """Negative log posterior of a Gaussian mixture with full covariances and a Wishart prior (ADBench's GMM)."""
    alphas, means, q, below = parameters
    lower = xp.concatenate((below, 0.0 * q[:, :1]), 1)[:, table]
    root = lower + xp.exp(q)[:, :, None] * one
    z = xp.einsum("kij,nkj->nki", root, x[:, None, :] - means)
    terms = alphas + xp.sum(q, 1) - 0.5 * xp.sum(z**2, 2)
    fit = xp.sum(logsumexp(xp, terms)) - x.shape[0] * logsumexp(xp, alphas[None])[0]
    return -fit + 0.5 * (xp.sum(xp.exp(2.0 * q)) + xp.sum(below**2)) - xp.sum(q)


def _mixture(d: int, k: int, n: int) -> tuple[Any, ...]:
    rows, columns = np.tril_indices(d, -1)
    table = np.full((d, d), rows.size)
    table[rows, columns] = np.arange(rows.size)
    parameters = (drawn(0, k), drawn(1, k, d), 0.1 * drawn(2, k, d), 0.1 * drawn(3, k, rows.size))
    return parameters, drawn(4, n, d), table, np.eye(d)


# -- bundle adjustment -----------------------------------------------------------------------------------------------
def reprojection(xp: Any, parameters: Any, camera: Any, point: Any, seen: Any) -> Any:
    """Half the sum of squared errors; cameras: rotation, center, focal length, principal point, distortion."""
    cameras, points = parameters
    c, x = cameras[camera], points[point]
    angle = xp.sqrt(xp.sum(c[:, :3] ** 2, 1))[:, None]
    axis, x = c[:, :3] / angle, x - c[:, 3:6]
    a0, a1, a2 = axis[:, 0], axis[:, 1], axis[:, 2]
    x0, x1, x2 = x[:, 0], x[:, 1], x[:, 2]
    cross = xp.stack((a1 * x2 - a2 * x1, a2 * x0 - a0 * x2, a0 * x1 - a1 * x0), 1)
    along = xp.sum(axis * x, 1)[:, None]
    x = x * xp.cos(angle) + cross * xp.sin(angle) + axis * along * (1.0 - xp.cos(angle))
    flat = x[:, :2] / x[:, 2:]
    square = xp.sum(flat**2, 1)
    bent = flat * (1.0 + c[:, 9] * square + c[:, 10] * square**2)[:, None]
    return 0.5 * xp.sum((bent * c[:, 6:7] + c[:, 7:9] - seen) ** 2)


def _bundle(observations: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(5)
    cameras = 0.1 * rng.standard_normal((50, 11)) + np.array([0.3, 0.2, 0.1, 0, 0, -5, 1, 0, 0, 0, 0])
    points = rng.standard_normal((2000, 3))
    places = rng.integers(0, 50, observations), rng.integers(0, 2000, observations)
    return (cameras, points), *places, rng.standard_normal((observations, 2))


# -- networks ----------------------------------------------------------------------------------------------------------
def perceptron(xp: Any, parameters: Any, x: Any, labels: Any, rows: Any) -> Any:
    for w, b in parameters[:-1]:
        x = relu(xp, x @ w + b)
    w, b = parameters[-1]
    return cross_entropy(xp, x @ w + b, labels, rows)


def convnet(xp: Any, parameters: Any, x: Any, labels: Any, rows: Any) -> Any:
    """Two convolutions, each with relu and pooling by two, and a dense layer."""
    (w1, b1), (w2, b2), (w3, b3) = parameters
    for w, b in ((w1, b1), (w2, b2)):
        x = relu(xp, convolved(xp, x, w) + b)
        n, height, width, channels = sizes(x)
        x = largest(x.reshape((n, height // 2, 2, width // 2, 2, channels)), (2, 4))[:, :, 0, :, 0]
    return cross_entropy(xp, x.reshape((sizes(x)[0], -1)) @ w3 + b3, labels, rows)


def normed(xp: Any, x: Any, gain: Any, shift: Any) -> Any:
    off = x - xp.mean(x, -1)[..., None]
    return off / xp.sqrt(xp.mean(off**2, -1)[..., None] + 1e-5) * gain + shift


def attended(xp: Any, x: Any, weights: Any, heads: int = 4) -> Any:
    wq, wk, wv, wo = weights
    batch, steps, size = sizes(x)

    def split(w: Any) -> Any:
        return xp.swapaxes((x @ w).reshape((batch, steps, heads, size // heads)), 1, 2)

    q, k, v = split(wq), split(wk), split(wv)
    scores = q @ xp.swapaxes(k, 2, 3) / math.sqrt(size // heads)
    shares = xp.exp(scores - largest(scores, -1))
    shares = shares / xp.sum(shares, -1)[..., None]
    return xp.swapaxes(shares @ v, 1, 2).reshape((batch, steps, size)) @ wo


def attention(xp: Any, parameters: Any, x: Any) -> Any:
    *weights, gain, shift = parameters
    return xp.mean(normed(xp, x + attended(xp, x, weights), gain, shift) ** 2)


def transformer(xp: Any, layers: Any, x: Any) -> Any:
    for attending, (gain1, shift1, gain2, shift2), (w1, b1, w2, b2) in layers:
        x = x + attended(xp, normed(xp, x, gain1, shift1), attending)
        h = normed(xp, x, gain2, shift2) @ w1 + b1
        x = x + (0.5 * h * (1.0 + xp.tanh(0.7978845608 * (h + 0.044715 * h**3)))) @ w2 + b2
    return xp.mean(x**2)


def _dense(seed: int, *sizes: int, dtype: str = "float32") -> list[Any]:
    return [
        (drawn(seed + i, m, n, dtype=dtype) / np.sqrt(m).astype(dtype), np.zeros(n, dtype))
        for i, (m, n) in enumerate(itertools.pairwise(sizes))
    ]


def _square(seed: int, count: int, size: int, dtype: str) -> list[Any]:
    return [drawn(seed + i, size, size, dtype=dtype) / np.sqrt(size).astype(dtype) for i in range(count)]


def _attention() -> tuple[Any, ...]:
    return [*_square(10, 4, 64, "float64"), np.ones(64), np.zeros(64)], drawn(20, 8, 128, 64)


def _transformer(count: int, size: int) -> tuple[Any, ...]:
    layers = []
    for i in range(count):
        (w1, b1), (w2, b2) = _dense(30 + i, size, 4 * size, size)
        norms = [f(size, "float32") for f in (np.ones, np.zeros, np.ones, np.zeros)]
        layers.append([_square(40 + 9 * i, 4, size, "float32"), norms, [w1, b1, w2, b2]])
    return layers, drawn(90, 8, 64, size, dtype="float32")


def _labelled(z: Any) -> tuple[Any, ...]:
    n, count = z.shape
    return z, _labels(n, count), np.arange(n)


def _perceptron() -> tuple[Any, ...]:
    images = drawn(12, 128, 784, dtype="float32")
    return _dense(11, 784, 256, 128, 10), images, _labels(128, 10), np.arange(128)


def _images(n: int) -> tuple[Any, ...]:
    parameters = [
        (drawn(50, 3, 3, 1, 8, dtype="float32") / np.float32(3), np.zeros(8, "float32")),
        (drawn(51, 4, 4, 8, 16, dtype="float32") / np.float32(12), np.zeros(16, "float32")),
        *_dense(52, 16 * 25, 10),
    ]
    return parameters, drawn(53, n, 28, 28, 1, dtype="float32"), _labels(n, 10), np.arange(n)


def _labels(n: int, count: int) -> Any:
    return np.random.default_rng(9).integers(0, count, n)


# -- statistics --------------------------------------------------------------------------------------------------------
def logistic(xp: Any, w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    return xp.mean(relu(xp, z) + xp.log1p(xp.exp(-abs(z))) - y * z) + 1e-3 * xp.sum(w**2)


def gradient_and_product(module: Any, fun: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient, and the Hessian times a vector, which is the last argument."""

    def both(w: Any, *rest: Any) -> Any:
        *data, v = rest
        first = module.grad(fun)

        def along(w: Any) -> Any:
            g = first(w, *data)
            return (g * v).sum(), g

        (_, g), product = module.value_and_grad(along, has_aux=True)(w)
        return g, product

    return both


def hamiltonian(module: Any, fun: Callable[..., Any]) -> Callable[..., Any]:
    """Where 20 leapfrog steps of Hamiltonian Monte Carlo lead from w with momentum p, and the energy there."""

    def trajectory(w: Any, x: Any, y: Any, p: Any) -> Any:
        value_and_grad = module.value_and_grad(lambda w: 100.0 * fun(w, x, y))
        value, g = value_and_grad(w)
        for _ in range(20):
            p = p - 0.01 * g
            w = w + 0.02 * p
            value, g = value_and_grad(w)
            p = p - 0.01 * g
        return value + 0.5 * (p * p).sum(), w

    return trajectory


def gaussian_process(xp: Any, log_scales: Any, squares: Any, y: Any, one: Any) -> Any:
    """Negative log marginal likelihood; scales: amplitude, length, noise. `squares` are of the distances."""
    scales = xp.exp(log_scales)
    covariance = scales[0] * xp.exp(-0.5 * squares / scales[1]) + scales[2] * one
    lower = xp.linalg.cholesky(covariance)
    z = solved_lower(xp, lower, y)
    return 0.5 * xp.sum(z**2) + xp.sum(xp.log(xp.diagonal(lower)))


def _process(n: int) -> tuple[Any, ...]:
    x = drawn(60, n, 3)
    squares = np.sum((x[:, None] - x[None]) ** 2, -1)
    return np.log(np.array([1.5, 0.8, 0.3])), squares, np.sin(x[:, 0]) + 0.1 * drawn(61, n), np.eye(n)


def bodies(xp: Any, x: Any, mass: Any) -> Any:
    """The potential energy of bodies that attract each other, softened."""
    off = x[:, None, :] - x[None, :, :]
    distance = xp.sqrt(xp.sum(off**2, -1) + 1e-2)
    return -0.5 * xp.sum(mass[:, None] * mass / distance)


def bodies_by_hand(x: Any, mass: Any) -> Any:
    value, gradient = 0.0, np.zeros_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[0]):
            a, b, c = x[i, 0] - x[j, 0], x[i, 1] - x[j, 1], x[i, 2] - x[j, 2]
            r2 = a * a + b * b + c * c + 1e-2
            r = np.sqrt(r2)
            share = mass[i] * mass[j] / r
            value -= 0.5 * share
            gradient[i, 0] += share / r2 * a
            gradient[i, 1] += share / r2 * b
            gradient[i, 2] += share / r2 * c
    return value, gradient


def chain_by_hand(x: Any, w: Any, b: Any) -> Any:
    value, gradient = x[0] * 0, np.empty_like(x)
    for i in range(x.size):
        t, e = np.tanh(x[i] * w[i] + b[i]), np.exp(-x[i] * x[i])
        value += t * e
        gradient[i] = (1 - t * t) * w[i] * e - 2 * x[i] * t * e
    return value, gradient


def _chain(n: int, dtype: str) -> tuple[Any, ...]:
    return tuple(drawn(70 + i, n, dtype=dtype) for i in range(3))


def _market(n: int, dtype: str) -> tuple[Any, ...]:
    u = np.random.default_rng(80).random((4, n)).astype(dtype)
    return (80 + 40 * u[0], 0.1 + 0.4 * u[1], 0.2 + 2 * u[2]), 80 + 40 * u[3], 0.03


def _regression() -> tuple[Any, ...]:
    x = drawn(81, 10_000, 50)
    return 0.1 * drawn(82, 50), x, (x @ drawn(83, 50) > 0).astype(float)


def _curved() -> tuple[Any, ...]:
    return *_regression(), drawn(13, 50)


def _bodies(n: int) -> tuple[Any, ...]:
    return drawn(14, n, 3), np.ones(n)


def _posterior() -> tuple[Any, ...]:
    x = drawn(84, 1000, 20)
    return 0.1 * drawn(85, 20), x, (x @ drawn(86, 20) > 0).astype(float), drawn(87, 20)


def _hessian(module: Any, fun: Callable[..., Any]) -> Callable[..., Any]:
    return module.hessian(fun)  # type: ignore[no-any-return]


def _lstm(steps: int, batch: int, size: int, dtype: str) -> Workload:
    name = f"LSTM, {steps} steps, batch {batch}, {size} hidden, {dtype}"
    data = functools.partial(sequence, steps, batch, size, dtype)
    return Workload(name, lstm, data, in_numpy=lstm_by_hand, iterations=steps)


def workloads(quick: bool) -> list[Workload]:
    """All workloads; `quick` leaves out sizes that take long and say little new."""
    lengths = (1_000, 1_000_000) if quick else (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
    results = [
        Workload("Rosenbrock, 10 variables", rosenbrock, lambda: (drawn(1, 10),)),
        Workload("a function of 3 numbers", three, lambda: (drawn(2, 3),)),
        Workload("Hessian, 50 variables", entangled, lambda: (drawn(3, 50), drawn(4, 50, 50) / 7), _hessian),
        Workload("third derivative of a deep chain, n = 1e5", deep, lambda: (drawn(5, 100_000),), third),
        Workload("softmax cross-entropy, 4096 by 1000", cross_entropy, lambda: _labelled(drawn(6, 4096, 1000))),
        Workload("k-means, 10,000 points, 20 centers", clusters, lambda: (drawn(7, 20, 8), drawn(8, 10_000, 8))),
        Workload("bundle adjustment, 10,000 observations", reprojection, lambda: _bundle(10_000)),
        Workload("MLP 784-256-128-10, batch 128, float32", perceptron, _perceptron),
        Workload("convnet, batch 32, float32", convnet, lambda: _images(32)),
        Workload("attention block, 8 by 128 by 64, 4 heads", attention, _attention),
        Workload("transformer, 4 layers, 8 by 64 by 128, float32", transformer, lambda: _transformer(4, 128)),
        Workload("logistic regression, 10,000 by 50", logistic, _regression),
        Workload("logistic regression, gradient and Hessian product", logistic, _curved, gradient_and_product),
        Workload("HMC, 20 leapfrog steps, 1,000 by 20", logistic, _posterior, hamiltonian),
        _lstm(64, 16, 128, "float32"),
        Workload("LSTM of ADBench, 256 characters", characters, lambda: text(256, 14), iterations=256),
        Workload(
            "heat equation in place, 512 by 512, 100 iterations",
            heat,
            lambda: (drawn(8, 512, 512),),
            None,
            heat_by_hand,
            iterations=100,
        ),
        Workload("Gaussian process, n = 500", gaussian_process, lambda: _process(500)),
    ]
    for dtype, n in itertools.product(("float64", "float32"), lengths):
        data = functools.partial(_chain, n, dtype)
        results.append(Workload(f"elementwise chain, n = {n:,}, {dtype}", chain, data, None, chain_by_hand))
    for dtype in ("float64", "float32"):
        data = functools.partial(_market, 1_000_000, dtype)
        results.append(Workload(f"Black-Scholes, n = 1e6, {dtype}, greeks", black_scholes, data))
        results.append(Workload(f"Black-Scholes, n = 1e6, {dtype}, second order", black_scholes, data, greeks))
    for d, k, n in ((10, 25, 1_000), (10, 25, 10_000), (64, 25, 1_000)):
        data = functools.partial(_mixture, d, k, n)
        results.append(Workload(f"Gaussian mixture, d = {d}, K = {k}, n = {n:,}", mixture, data))
    for n in (100, 1_000):
        data = functools.partial(_bodies, n)
        results.append(Workload(f"{n:,} bodies", bodies, data, None, bodies_by_hand))
    return results
