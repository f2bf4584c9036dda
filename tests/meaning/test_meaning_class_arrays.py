"""Arrays and Tensors that classes hold: read at each call, whatever they are computed with, and written there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from meaning import program

import tracegrad as tg

X = np.array([0.5, -1.0, 2.0])


def _table() -> Any:
    class Table:
        v = np.ones(3)
        pair = (np.ones(2), np.zeros(3))
        named: Any = {"a": np.ones(3)}  # noqa: RUF012

    return Table


READS = {
    "alone": lambda table, x: x * (table.v * 2),
    "by a function": lambda table, x: x * np.exp(table.v),
    "in a tuple": lambda table, x: x * (table.pair[1] + 1),
    "in a dict": lambda table, x: x * (table.named["a"] + 1),
    "of an instance": lambda table, x: x * (table().v - 1),
    "as a truth": lambda table, x: x * (2.0 if table.v[0] > 2 else 3.0),
    "as a place": lambda table, x: x[int(table.v[0])] * x,
}


@pytest.mark.parametrize("name", READS)
def test_an_array_of_a_class_is_that_of_the_call(name: str) -> None:
    read = READS[name]
    table, sub = _table(), None
    sub = type("Sub", (table,), {})
    for cls in (table, sub):
        traced, gradient = tg.trace(lambda x, cls=cls: read(cls, x)), tg.grad(lambda x, cls=cls: read(cls, x).sum())
        for change in range(3):
            for _ in range(2):
                np.testing.assert_allclose(traced(X), read(cls, X))
                up, down = ((read(cls, X + d) - read(cls, X - d)).sum() / 2e-6 for d in np.eye(3)[:2] * 1e-6)
                np.testing.assert_allclose(gradient(X)[:2], [up, down], rtol=1e-6)
            if change == 0:
                table.v[0] = table.pair[1][1] = table.named["a"][2] = 2.0
            else:
                table.v, table.pair, table.named = np.full(3, 1.5), (X, X), {"a": X}


@program
def test_a_state_that_a_class_holds(trace: Any) -> Any:
    table = _table()

    @trace
    def step(x: Any) -> Any:
        table.v = 0.9 * table.v + 1.0
        table.v[1] += 0.5
        return table.v * x

    for k in range(4):
        yield step(X * k), table.v
    table.v = np.zeros(3)
    yield step(X), table.v


def test_a_tensor_of_a_class_is_that_of_the_call() -> None:
    class Held:
        t = tg.tensor([1.0, 2.0, 3.0])

    def f(x: Any) -> Any:
        return x * (Held.t * 2)

    traced, x = tg.trace(f), tg.tensor([0.5, -1.0, 2.0])
    for change in (lambda: Held.t.mul_(3.0), lambda: setattr(Held, "t", tg.tensor([7.0, 8.0, 9.0])), lambda: None):
        for _ in range(2):
            np.testing.assert_array_equal(traced(x).numpy(), f(x).numpy())
        change()


@program
def test_an_attribute_that_a_dict_of_ones_own_class_gets_later(trace: Any) -> Any:
    class Scaled(dict):  # type: ignore[type-arg]
        def __getitem__(self, k: Any) -> Any:
            return dict.__getitem__(self, k) * getattr(self, "scale", 1.0)

    scaled = Scaled(a=2.0)

    @trace
    def f(x: Any) -> Any:
        return x * scaled["a"]

    yield f(X), f(X)
    scaled.scale = 3.0  # type: ignore[attr-defined]
    yield f(X), f(X)
    del scaled.scale  # type: ignore[attr-defined]
    yield f(X), f(X)
