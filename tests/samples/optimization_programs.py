"""Small programs that together are changed by each optimization of graphs and plans (`tracegrad.optimizations`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tracegrad as tg

__all__ = ["PROGRAMS", "Program"]


class Program(NamedTuple):
    """A function with a scalar result, which is differentiated by its first argument; its arguments, the optimizations
    that change its graph or plan, and settings."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    shows: tuple[str, ...]
    settings: dict[str, Any]


PROGRAMS: dict[str, Program] = {}


def program(*args: Any, shows: str = "", **settings: Any) -> Callable[[Any], Any]:
    """Enter a function into the table."""

    def enter(fun: Any) -> Any:
        PROGRAMS[fun.__name__] = Program(fun, args, tuple(shows.split()), settings)
        return fun

    return enter


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def positive(*shape: int, seed: int = 0) -> Any:
    return 0.5 + np.random.default_rng(seed).random(size=shape)


# -- elementwise -----------------------------------------------------------------------------------------------------
@program(
    normal(1000),
    1.3,
    -0.2,
    shows="simplification algebra constant-folding shape-rules kernel-fusion vectorization prefetch fma-contraction",
)
def chain(x: Any, w: float, b: float) -> Any:
    return np.sum(np.tanh(x * w + b) * np.exp(-(x**2)) + x / 4.0)


@program(normal(300, 65), normal(65), shows="inlining unroll-and-jam buffer-reuse arena-reuse parallel-kernels")
def softmax(x: Any, w: Any) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return np.sum(e / np.sum(e, axis=1, keepdims=True) * w)


@program(normal(40, 30), normal(30, 40))
def transposed_sum(a: Any, b: Any) -> Any:
    return np.sum(np.sin(a + b.T) * a) + np.sum((a.T * b) ** 2)


@program(normal(200, 3), shows="multi-row-vectors")
def short_rows(x: Any) -> Any:
    return np.sum(np.sqrt(np.sum(x * x, axis=1))) + np.sum(np.max(x, axis=1))


@program(normal(50), normal(50, seed=1))
def complex_numbers(x: Any, y: Any) -> Any:
    z = x + 1j * y
    return np.sum(np.abs(z * z + 2j * z) ** 2)


@program(normal(20, 33), shows="redundant-selects loop-coalescing")
def masks(x: Any) -> Any:
    inside = np.logical_and(x > 0, np.logical_not(np.logical_not(x < 1.5)))
    return np.sum(np.where(inside, np.log(np.where(inside, x, 1.0)), 0.0))


@program(normal(60), shows="like-terms")
def constants(x: Any) -> Any:
    y = np.full(60, 2.0) * np.ones(60) * x + np.zeros(60)
    return np.sum(y * y + x + x + 2.0 * x - x)


# -- data movement ---------------------------------------------------------------------------------------------------
@program(normal(30, 40))
def stencil(u: Any) -> Any:
    v = np.pad(u, 1)
    around = v[2:, 1:-1] + v[:-2, 1:-1] + v[1:-1, 2:] + v[1:-1, :-2]
    return np.sum(np.roll(around, 3, axis=0) * u)


@program(normal(50, 9), normal(50, 9, seed=1), shows="interior-splitting loop-splitting")
def pieces(x: Any, y: Any) -> Any:
    rows = np.concatenate([x, np.sin(y), x * y])
    return np.sum(np.stack([rows[:, 0], rows[:, 3]], axis=1) ** 2) + np.sum(rows[10:120] ** 3)


@program(normal(3000, 8), shows="operand-packing")
def column(x: Any) -> Any:
    y = x[:, 3:4]
    return np.sum(np.exp(y)) * np.max(y) + np.sum(x.reshape(100, 30, 8).transpose(2, 1, 0)[0] ** 2)


@program(normal(200, 20), np.arange(200) % 7)
def cross_entropy(z: Any, labels: Any) -> Any:
    top = np.max(z, axis=1)
    terms = top + np.log(np.sum(np.exp(z - top[:, None]), axis=1)) - z[np.arange(200), labels]
    return np.mean(terms)


@program(normal(64, 20), np.arange(90) * 7 % 64, shows="scatter-accumulation loop-interchange")
def embedding(table: Any, rows: Any) -> Any:
    return np.sum(np.tanh(table[rows])) + np.sum(np.exp(table))


@program(normal(20, 30), shows="scalar-replacement")
def running_sums(x: Any) -> Any:
    return np.sum(np.cumsum(x, axis=1) ** 2) + np.max(np.cumsum(x * x))


@program(normal(30, 300))
def searches(x: Any) -> Any:
    some = np.any(x > 2.5, axis=1)
    first = np.argmax(x, axis=1)
    return np.sum(np.where(some, np.max(x, axis=1), 0.0) * first)


@program(normal(12, 25), shows="native-sorting")
def sorted_rows(x: Any) -> Any:
    order = np.argsort(x[:, 0])
    return np.sum(np.sort(x, axis=1) * np.arange(25.0)) + np.sum(x[order] * np.arange(12.0)[:, None])


# -- linear algebra --------------------------------------------------------------------------------------------------
@program([normal(16, 24) / 4, normal(24, 10) / 4], normal(32, 16), normal(32, 10), shows="native-gemm")
def network(w: Any, x: Any, y: Any) -> Any:
    hidden = np.tanh(x @ w[0]) + 0.1 * (x @ w[0])
    return np.mean((hidden @ w[1] - y) ** 2)


@program(normal(3, 3), normal(3, 3), normal(3), shows="small-matmul full-unrolling")
def small_matrices(a: Any, b: Any, v: Any) -> Any:
    return np.sum(np.sin(a @ b @ a)) + v @ (a @ v)


@program(normal(9, 20, 12), normal(9, 20, 15), shows="long-products transposed-products gemm-accumulation")
def stacked_products(x: Any, y: Any) -> Any:
    return np.sum(np.sum(np.swapaxes(x, 1, 2) @ y, axis=0) ** 2) + np.sum((np.swapaxes(y, 1, 2) @ x) ** 3)


@program(normal(20), normal(20, 30), normal(20, seed=2), shows="diagonal-products outer-products")
def structured(d: Any, a: Any, u: Any) -> Any:
    return np.sum((np.diag(d) @ a) ** 2) + np.sum((np.outer(u, d) * np.outer(d, d)) @ a)


@program(
    normal(9, 9) / 9 + 2 * np.eye(9),
    normal(9),
    shows="triangular-solves shared-factorizations native-factorizations conflict-blocking",
)
def systems(a: Any, b: Any) -> Any:
    s = a @ a.T
    low = np.linalg.cholesky(s)
    return np.sum(np.linalg.solve(low, b)) + np.sum(np.linalg.solve(a, b)) + np.linalg.slogdet(a)[1]


# -- loops -----------------------------------------------------------------------------------------------------------
@program(np.linspace(0.1, 0.9, 700), shows="rerolling strip-mining loop-fusion in-place-updates")
def elementwise_loop(x: Any) -> Any:
    for i in range(30):
        x = x + 0.1 * i * np.sin(x) * (1.0 - x)
    return np.sum(x)


@program(0.1 * normal(6, 20), normal(30, 20) / 9)
def recurrent(h: Any, w: Any) -> Any:
    for _ in range(12):
        h = np.tanh(h @ (w.T @ w) / 30 + h) + np.cos(h) * 0.1
    return np.sum(h)


@program(normal(30, 40) / 6, normal(40, 16, 30), shows="batched-products region-simplification")
def rows_times_matrix(w: Any, x: Any) -> Any:
    total = 0.0
    for row in x:
        total = total + np.sum(np.tanh(row @ w))
    return total


@program(normal(20, 15), shows="wavefront-tiling rerolling")
def heat(u: Any) -> Any:
    u = u.copy()
    for _ in range(20):
        u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return np.sum(u**2)


@program(0.1 * normal(14, 14) + np.eye(14), shows="window-rules cotangent-sums bound-tightening loop-capture")
def triangular(a: Any) -> Any:
    low = a @ a.T
    for k in range(14):
        low[k, k] = np.sqrt(low[k, k])
        low[k + 1 :, k] = low[k + 1 :, k] / low[k, k]
        low[k + 1 :, k + 1 :] -= np.outer(low[k + 1 :, k], low[k + 1 :, k])
    return np.sum(np.log(np.diag(low)))


@program(9.0, shows="loop-capture")
def newton(a: float) -> Any:
    x = a
    while abs(x * x - a) > 1e-12 * a:
        x = (x + a / x) / 2 if x > 0.5 else x + 1.0
    return x


@program(normal(40), shows="appended-lists if-conversion")
def collected(x: Any) -> Any:
    values, total = [], 0.0
    for i in range(40):
        if x[i] > 0:
            values.append(x[i] * i)
        total = total + x[i]
    return sum(values) * total


@program(normal(40, 50), normal(50), shows="invariant-code-motion parallel-iterations")
def mapped(x: Any, v: Any) -> Any:
    return np.sum(tg.map(lambda row: np.sort(row) * v + np.cumsum(row), x))


@program(np.linspace(0.1, 0.9, 50), shows="loop-folding")
def long_loop(x: Any) -> Any:
    for i in range(300):
        x = x + 1e-3 * np.sin(x) * i**0.5
    return np.sum(x)


@program(np.random.default_rng(3).random(6000), shows="loop-tiling")
def blocks(x: Any) -> Any:
    for _ in range(100):
        x = x + 0.01 * (x - x * x * x)
    return np.sum(x * x)


@program(normal(14, 14, 3), normal(3, 3, 3, 4, seed=1), shows="convolution-idiom")
def convolution(x: Any, w: Any) -> Any:
    total = 0.0
    for i in range(3):
        for j in range(3):
            total = total + x[i : i + 12, j : j + 12] @ w[i, j]
    return np.sum(np.tanh(total))


@program(normal(2000, 40), shows="strip-fusion")
def layer_norm(x: Any) -> Any:
    d = x - np.mean(x, axis=1, keepdims=True)
    return np.sum(np.tanh(d / np.sqrt(np.mean(d * d, axis=1, keepdims=True) + 1e-5)) ** 2)


@program(normal(200, 20), np.arange(200) % 7, normal(200), shows="one-hot-inlining")
def weighted_cross_entropy(z: Any, labels: Any, weights: Any) -> Any:
    d = z - np.max(z, axis=1, keepdims=True)
    return np.sum(weights * (np.log(np.sum(np.exp(d), axis=1)) - d[np.arange(len(z)), labels]))


@program(normal(40, 65), shows="fused-arg-reduction")
def greatest(x: Any) -> Any:
    return np.sum(x[np.arange(40), np.argmax(x, axis=1)] ** 2)


@program(normal(50), normal(20, 50), shows="broadcast-sinking")
def repeated_row(v: Any, x: Any) -> Any:
    return np.sum(np.exp(np.sin(np.broadcast_to(v, (20, 50))) * np.broadcast_to(v, (20, 50))) * x)


@program(normal(30), normal(30, seed=1), shows="boolean-algebra")
def logic(x: Any, y: Any) -> Any:
    a, b = x > 0, y > 0
    parts = np.logical_or(np.logical_and(a, b), np.logical_and(a, np.logical_not(b)))
    return np.sum(np.where(np.logical_or(parts, np.logical_and(b, parts)), x * x, x))


@program(normal(12, 12), np.arange(12) * 5 % 12)
def walk(a: Any, following: Any) -> Any:
    i, total = 3, 0.0
    for j in range(12):
        total = total + np.sin(a[i][j]) * a[j, i]
        i = following[i]
    return total


@program(normal(2000), 0.9 + 0.1 * positive(2000), shows="last-iteration-sinking rematerialization")
def last_value(w: Any, a: Any) -> Any:
    def body(carry: Any, _: Any) -> Any:
        w, _ = carry
        w = w * a
        return (w, np.exp(w)), None

    (w, y), _ = tg.scan(body, (w, w), length=20)
    return np.sum(w * y)


@program(0.02 * normal(30, 30) @ normal(30, 30).T + np.eye(30), shows="residual-elimination if-conversion")
def cholesky_by_elements(a: Any) -> Any:
    low = np.zeros_like(a)
    for i in range(30):
        for j in range(i + 1):
            s = a[i, j] - low[i, :j] @ low[j, :j]
            if i == j:
                low[i, j] = np.sqrt(s)
            else:
                low[i, j] = s / low[j, j]
    return np.sum(np.log(np.diag(low)))


@program(np.linspace(0.3, 0.9, 4), normal(100, 4), shows="segment-fusion checkpointing", loop_memory=2000)
def segments(v: Any, rows: Any) -> Any:
    def turn(c: Any, row: Any) -> Any:
        return 0.9 * np.sin(c + row), c[0] * row[1]

    last, ys = tg.scan(turn, v, rows)
    return np.sum(last) + np.sum(ys)


@program(normal(3))
def random_walk(x: Any) -> Any:
    rng = np.random.default_rng(7)
    for _ in range(40):
        x = x + 0.1 * rng.normal(size=3) * np.sin(x)
    return np.sum(x)


@program(np.array([1.0, 0.5]), shows="appended-lists induction-variables")
def trajectory(p: Any) -> Any:
    s, seen = p * 1.0, []
    for i in range(200):
        s = s + 0.001 * np.sin(s + 0.01 * i) * p
        seen.append(s)
    return np.sum(np.array(seen)[::7] ** 2)


@program(np.array([1.0, 0.5]), [0.1 * np.sin(i) for i in range(200)], shows="indexed-lists scanned-reads")
def listed_rates(p: Any, rates: Any) -> Any:
    s = p * 1.0
    for i in range(200):
        s = s + 0.001 * np.sin(s + 0.01 * rates[i]) * p * np.cos(s)
    return np.sum(s)


@program(normal(50) + 1j * normal(50, seed=1), shows="interleaved-access")
def complex_argument(z: Any) -> Any:
    return np.sum(np.abs(z * z + 2j * z) ** 2)


@program(normal(40, 30), normal(30, 40), shows="transpose-tiling")
def transposed(a: Any, b: Any) -> Any:
    return np.sum(a.T * b * 3.0)


@program(normal(30), normal(30, 300), shows="early-exit")
def any_of_rows(w: Any, x: Any) -> Any:
    return np.sum(np.where(np.any(x > 2.5, axis=1), w * w, w))


@program(normal(12, 12), np.array(3), np.array(5), shows="row-reads")
def element(a: Any, i: Any, j: Any) -> Any:
    row = np.take(a, i, axis=0)
    return np.sin(np.take(row, j)) * np.take(row, j)


@program([1.0 + positive(2000, seed=k) for k in range(4)], shows="dead-store-elimination")
def prices(given: Any) -> Any:
    s, k, t, v = given
    sigma = v * np.sqrt(t)
    d = (np.log(s / k) + 0.5 * v * v * t) / sigma
    return np.sum(s * np.tanh(d) - k * np.tanh(d - sigma) * np.exp(-t))


@program(0.1 * normal(30, 30) + np.eye(30), shows="ragged-padding")
def triangular_system(a: Any) -> Any:
    x = np.zeros(30)
    for i in range(30):
        x[i] = (1.0 - a[i, :i] @ x[:i]) / a[i, i]
    return np.sum(x**2)


@program(normal(30, 30), shows="hoisted-reads")
def one_row(a: Any) -> Any:
    return tg.fori_loop(0, 12, lambda i, total: total + np.sum(np.sin(a[3]) * total), 0.1)
