"""Kernels that go across memory do the same whether rows collide in the cache, and go stretch by stretch, or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.codegen.kernels.conflict_blocking import strides_across
from tracegrad.codegen.loopir.kernel import Kernel
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.planner import plan


def turned(a: Any, b: Any) -> Any:
    return np.ascontiguousarray(a.T), a + b.T, np.where(a.T > 0, b, 1), np.pad(a.T, 1)


def cube(a: Any) -> Any:
    x = a.reshape(a.shape[0], 4, -1)
    return np.ascontiguousarray(x.transpose(2, 1, 0)), np.ascontiguousarray(x.transpose(1, 2, 0))


def kernels(f: Any, *args: Any) -> list[Kernel]:
    return [x.kernel for x in plan(tg.trace(f).explain(*args).optimized).steps if isinstance(x, Launch)]


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "bool"])
def test_they_have_the_values_of_numpy_for_all_sizes(dtype: str) -> None:
    rng = np.random.default_rng(0)
    compiled, cut = tg.trace(turned, tiered=False), tg.trace(cube, tiered=False)
    for shape in ((512, 36), (36, 512), (1024, 9), (9, 1024), (40, 36)):
        a, b = rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape[::-1]).astype(dtype)
        for got, want in zip(compiled(a, b), turned(a, b)):
            np.testing.assert_array_equal(got, want)
        for got, want in zip(cut(a), cube(a)) if a.size % (4 * shape[0]) == 0 else ():
            np.testing.assert_array_equal(got, want)


def test_only_what_goes_across_is_cut() -> None:
    a, v = np.ones((40, 30)), np.ones(30)
    (across,) = kernels(lambda a: np.ascontiguousarray(a.T), a)
    assert [str(x) for x in strides_across(across)] == ["s1"]
    for f in (lambda a, v: a + v, lambda a, v: np.sum(a.T, axis=0), lambda a, v: np.exp(v)):
        assert [strides_across(kernel) for kernel in kernels(f, a, v)] == [[]]


def test_what_is_dear_is_computed_by_vectors_of_a_stretch() -> None:
    rng = np.random.default_rng(0)
    dear = tg.trace(lambda a, b: np.sin(a.T) * np.tanh(b) + np.exp(a.T), tiered=False)
    for shape in ((512, 36), (40, 33), (512, 7), (13, 512)):
        a, b = rng.standard_normal(shape), rng.standard_normal(shape[::-1])
        np.testing.assert_allclose(dear(a, b), np.sin(a.T) * np.tanh(b) + np.exp(a.T), rtol=1e-13, atol=1e-14)
