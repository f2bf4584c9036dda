"""Slices whose bounds are numbers of a loop, `A[i, :j]`: against NumPy's loops, and what is refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import ShapeError
from tracegrad.numpy_api.registry import FUNCTIONS, UFUNCS

N = 5
rng = np.random.default_rng(0)
X, A = rng.normal(size=N), rng.normal(size=(N, N))
SPD = A @ A.T + N * np.eye(N)
Loop = Callable[..., Any]


def plain(lower: int, upper: int, body: Any, value: Any) -> Any:
    """What `fori_loop` means."""
    for i in range(lower, upper):
        value = body(i, value)
    return value


# -- factorizations ----------------------------------------------------------------------------------------------
def cholesky(loop: Loop, A: Any) -> Any:
    def row(i: Any, L: Any) -> Any:
        def column(j: Any, L: Any) -> Any:
            L = L.copy()
            L[i, j] = (A[i, j] - L[i, :j] @ L[j, :j]) / L[j, j]
            return L

        L = loop(0, i, column, L).copy()
        L[i, i] = np.sqrt(A[i, i] - L[i, :i] @ L[i, :i])
        return L

    return loop(0, len(A), row, np.zeros(A.shape))


def cholesky_by_columns(loop: Loop, A: Any) -> Any:
    def column(j: Any, L: Any) -> Any:
        L = L.copy()
        L[j:, j] = (A[j:, j] - L[j:, :j] @ L[j, :j]) / np.sqrt(A[j, j] - np.sum(L[j, :j] ** 2))
        return L

    return loop(0, len(A), column, np.zeros(A.shape))


def lu_by_rows(loop: Loop, A: Any) -> Any:
    def step(k: Any, A: Any) -> Any:
        def row(i: Any, A: Any) -> Any:
            A = A.copy()
            A[i, k] /= A[k, k]
            A[i, k + 1 :] -= A[i, k] * A[k, k + 1 :]
            return A

        return loop(k + 1, len(A), row, A)

    return loop(0, len(A), step, A)


def lu_by_products(loop: Loop, A: Any) -> Any:
    def step(k: Any, A: Any) -> Any:
        A = A.copy()
        p = k + np.argmax(np.abs(A[k:, k]))
        row = A[p].copy()
        A[p] = A[k]
        A[k] = row
        A[k + 1 :, k] /= A[k, k]
        A[k + 1 :, k + 1 :] -= np.outer(A[k + 1 :, k], A[k, k + 1 :])
        return A

    return loop(0, len(A), step, A)


def two_triangles(loop: Loop, A: Any) -> Any:
    def forwards(i: Any, x: Any) -> Any:
        x = x.copy()
        x[i] = (A[0, i] ** 2 - np.dot(A[i, :i], x[:i])) / A[i, i]
        return x

    def backwards(t: Any, y: Any) -> Any:
        i, y = N - 1 - t, y.copy()
        y[i] = (x[i] - A[i, i + 1 :] @ y[i + 1 :]) / A[i, i]
        return y

    x = loop(0, N, forwards, np.zeros(N))
    return loop(0, N, backwards, np.zeros(N))


def gram_schmidt(loop: Loop, A: Any) -> Any:
    def column(j: Any, Q: Any) -> Any:
        Q = Q.copy()
        v = A[:, j] - Q[:, :j] @ (Q[:, :j].T @ A[:, j])
        Q[:, j] = v / np.linalg.norm(v)
        Q[:, j + 1 :] -= 0.1 * np.outer(Q[:, j], Q[:, j] @ Q[:, j + 1 :])
        return Q

    return loop(0, len(A), column, A)


FACTORIZATIONS = (cholesky, cholesky_by_columns, lu_by_rows, lu_by_products, two_triangles, gram_schmidt)


def assert_gradient(f: Any, of: Any, x: Any) -> Any:
    """The gradient of `f`, along a direction, against finite differences of the plain function `of`."""
    v = np.random.default_rng(1).normal(size=x.shape)
    result = np.sum(tg.grad(f)(x) * v)
    assert np.allclose(result, (of(x + 1e-6 * v) - of(x - 1e-6 * v)) / 2e-6, rtol=1e-5, atol=1e-7)
    return v, result


@pytest.mark.parametrize("factorize", FACTORIZATIONS, ids=lambda f: f.__name__)
def test_factorizations_and_their_gradients(factorize: Any) -> None:
    wanted = factorize(plain, SPD)
    weights = rng.normal(size=wanted.shape)

    def loss(A: Any) -> Any:
        L = factorize(tg.fori_loop, A)
        return np.sum(weights * L**2), L

    _, L = tg.value_and_grad(loss, has_aux=True)(SPD)[0]
    assert np.allclose(L, wanted, rtol=1e-12, atol=1e-13)
    assert_gradient(lambda A: loss(A)[0], lambda A: np.sum(weights * factorize(plain, A) ** 2), SPD)


@pytest.mark.parametrize("factorize", [cholesky, lu_by_products], ids=lambda f: f.__name__)
def test_derivatives_in_the_other_mode_and_of_the_second_order(factorize: Any) -> None:
    def loss(A: Any) -> Any:
        return np.sum(factorize(tg.fori_loop, A) ** 2)

    derivative, v = tg.grad(loss), rng.normal(size=A.shape)
    assert np.allclose(tg.jvp(loss, (SPD,), (v,))[1], np.sum(derivative(SPD) * v))
    bent = tg.jvp(derivative, (SPD,), (v,))[1]
    change = (derivative(SPD + 1e-6 * v) - derivative(SPD - 1e-6 * v)) / 2e-6
    assert np.allclose(bent, change, rtol=1e-5, atol=1e-6)


def test_the_program_of_a_factorization_is_the_same_for_all_sizes() -> None:
    counts = set()
    for n in (6, 60):
        A = rng.normal(size=(n, n)) + n * np.eye(n)
        text = str(tg.trace(lambda A: lu_by_products(tg.fori_loop, A)).explain(A))
        counts.add(re.search(r"graph after the passes, (\d+) nodes", text).group(1))  # type: ignore[union-attr]
    assert len(counts) == 1


# -- what is read ------------------------------------------------------------------------------------------------
# Each of `x`, `A` and the number `i` of the iteration, from 1 to N - 1.
READS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "windows": lambda x, A, i: np.sum(x[i - 1 : i + 1] * np.array([2.0, 3.0])) * x[0],
    "counted from the end": lambda x, A, i: np.sum(x[:-i]) + 2 * np.sum(x[-i:]) + np.sum(x[i - 4 :]),
    "beyond the ends": lambda x, A, i: np.sum(x[i - 3 : i + 3]) + np.sum(x[2 * i :]) + np.sum(x[: 3 * i]),
    "backwards": lambda x, A, i: x[: i + 1] @ x[i::-1] + np.sum(x[N:i:-1] ** 2) + x[:i] @ x[:i][::-1],
    "from number to number": lambda x, A, i: np.sum(np.sin(x[i : 2 * i + 1])) + A[i // 2 : i, 0] @ x[i // 2 : i],
    "first and last": lambda x, A, i: x[: i + 1] @ x[N - i - 1 :] + np.sum(x[i:] * x[: N - i]),
    "means": lambda x, A, i: np.mean(x[:i]) + np.var(x[i - 1 :]) + np.std(x[: i + 1]) + np.mean(A[:i, i:]),
    "extrema": lambda x, A, i: np.max(x[:i]) - x[i - 1 :].min() + x[np.argmax(x[:i])] + np.argmin(x[i:]),
    "products": lambda x, A, i: np.prod(x[:i]) + np.prod(x[i + 1 :]) + np.sum(np.cumsum(x[i:]) ** 2),
    "norms": lambda x, A, i: np.linalg.norm(x[i:]) + np.linalg.norm(A[i:, :i]),
    "truths": lambda x, A, i: 1.0 * np.any(x[:i] > 1) + np.all(x[i + 1 :] < 1),
    "choices": lambda x, A, i: np.sum(np.where(x[:i] > 0, x[:i], 0.1 * x[:i])) + np.sum(np.clip(x[i:], -1, 1)),
    "domains": lambda x, A, i: np.sum(np.log(x[i + 1 :] ** 2) + 1 / x[i + 1 :]) + np.sum(np.sqrt(x[:i] ** 2)),
    "broadcasting": lambda x, A, i: np.sum(A[:i] * x + A[:i, :1]) + np.sum(x[:i, None] * x[None, :i] * A[:i, :i]),
    "outer": lambda x, A, i: np.sum(np.outer(x[:i], x[i:]) * A[:i, i:]) + np.sum(A[1:, i:].T[:, 1]),
    "matrices": lambda x, A, i: np.sum(A[:, :i] @ A[:i] + A[:, i:] @ A[i:]) + np.sum(A[i:, :i].T @ A[i:]),
    "vectors": lambda x, A, i: np.sum(np.dot(A[i:, :i], x[:i])) + np.inner(x[i:], A[i, i:]) + np.vdot(x[:i], x[:i]),
    "sizes": lambda x, A, i: x[:i].size * np.sum(x[:i]) + A[i:].shape[0] + np.sum(np.ones_like(A[i:, :i]) * x[0]),
    "elements": lambda x, A, i: x[i:][0] + 2 * x[: i + 1][-1] + A[i:, : i + 1][0, -1] + A[:i][..., i].sum(),
    "slices of slices": lambda x, A, i: (
        np.sum(x[i:][1:])
        + np.sum(x[:i][:-1] * x[:i][1:])
        + x[: i + 1][-1:][0]
        + np.sum(A[i:, : i + 1][:1, -1:])
        + np.sum((x[:i][1:] - x[:i][:-1]) ** 2)
        + np.sum(x[i:][:2])
        + np.sum(x[i:][2:4])
        + np.sum(A[i:, i:][1:, 1:])
    ),
    "an element of a slice": lambda x, A, i: tg.fori_loop(0, i, lambda j, s: s + x[:i][j] * x[N - i :][j - i], 0.0),
    "of an inner loop": lambda x, A, i: tg.fori_loop(0, i, lambda j, s: s + A[i, j:i] @ x[j:i] * np.sum(x[:i]), 0.0),
}


def all_reads(z: Any, loop: Loop = tg.fori_loop) -> Any:
    def turn(i: Any, total: Any) -> Any:
        return total + (i + 1) * np.stack([1.0 * read(z[0], z[1:], i) for read in READS.values()])

    return loop(1, N, turn, np.zeros(len(READS)))


def test_slices_are_read_as_numpy_reads_them() -> None:
    z = np.concatenate([X[None], A])
    wanted, result = all_reads(z, plain), tg.trace(all_reads)(z)
    assert {name: (x, y) for name, x, y in zip(READS, result, wanted) if not np.isclose(x, y, rtol=1e-12)} == {}


def test_gradients_of_what_is_read() -> None:
    z, names = np.concatenate([X[None], A]), list(READS)
    rows = tg.jacrev(all_reads)(z)
    for k, name in enumerate(names):
        v = np.random.default_rng(1).normal(size=z.shape)
        wanted = (all_reads(z + 1e-6 * v, plain)[k] - all_reads(z - 1e-6 * v, plain)[k]) / 2e-6
        assert np.isclose(np.sum(rows[k] * v), wanted, rtol=1e-5, atol=1e-6), name


# -- what is written ---------------------------------------------------------------------------------------------
WRITES: list[Callable[[Any, Any, Any], None]] = []
writes = WRITES.append


@writes
def _shifted(y: Any, x: Any, i: Any) -> None:
    y[0, i:] = y[0, : N - i]
    y[0, :i] = 0.5
    y[1:3, i - 1 : i + 1] = y[1:3, i - 1 : i + 1][::-1, ::-1] * 0.5


@writes
def _of_rows(y: Any, x: Any, i: Any) -> None:
    y[i + 1 :] -= np.outer(y[i + 1 :] @ y[i], y[i])
    y[:i, i] = y[i, :i] = x[:i]


@writes
def _from_number_to_number(y: Any, x: Any, i: Any) -> None:
    y[i : 2 * i + 1, i // 2 : i] = 1.0 * i
    y[i : 2 * i + 1, 0] += x[i : 2 * i + 1]
    y[2, i // 2 : i] = x[i // 2 : i] * y[i, i // 2 : i]
    y[i, N:i:-1] *= 2


@writes
def _through_views(y: Any, x: Any, i: Any) -> None:
    row = y[i, :i]
    row *= 2
    row[:] = row + 1
    y[i] = y[i] * 1.5
    copy = row.copy()
    copy *= 100
    y[i, i:] = copy.sum() + row.sum()
    block = y[i:, i:]
    block -= 0.25
    corner = block[0]
    corner *= 3
    transposed = block.T
    y[0] += np.sum(transposed[0])


@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__.strip("_"))
def test_slices_are_written_as_numpy_writes_them(write: Any) -> None:
    def body(i: Any, y: Any, x: Any) -> Any:
        y = y.copy()
        write(y, x, i)
        return y

    def result(z: Any, loop: Loop = tg.fori_loop) -> Any:
        return loop(1, N, lambda i, y: body(i, y, z[0]), z[1:])

    z = np.concatenate([X[None], A])
    assert np.allclose(tg.trace(result)(z), result(z, plain), rtol=1e-13)
    weights = rng.normal(size=A.shape)
    assert_gradient(lambda z: np.sum(weights * result(z)), lambda z: np.sum(weights * result(z, plain)), z)


# -- bounds that are not counters of `fori_loop` -------------------------------------------------------------------
def test_bounds_that_are_rows_or_carried_or_known_to_nothing() -> None:
    @tg.trace
    def found(x: Any, places: Any) -> Any:
        def turn(c: Any, k: Any) -> Any:
            return (c[0] * 2 + 1, c[1] + np.sum(x[: c[0]])), (np.sum(x[k:]), np.sum(x[k : k + 2]))

        return tg.scan(turn, (0, 0.0), places)

    places = np.array([2, -1, 7, -9, 0])
    (_, total), (tails, windows) = found(X, places)
    assert np.allclose(total, sum(X[:k].sum() for k in (0, 1, 3, 7, 15)))
    assert np.allclose(tails, [X[k:].sum() for k in places])
    assert np.allclose(windows, [X[k : k + 2].sum() for k in places])


SLICES: list[Callable[[Any, Any], Any]] = [
    lambda a, b: np.s_[a:b],
    lambda a, b: np.s_[a:],
    lambda a, b: np.s_[:b],
    lambda a, b: np.s_[2:b],
    lambda a, b: np.s_[-3:b],
    lambda a, b: np.s_[a:3],
    lambda a, b: np.s_[a:-1],
    lambda a, b: np.s_[a : a + 2],
]


def test_all_bounds_mean_what_they_mean_in_numpy() -> None:
    x = np.array([1.0, 10.0, 100.0, 1000.0])

    def sliced(a: Any, b: Any) -> list[Any]:
        results = []
        for bounds in SLICES:
            index, y = bounds(a, b), x.copy()
            y[index] *= 3
            y[1:][index] += 0.5
            results.append(np.array([*y, np.sum(np.cumsum(x[index])), np.sum(x[index][1:]), x[index].size]))
        return results

    pairs = np.array([(a, b) for a in range(-6, 7) for b in range(-6, 7)])
    results = tg.trace(lambda pairs: tg.map(lambda p: np.stack(sliced(p[0], p[1])), pairs))(pairs)
    assert np.array_equal(results, [sliced(a, b) for a, b in pairs])


@pytest.mark.parametrize("least", [1, 0])
def test_loops_over_values_are_closed(least: int) -> None:
    def solved(L: Any, b: Any, limit: Any) -> Any:
        x, i = np.zeros(b.shape), least
        while np.sum(x) < limit and i < len(b):
            x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]
            x[i + 1 :] += 0.01 * x[i]
            i += 1
        return x

    L, b = np.abs(SPD), np.linspace(1, 2, N)
    traced, derivative = tg.trace(solved), tg.grad(lambda L, b, limit: np.sum(solved(L, b, limit) ** 2))
    for limit in (0.05, 9.0, 0.2, 0.3, 0.1, 0.4):
        assert np.allclose(traced(L, b, limit), solved(L, b, limit), rtol=1e-13)
        change = 1e-6 * np.ones((N, N))
        wanted = (np.sum(solved(L + change, b, limit) ** 2) - np.sum(solved(L - change, b, limit) ** 2)) / 2e-6
        assert np.allclose(np.sum(derivative(L, b, limit)), wanted, rtol=1e-5, atol=1e-8)
    assert traced.cache_info().traces <= 4


@pytest.mark.parametrize(
    ("body", "traces"),
    [
        (lambda x, i: x[i : i + 2] ** 3, 1),
        (lambda x, i: x[2 * i : 2 * (i + 1), 1] * x[None, i : i + 2, ..., 0], 4),
        (lambda x, i: x[i : i + 2, [0, 1]] * x[i, i : i + 2], 1),
        (lambda x, i: (x[-1 - i : 6 - i] ** 2).sum() * x[i:3] ** 2, 4),
    ],
)
def test_the_start_of_a_slice_between_two_traced_bounds_is_no_guard(body: Any, traces: int) -> None:
    def loss(x: Any, i: Any) -> Any:
        return np.sum(body(x, i) ** 2)

    def written(x: Any, i: Any) -> Any:
        x = x.copy()
        view = x[i : i + 2]
        view += body(x, i).sum()
        x[1, i : i + 2] *= 3
        return x

    functions = tg.trace(loss), tg.grad(loss), tg.trace(written)
    for i in (0, 1, 2, 0, 3):
        x = np.random.default_rng(i).normal(size=(7, 7))
        assert np.allclose(functions[0](x, i), loss(x, i), rtol=1e-13)
        assert np.allclose(functions[2](x, i), written(x, i), rtol=1e-13)
        wanted = [(loss(x + d, i) - loss(x - d, i)) / 2e-6 for d in 1e-6 * np.eye(49).reshape(49, 7, 7)]
        assert np.allclose(functions[1](x, i).ravel(), wanted, rtol=1e-5, atol=1e-6)
    assert all(f.cache_info().traces <= traces for f in functions)


def test_what_was_equal_in_one_iteration_is_not_taken_to_be_equal_in_all() -> None:
    def drifting(x: Any, limit: Any) -> Any:
        total, a, b = 0.0, 1, 1
        while total < limit and b < len(x):
            total = total + x[:a] @ x[:a] + np.sum(x[:b])
            total = total + (x[:a] * x[:b]).sum() if a == b else total + 1.0
            a, b = a + 1, b + 2 if b > 2 else b + 1
        return total

    x, traced = np.linspace(0.1, 1.0, 12), tg.trace(drifting)
    for limit in (0.5, 100.0, 3.0, 7.0):
        assert np.allclose(traced(x, limit), drifting(x, limit))


def test_an_argument_is_a_guard_as_ever() -> None:
    @tg.trace
    def first(x: Any, n: Any) -> Any:
        return tg.fori_loop(0, 3, lambda i, y: y + x[:n], np.zeros(2)), x[:n]

    for n in (2, 1, 2):
        assert np.allclose(first(X, n)[1], X[:n])
    assert np.allclose(first(X, 2)[0], 3 * X[:2])


# -- what is seen when it runs --------------------------------------------------------------------------------------
@tg.trace
def smoothed(x: Any, places: Any) -> Any:
    def turn(total: Any, k: Any) -> Any:
        window, room = x[k : k + 3] * np.array([1.0, 2.0, 1.0]), np.zeros(3)
        room[:] = x[k : k + 3]
        return total + np.sum(window), (np.sum(room), np.max(x[k:]), x[k:][0])

    return tg.scan(turn, 0.0, places)


def test_sizes_that_are_not_known_are_compared_when_they_run() -> None:
    x = X[:4]
    for places in ([0, 1], [1, -4]):
        total, (sums, tops, heads) = smoothed(x, np.array(places))
        assert np.isclose(total, sum((x[k : k + 3] * np.array([1.0, 2.0, 1.0])).sum() for k in places))
        assert np.allclose(sums, [x[k : k + 3].sum() for k in places])
        assert np.allclose(tops, [x[k:].max() for k in places])
        assert np.allclose(heads, [x[k] for k in places])
    gradient = tg.grad(lambda x: smoothed(x, np.array([0, 1]))[0])(x)
    assert np.allclose(gradient, [1.0, 3.0, 3.0, 1.0])
    with pytest.raises(ValueError, match="could not be broadcast"):
        smoothed(x, np.array([0, 2]))


def test_the_greatest_of_nothing_is_an_error() -> None:
    for read, error in ((lambda i: np.max(X[: i - 1]), ValueError), (lambda i: X[: i - 1][0], IndexError)):
        later = tg.trace(lambda n, read=read: tg.fori_loop(n, N, lambda i, s: s + read(i), 0.0))
        assert np.isclose(later(2), plain(2, N, lambda i, s, read=read: s + read(i), 0.0))
        with pytest.raises(error):
            later(1)


# -- what is refused ---------------------------------------------------------------------------------------------
REFUSED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "another order": lambda x, A, i: np.sort(x[:i])[0],
    "another size": lambda x, A, i: np.sum(x[:i] + x[: i + 1]),
    "an array beside it": lambda x, A, i: np.sum(x[:i] * x),
    "product with an array": lambda x, A, i: x[:i] @ x,
    "reshaped": lambda x, A, i: np.sum(A[:i].reshape(-1, 2)[0]),
    "len": lambda x, A, i: len(x[:i]) * 1.0,
    "joined": lambda x, A, i: np.concatenate([x[:i], x[i:]])[0],
    "in steps": lambda x, A, i: np.sum(x[:i:2]),
    "as a number of iterations": lambda x, A, i: sum(v for v in x[:i]),
    "as an index": lambda x, A, i: np.sum(x[(x[:i] > 0).astype(int)]),
    "as a carry": lambda x, A, i: x[:i],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_an_error_that_names_the_line(name: str) -> None:
    with pytest.raises((tg.TraceError, tg.UnsupportedError), match=r"test_dynamic_slice\.py:\d+"):
        tg.trace(lambda x, A: tg.fori_loop(1, N, lambda i, s: s + REFUSED[name](x, A, i), 0.0))(X, A)


def updated(how: Any) -> Any:
    def body(i: Any, A: Any) -> Any:
        A = A.copy()
        how(A, i)
        return A

    return tg.trace(lambda A: tg.fori_loop(0, N, body, A))(A)


def test_an_update_that_does_not_fit_is_an_error() -> None:
    def grown(A: Any, i: Any) -> None:
        A[0, :i] = A[0]

    def in_place(A: Any, i: Any) -> None:
        A[0] += A[0, :i]

    def turned(A: Any, i: Any) -> None:
        block = A[i:, i:].T
        block += 1.0

    for how in (grown, in_place, turned):
        with pytest.raises((tg.TraceError, tg.UnsupportedError, ShapeError), match=r"test_dynamic_slice\.py:\d+"):
            updated(how)


def checksum(result: Any) -> Any:
    if isinstance(result, tuple | list):
        return sum(checksum(x) for x in result)
    return np.sum(result * 1.0) * np.cos(result.size) if np.ndim(result) else result * 1.0


@pytest.mark.parametrize("argument", [lambda i: X[:i], lambda i: A[i:, :i]], ids=["vector", "matrix"])
def test_a_function_gives_what_numpy_gives_or_refuses(argument: Any) -> None:
    known = {name: f for name in UFUNCS if isinstance(f := getattr(np, name, None), np.ufunc)}
    known |= {f.__name__: f for f in FUNCTIONS if f is not None and f not in (np.empty_like, np.shares_memory)}

    def body(i: Any) -> Any:
        taken = {}
        for name, f in known.items():
            try:
                taken[name] = checksum(f(argument(i)))
            except (tg.TraceError, tg.UnsupportedError, TypeError, ValueError, IndexError):
                continue
        return taken

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        wanted = body(2)
        result = tg.trace(lambda n: tg.scan(lambda k, _: (k + 1, body(k)), n, length=1)[1])(2)
    assert len(result) > 80
    assert {k: x for k, x in result.items() if k not in wanted or not np.isclose(x, wanted[k], equal_nan=True)} == {}
