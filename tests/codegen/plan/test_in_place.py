"""Parts of arrays that the iterations of a loop replace: written in place, if they read nothing else of the array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.ops.elementwise.table import where
from tracegrad.ops.indexing.dynamic_slice import dynamic_update_slice

N, ITERATIONS = 40, 30
rng = np.random.default_rng(0)


def of_the_part(u: Any) -> Any:
    u = u.copy()
    for _ in range(ITERATIONS):
        u[:-1] = np.tanh(u[:-1]) * 0.99 + 0.1 * u[-1]
    return np.sum(u**2)


def of_another_array(u: Any) -> Any:
    u, p = u.copy(), np.cos(u)
    for _ in range(ITERATIONS):
        p[1:-1, ::2] = p[1:-1, ::2] * np.sin(u[2:, 1::2])
        u = u + 0.01 * p
    return np.sum(u**2)


def outer_products(u: Any) -> Any:
    u = u + 10.0 * np.eye(N)
    for k in range(N - 1):
        u[k + 1 :, k] /= u[k, k]
        u[k + 1 :, k + 1 :] -= np.outer(u[k + 1 :, k], u[k, k + 1 :])
    return np.sum(np.log(np.abs(np.diag(u))))


def of_neighbors(u: Any) -> Any:
    u = u.copy()
    for _ in range(ITERATIONS):
        u[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
    return np.sum(u**2)


def transposed_round(u: Any) -> Any:
    u = u.copy()
    for _ in range(ITERATIONS):
        u[1:] = 0.9 * np.sin(u[:0:-1])
    return np.sum(u**2)


def swapped(u: Any) -> Any:
    a, b = u.copy(), u.copy()
    for _ in range(ITERATIONS):
        a[1:-1] = 1.9 * b[1:-1] - a[1:-1] + 0.1 * (b[2:] + b[:-2])
        a, b = b, a
    return np.sum(b**2)


IN_PLACE = [of_the_part, of_another_array, outer_products]
OTHERS = [
    of_neighbors,
    transposed_round,
    swapped,
]  # an array that is swapped with another one stays for the next iteration


@pytest.mark.parametrize("fun", IN_PLACE + OTHERS)
def test_values_and_gradients(fun: Any) -> None:
    x, direction = rng.normal(size=(2, N, N))
    value, gradient = tg.value_and_grad(fun)(x)
    np.testing.assert_allclose(value, fun(x), rtol=1e-11)
    derivative = (fun(x + 1e-6 * direction) - fun(x - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(np.sum(gradient * direction), derivative, rtol=1e-6)


@pytest.mark.parametrize("fun", IN_PLACE + OTHERS)
def test_parts_that_are_written_in_place(fun: Any) -> None:
    graph = tg.trace(fun).explain(rng.normal(size=(N, N))).optimized
    (loop,) = [node for node in graph.nodes if node.regions]
    body = dict(loop.params)["body"]
    large = [x for x in body.nodes if x.aval.shape == (N, N)]
    assert any(x.op is dynamic_update_slice and 2 * x.inputs[1].aval.size > N for x in large) == (fun in IN_PLACE)
    assert any(x.op is where for x in large) == (fun in OTHERS)
