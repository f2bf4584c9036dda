"""Concatenations, stacks and rolls: a kernel for each part, of which those that do the same are one piece of code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plans import plan_of

import tracegrad as tg
from tracegrad.codegen.loopir.kernel import GuardBlock, Kernel, KernelLoop, Load, Operand, Reduce, Store, flattened
from tracegrad.codegen.loopir.polynomial import ZERO, Poly
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.lower.lower import RuntimeArguments
from tracegrad.codegen.plan.loop_splitting import split
from tracegrad.runtime.execution.program import machine_code_count

rng = np.random.default_rng(0)


def guards(fun: Any, *args: Any) -> list[int]:
    """How many guards each kernel of the program has."""
    steps = [step for step in plan_of(fun, *args).steps if isinstance(step, Launch)]
    return [sum(isinstance(x, GuardBlock) for x in flattened(step.kernel.body)) for step in steps]


CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "concatenate": (lambda x, y: np.concatenate([x, y, x * y]), 3),
    "concatenate computed": (lambda x, y: np.concatenate([x, np.exp(y)], axis=1), 2),
    "stack": (lambda x, y: np.stack([x, y, x - y]), 3),
    "roll": (lambda x, y: np.roll(x, 3, axis=0) * y, 2),
    "roll both": (lambda x, y: np.roll(np.roll(x, 2, axis=0), -40, axis=1) + y, 4),
    "derivative of slices": (lambda x, y: tg.grad(lambda x: np.sum(x[12:] * y[12:]))(x), 2),
    "halves of rows": (lambda x, y: np.concatenate([x, y], axis=1), 2),
    "rolled rows": (lambda x, y: np.roll(x, 3, axis=1), 2),
    "pairs": (lambda x, y: np.stack([x * y, x * np.exp(y)], axis=-1), 1),
    "columns": (lambda x, y: np.stack([x, y, x], axis=-1), 1),
    "a frame of the rows and columns across": (lambda x, y: np.pad(x, 3, mode="wrap"), 9),
    "a frame of the edge": (lambda x, y: np.pad(x, 3, mode="edge"), 12),
    "rolled parts": (lambda x, y: np.concatenate([x[7:], y[:7]]) * x, 2),
}


@pytest.mark.parametrize("shape", [(200, 60), (1000, 300), (13, 50)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_parts_are_kernels_without_guards(name: str, shape: tuple[int, int]) -> None:
    fun, parts = CASES[name]
    x, y = rng.standard_normal(shape), rng.standard_normal(shape)
    result = tg.trace(fun)
    assert guards(result, x, y) == [0] * parts
    np.testing.assert_allclose(result(x, y), fun(x, y), rtol=1e-13)


def test_parts_that_are_copies_are_one_piece_of_machine_code() -> None:
    result = tg.trace(lambda *xs: np.concatenate(xs))
    xs = [rng.standard_normal(n) for n in (1000, 20, 333, 50, 7000)]
    np.testing.assert_array_equal(result(*xs), np.concatenate(xs))
    kernels = [step.kernel.signature()[0] for step in plan_of(result, *xs).steps]  # type: ignore[union-attr]
    assert len(kernels) == 5
    assert len(set(kernels)) == 1
    before = machine_code_count()
    others = [rng.standard_normal(n) for n in (40, 41, 999, 3000, 12)]
    np.testing.assert_array_equal(result(*others), np.concatenate(others))
    assert machine_code_count() == before


@pytest.mark.parametrize(
    "fun",
    [
        lambda x, y: np.stack([x * y, y, x], axis=-1),  # elements that lie together
        lambda x, y: np.concatenate([x * y, y], axis=1),  # rows are read and written once
        lambda x, y: np.pad(x, 1),  # more parts than guards
        lambda x, y: np.sum(np.concatenate([x, y]) ** 2),  # a reduction
    ],
    ids=["columns", "halves of rows", "frame", "sum"],
)
def test_other_guards_stay(fun: Callable[..., Any]) -> None:
    x, y = rng.standard_normal((100, 40)), rng.standard_normal((100, 40))
    result = tg.trace(fun)
    assert max(guards(result, x, y)) > 0
    np.testing.assert_allclose(result(x, y), fun(x, y), rtol=1e-12)


def test_an_index_out_of_range_in_a_part_is_found() -> None:
    output = tg.trace(lambda x, k: np.concatenate([x, x[k], 2.0 * x]))
    x = rng.standard_normal(50)
    result = output(x, np.array([3, -50, 49] * 10))
    np.testing.assert_array_equal(result, np.concatenate([x, x[np.array([3, -50, 49] * 10)], 2 * x]))
    with pytest.raises(IndexError):
        output(x, np.array([3, -50, 50] * 10))


def test_counters_in_a_part_go_on_from_where_it_begins() -> None:
    result = tg.trace(lambda x: np.concatenate([x, np.arange(-1.0, 99.0) * x[:100], x[5:] + np.arange(1, 196)]))
    x = rng.standard_normal(200)
    assert guards(result, x) == [0, 0, 0]
    true = np.concatenate([x, np.arange(-1.0, 99.0) * x[:100], x[5:] + np.arange(1, 196)])
    np.testing.assert_allclose(result(x), true, rtol=1e-15)


def gates(z: Any, c: Any) -> Any:
    n = c.shape[1]
    return np.sum(np.tanh(z[:, :n]) * c + np.tanh(z[:, n : 2 * n]) * np.sin(z[:, 2 * n :]))


def test_sums_of_parts_that_are_stored_read_them_again() -> None:
    """As the gradients of the biases of the gates of a recurrent cell."""
    b, z, c = (rng.standard_normal(shape) for shape in (96, (50, 96), (50, 32)))
    output = tg.trace(tg.grad(lambda b, z, c: gates(z + b, c), (0, 1)))
    assert guards(output, b, z, c) == [0, 0, 0, 0]
    first, second, third = np.split(z + b, 3, axis=1)
    parts = [c / np.cosh(first) ** 2, np.sin(third) / np.cosh(second) ** 2, np.tanh(second) * np.cos(third)]
    want = np.concatenate(parts, axis=1)
    for result, true in zip(output(b, z, c), (want.sum(0), want), strict=True):
        np.testing.assert_allclose(result, true, rtol=1e-12, atol=1e-14)


def recurrent(b: Any, z: Any, c: Any) -> Any:
    for _ in range(20):
        parts = [np.tanh(z[:, 32:64]) * c, np.sin(z[:, 64:]) + b[:32], np.exp(-(z[:, :32] ** 2))]
        z = 0.9 * z + 0.1 * np.concatenate(parts, axis=1) + b
    return gates(z, c)


def test_kernels_of_loops_are_split_too() -> None:
    args = [0.1 * rng.standard_normal(shape) for shape in (96, (50, 96), (50, 32))]
    result = tg.trace(tg.value_and_grad(recurrent, (0, 1, 2)))
    value, derivatives = result(*args)
    np.testing.assert_allclose(value, recurrent(*args), rtol=1e-12)
    for k, derivative in enumerate(derivatives):
        step = rng.standard_normal(derivative.shape)
        moved = [x + 1e-30j * step if i == k else x for i, x in enumerate(args)]
        np.testing.assert_allclose(np.sum(derivative * step), recurrent(*moved).imag / 1e-30, rtol=1e-11)
    text = "\n".join(result.explain(*args).kernels)
    assert text.count("repeat ") == 2
    assert "guard " not in text


def test_stacks_that_have_many_parts_together_are_split_each() -> None:
    """A guard for each part of all in one kernel would take LLVM a quarter of a second."""

    def f(*xs: Any) -> Any:
        return np.stack(xs[:12]), np.stack(xs[12:24]), np.stack(xs[24:]) * 2.0

    result, xs = tg.trace(f), [np.array(x) for x in rng.standard_normal(36)]
    assert guards(result, *xs) == [0] * 36
    kernels = [step.kernel.signature()[0] for step in plan_of(result, *xs).steps]  # type: ignore[union-attr]
    assert len(set(kernels)) <= 3
    for got, want in zip(result(*xs), f(*xs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_sum_of_an_immediate_is_not_read_from_where_another_one_is_stored() -> None:
    i, j, n, m = (Poly.symbol(name) for name in ("i0", "i1", "s0", "s1"))
    value, zero, one = Operand("v1", "f64"), Operand("", "f64", "0.0"), Operand("", "f64", "1.0")
    ranges = ((ZERO, i, Poly.constant(20), Poly.constant(1)),)
    body = [
        GuardBlock(value, ranges, [Load(Operand("v0", "f64"), "b0", j + i * m)], Operand("v0", "f64"), zero),
        Store("b1", j + i * m, value),
        Store("b2", j + i * m, zero),
        Reduce("b3", j, "add", one, ("i0",), m),
    ]
    buffers = {f"b{k}": ("f64", "in" if k == 0 else "out") for k in range(4)}
    kernel = Kernel(buffers, [KernelLoop("i0", n), KernelLoop("i1", m)], body, 50)
    assert split(kernel, RuntimeArguments({"s0": 50, "s1": 30})) == [kernel]
    body[-1] = Reduce("b3", j, "add", value, ("i0",), m)
    assert len(split(kernel, RuntimeArguments({"s0": 50, "s1": 30}))) == 3
