"""Workloads that are loops over time, and their gradients written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.namespaces import added_inside, drawn, kind, repeated

__all__ = ["characters", "heat", "heat_by_hand", "lstm", "lstm_by_hand", "sequence", "text"]

ITERATIONS, SHARE = 100, 0.1


def sigmoid(xp: Any, z: Any) -> Any:
    return 0.5 * (xp.tanh(0.5 * z) + 1.0)


# -- networks ------------------------------------------------------------------------------------------------
def lstm(xp: Any, parameters: Any, rows: Any) -> Any:
    """The mean square of the last state of an LSTM, for the rows of a sequence of batches."""
    w, u, b = parameters
    size = u.shape[0]

    def cell(state: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
        h, c = state
        z = x @ w + h @ u + b
        c = sigmoid(xp, z[:, :size]) * c + sigmoid(xp, z[:, size : 2 * size]) * xp.tanh(z[:, 2 * size : 3 * size])
        return sigmoid(xp, z[:, 3 * size :]) * xp.tanh(c), c

    zeros = 0.0 * (rows[0] @ w)[:, :size]
    h, _ = repeated(xp, cell, (zeros, zeros), rows)
    return xp.mean(h * h)


def lstm_by_hand(parameters: Any, rows: Any) -> Any:
    """Value and gradient of `lstm`, through time."""
    w, u, b = parameters
    steps, batch, size = rows.shape[0], rows.shape[1], u.shape[0]
    h, c = np.zeros((batch, size), rows.dtype), np.zeros((batch, size), rows.dtype)
    saved = []
    for x in rows:
        z = x @ w + h @ u + b
        f, i, o = (1.0 / (1.0 + np.exp(-z[:, k * size : (k + 1) * size])) for k in (0, 1, 3))
        g = np.tanh(z[:, 2 * size : 3 * size])
        new = f * c + i * g
        saved.append((h, c, f, i, g, o, np.tanh(new)))
        h, c = o * np.tanh(new), new
    value = np.mean(h * h)
    gradients = [np.zeros_like(p) for p in parameters]
    dh, dc = 2.0 * h / h.size, np.zeros_like(c)
    for n in range(steps - 1, -1, -1):
        before, c, f, i, g, o, t = saved[n]
        dc = dc + dh * o * (1.0 - t * t)
        slots = (dc * c * f * (1 - f), dc * g * i * (1 - i), dc * i * (1 - g * g), dh * t * o * (1 - o))
        dz = np.concatenate(slots, axis=1)
        for total, share in zip(gradients, (rows[n].T @ dz, before.T @ dz, dz.sum(0))):
            total += share
        dh, dc = dz @ u.T, dc * f
    return value, tuple(gradients)


def sequence(steps: int, batch: int, size: int, dtype: str) -> tuple[Any, ...]:
    """Data of `lstm`; as many features as hidden states."""
    shapes = ((size, 4 * size), (size, 4 * size), (4 * size,))
    parameters = tuple(drawn(100 + i, *s, dtype=dtype) / np.sqrt(size).astype(dtype) for i, s in enumerate(shapes))
    return parameters, drawn(104, steps, batch, size, dtype=dtype)


def characters(xp: Any, parameters: Any, starts: Any, pairs: Any) -> Any:
    """The mean negative log likelihood of characters, each guessed from those before (ADBench's LSTM).

    Two layers, whose gates have a weight and a bias for each element, between a scale of what comes in and a line of
    what goes out. starts: hidden and cell of both layers; pairs: a character, one-hot, and the next.
    """
    (weights, biases), (scale, derivative, shift) = parameters

    def turn(state: tuple[Any, ...], pair: Any) -> tuple[Any, ...]:
        total, x, new = state[-1], pair[0] * scale, []
        for layer in range(2):
            h, c, w, b = state[2 * layer], state[2 * layer + 1], weights[layer], biases[layer]
            forget, args = sigmoid(xp, x * w[0] + b[0]), sigmoid(xp, h * w[1] + b[1])
            c = c * forget + args * xp.tanh(h * w[3] + b[3])
            x = sigmoid(xp, x * w[2] + b[2]) * xp.tanh(c)
            new += [x, c]
        guess = x * derivative + shift
        return *new, total + xp.log(xp.sum(xp.exp(guess))) - xp.sum(pair[1] * guess)

    zero = 0.0 * xp.sum(scale)
    return repeated(xp, turn, (starts[0], starts[1], starts[2], starts[3], zero), pairs)[-1] / pairs.shape[0]


def text(steps: int, size: int) -> tuple[Any, ...]:
    """Data of `characters`."""
    letters = np.eye(size)[np.random.default_rng(110).integers(0, size, steps + 1)]
    gates = drawn(111, 2, 4, size), drawn(112, 2, 4, size)
    lines = drawn(113, size), drawn(114, size), drawn(115, size)
    return (gates, lines), drawn(116, 4, size), np.stack((letters[:-1], letters[1:]), 1)


# -- a partial differential equation in place --------------------------------------------------------------
def heat(xp: Any, u: Any) -> Any:
    """The sum of squares of a heated plate after `TURNS` iterations, whose border stays as it is."""

    def turn(state: tuple[Any, ...], _: Any) -> tuple[Any, ...]:
        (u,) = state
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return (added_inside(xp, u, SHARE * (around - 4 * u[1:-1, 1:-1])),)

    start = u + 0.0 if kind(xp) in ("numpy", "torch") else u
    (u,) = repeated(xp, turn, (start,), np.zeros(ITERATIONS, u.dtype) if kind(xp) != "torch" else range(ITERATIONS))
    return xp.sum(u**2)


def heat_by_hand(u: Any) -> Any:
    """Value and gradient: the iterations are linear, so the gradient goes through the transposed ones, backwards."""
    n, m = u.shape
    here, there = u.copy(), u.copy()
    for _ in range(ITERATIONS):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                around = here[i + 1, j] + here[i - 1, j] + here[i, j + 1] + here[i, j - 1]
                there[i, j] = here[i, j] + SHARE * (around - 4 * here[i, j])
        here, there = there, here
    value = np.sum(here * here)
    derivative, inner = 2 * here, np.zeros((n + 2, m + 2))  # of the elements that iterations change, with zeros around
    for _ in range(ITERATIONS):
        inner[2:n, 2:m] = SHARE * derivative[1 : n - 1, 1 : m - 1]
        for i in range(n):
            for j in range(m):
                around = inner[i, j + 1] + inner[i + 2, j + 1] + inner[i + 1, j] + inner[i + 1, j + 2]
                derivative[i, j] += around - 4 * inner[i + 1, j + 1]
    return value, derivative
