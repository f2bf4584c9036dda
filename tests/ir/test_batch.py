"""The batch rule of every op against a loop, for every sample and every choice of operands that are a batch.

There is nothing here to edit when an op is added.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from graphs import graph_of, like, vjp_of

from tracegrad.avals import aval_of
from tracegrad.ir import run, verify
from tracegrad.ir.batch import batched
from tracegrad.ops import TABLE
from tracegrad.torch import autograd
from tracegrad.torch.tape.tensors.factories import tensor

SIZE = 3
_CASES = [(op, i, *case) for op in list(TABLE.values()) for i, case in enumerate(op.sample_cases()) if case[0]]
CASES = [
    pytest.param(op, operands, params, flags, id=f"{op.name}-{i}-{''.join('nb'[f] for f in flags)}")
    for op, i, operands, params in _CASES
    for flags in itertools.product((False, True), repeat=len(operands))
    if any(flags)
]


def several(x: Any, size: int = SIZE) -> Any:
    """A batch of arrays like `x`, from whatever the op is defined for."""
    x = np.asarray(x)
    transposed = np.flip(x)
    rows = [x, transposed, x * x.dtype.type(0.75) if x.dtype.kind in "fc" else x, transposed]
    return np.stack(rows[:size]) if size else np.zeros((0, *x.shape), x.dtype)


def answers(op: Any, operands: Any, params: Any) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        result = op.impl(*operands, **params)
    return tuple(map(np.asarray, result if isinstance(result, tuple) else (result,)))


def loop(op: Any, flags: Any, operands: Any, params: Any, size: int) -> list[Any]:
    rows = [answers(op, [x[i] if f else x for x, f in zip(operands, flags)], params) for i in range(size)]
    return [np.stack(each) for each in zip(*rows)]


def assert_same(got: Any, want: Any) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, want)
        return
    finite = want[np.isfinite(want)]
    eps = 100 * float(np.finfo(want.dtype).eps)
    np.testing.assert_allclose(got, want, rtol=eps, atol=eps * float(np.max(np.abs(finite), initial=1.0)))


@pytest.mark.parametrize(("op", "operands", "params", "flags"), CASES)
def test_a_batch_is_the_loop(op: Any, operands: Any, params: Any, flags: Any) -> None:
    args = [several(x) if f else np.asarray(x) for x, f in zip(operands, flags)]
    result = op.batch(SIZE, flags, args, params)
    for got, want in zip(result if isinstance(result, tuple) else (result,), loop(op, flags, args, params, SIZE)):
        assert_same(np.asarray(got), want)


@pytest.mark.parametrize(("op", "operands", "params", "flags"), CASES)
def test_a_batched_graph_is_the_loop(op: Any, operands: Any, params: Any, flags: Any) -> None:
    operands = [np.asarray(x) for x in operands]
    single = graph_of(op, operands, params)
    for size in (0, 1, SIZE):
        graph, result = batched(single, size, flags)
        assert all(result)
        args = [several(x, size) if f else x for x, f in zip(operands, flags)]
        got = run(verify(graph), args)
        want = (
            loop(op, flags, args, params, size)
            if size
            else [np.zeros((0, *y.shape), y.dtype) for y in answers(op, operands, params)]
        )
        for x, y in zip(got, want):
            assert_same(x, y)


@pytest.mark.parametrize(("op", "operands", "params", "flags"), CASES)
def test_a_batch_of_derivatives_is_the_loop(op: Any, operands: Any, params: Any, flags: Any) -> None:
    operands = [np.asarray(x) for x in operands]
    pulled = vjp_of(graph_of(op, operands, params))
    if pulled is None or not op.differentiable:
        pytest.skip("has no derivative")
    cts = [like(a) for a in pulled.avals[len(operands) :]]
    flags = [*flags, *(True for _ in cts)]
    args = [several(x) if f else x for x, f in zip([*operands, *cts], flags)]
    graph, _ = batched(pulled, SIZE, flags, [True] * len(pulled.outputs))
    got = run(verify(graph), args)
    rows = [run(pulled, [x[i] if f else x for x, f in zip(args, flags)]) for i in range(SIZE)]
    for x, y in zip(got, zip(*rows)):
        want = np.stack(y)
        if np.isfinite(want).all():
            finite = float(np.max(np.abs(want), initial=1.0))
            eps = 1e4 * float(np.finfo(want.dtype).eps) if want.dtype.kind == "f" else 0
            np.testing.assert_allclose(x, want, rtol=eps, atol=eps * finite)


ON_TAPE = [c for c in CASES if all(c.values[3]) and c.values[0].differentiable]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize(("op", "operands", "params", "flags"), ON_TAPE)
def test_gradients_of_a_batch_of_weights_are_those_of_each(
    op: Any, operands: Any, params: Any, flags: Any, create_graph: bool
) -> None:
    floating = [i for i, x in enumerate(operands) if np.asarray(x).dtype.kind in "fc" and op.differentiable_in(i)]
    tensors = [tensor(np.asarray(x), requires_grad=i in floating) for i, x in enumerate(operands)]
    result = op(*tensors, **params)
    outputs = [y for y in (result if isinstance(result, tuple) else (result,)) if y.requires_grad]
    if not outputs:
        pytest.skip("has no derivative here")
    inputs = [tensors[i] for i in floating]
    weights = [tensor(several(like(aval_of(y.detach().numpy())))) for y in outputs]
    got = autograd.grad(outputs, inputs, weights, True, create_graph, True, is_grads_batched=True)
    rows = [autograd.grad(outputs, inputs, [w[k] for w in weights], True, False, True) for k in range(SIZE)]
    for x, *each in zip(got, *rows):
        assert (x is None) == (each[0] is None)
        if x is not None and all(np.isfinite(y.numpy()).all() for y in each):
            want = np.stack([y.numpy() for y in each])
            eps = 1e3 * float(np.finfo(want.dtype).eps)
            scale = float(np.max(np.abs(want), initial=1.0))
            np.testing.assert_allclose(x.detach().numpy(), want, rtol=eps, atol=eps * scale)
