"""PyTorch's functions that update their argument, or copy what is a view; `unravel_index` and `renorm`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.torch.functions.of_methods import OF_METHODS

MATRIX = np.arange(6.0).reshape(2, 3)


def updated(values: Any) -> Any:
    x = tg.tensor(values)
    assert tg.clamp_min_(x, 1.0) is x
    tg.index_put_(x, (tg.tensor([0]),), tg.tensor([[7.0, 8.0, 9.0]], dtype=tg.float64))
    tg.fill_(x[1, :2], -4.0)
    tg.relu_(tg.neg_(x[:, 0]))
    return x


@pytest.mark.parametrize("wrap", [lambda f: f, tg.trace], ids=["eager", "traced"])
def test_functions_with_an_underscore_update_their_argument(wrap: Any) -> None:
    traced = wrap(updated)
    for _ in range(2):
        assert traced(MATRIX).tolist() == [[0.0, 8.0, 9.0], [4.0, -4.0, 5.0]]
    with pytest.raises(TypeError, match=r"abs_\(\) takes a Tensor"):
        tg.abs_(MATRIX)


@pytest.mark.parametrize("wrap", [lambda f: f, tg.trace], ids=["eager", "traced"])
def test_copies_of_views_share_nothing_with_the_tensor(wrap: Any) -> None:
    calls: dict[str, Any] = {
        "as_strided_copy": (((2, 2), (3, 1)), MATRIX[:, :2]),
        "detach_copy": ((), MATRIX),
        "diagonal_copy": ((), [0.0, 4.0]),
        "expand_copy": (((2, 2, 3),), [MATRIX] * 2),
        "narrow_copy": ((1, 1, 2), MATRIX[:, 1:]),
        "permute_copy": (((1, 0),), MATRIX.T),
        "select_copy": ((0, 1), MATRIX[1]),
        "squeeze_copy": ((), MATRIX),
        "t_copy": ((), MATRIX.T),
        "transpose_copy": ((0, 1), MATRIX.T),
        "unfold_copy": ((1, 3, 1), MATRIX[:, None]),
        "unsqueeze_copy": ((1,), MATRIX[:, None]),
        "view_copy": (((3, 2),), MATRIX.reshape(3, 2)),
    }
    several = {"split_copy": (2, 1), "split_with_sizes_copy": ((2, 1), 1), "unbind_copy": (1,)}
    assert {*calls, *several} == {name for name in OF_METHODS if name.endswith("_copy")}

    def copied(x: Any) -> Any:
        whole = [getattr(tg, name)(x, *args) for name, (args, _) in calls.items()]
        parts = [part for name, args in several.items() for part in getattr(tg, name)(x, *args)]
        for each in [*whole, *parts]:
            each += 1.0
        return whole, parts

    for x in (tg.tensor(MATRIX), MATRIX.copy()):
        whole, parts = wrap(copied)(x)
        np.testing.assert_array_equal(np.asarray(x), MATRIX)
        for result, (_, expected) in zip(whole, calls.values()):
            np.testing.assert_array_equal(np.asarray(result), np.asarray(expected) + 1)
        expected = [MATRIX[:, :2], MATRIX[:, 2:]] * 2 + [MATRIX[:, k] for k in range(3)]
        assert [np.asarray(part).tolist() for part in parts] == [(part + 1).tolist() for part in expected]


def test_derivatives_flow_through_updates_and_copies() -> None:
    x = tg.tensor([1.0, -2.0], dtype=tg.float64, requires_grad=True)
    (tg.view_copy(tg.clamp_min_(x * 2, 0.5), (2, 1)) ** 2).sum().backward()
    assert x.grad.tolist() == [8.0, 0.0]


def test_unravel_index_counts_as_numpy_and_takes_what_is_out_of_bounds() -> None:
    places = np.array([[0, 5], [23, 11]])
    for shape in ((2, 3, 4), (24,), (24, 1, 1)):
        for result in (tg.unravel_index(tg.tensor(places), shape), tg.trace(tg.unravel_index)(places, shape)):
            np.testing.assert_array_equal(np.stack([np.asarray(x) for x in result]), np.unravel_index(places, shape))
    assert [int(x) for x in tg.unravel_index(tg.tensor(-1), (2, 3))] == [1, 2]
    assert [int(x) for x in tg.unravel_index(tg.tensor(7), (2, 3))] == [0, 1]
    assert tg.unravel_index(tg.tensor(5), ()) == ()
    with pytest.raises(TypeError, match="integer dtype"):
        tg.unravel_index(tg.tensor(5.0), (2, 3))
    with pytest.raises(ValueError, match="negative"):
        tg.unravel_index(tg.tensor(5), (2, -3))
    with pytest.raises(RuntimeError, match="ZeroDivision"):
        tg.unravel_index(tg.tensor(5), (2, 0))


@pytest.mark.parametrize("p", [1, 2, 3.5, float("inf")])
def test_renorm_scales_the_parts_that_are_too_long(p: float) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 2))
    x[1] = 0.0

    def plainly(x: Any) -> Any:
        rows = []
        for row in x:
            length = np.linalg.norm(row.ravel(), p)
            rows.append(row * (1.5 / (length + 1e-7) if length > 1.5 else 1.0))
        return np.stack(rows)

    def outcome(x: Any) -> Any:
        return np.sum(np.sin(plainly(x)) * np.cos(np.arange(24.0).reshape(3, 4, 2)))

    y = tg.tensor(x, requires_grad=True)
    np.testing.assert_allclose(tg.renorm(y, p, 0, 1.5).detach().numpy(), plainly(x), rtol=1e-14)
    np.testing.assert_allclose(tg.renorm(x.swapaxes(0, 2), p, -1, 1.5), plainly(x).swapaxes(0, 2), rtol=1e-14)
    (tg.sin(tg.renorm(y, p, 0, 1.5)) * tg.cos(tg.arange(24, dtype=tg.float64).reshape(3, 4, 2))).sum().backward()
    e = np.random.default_rng(1).normal(size=x.shape)
    e[1] = 0.0
    derivative = (outcome(x + 1e-6 * e) - outcome(x - 1e-6 * e)) / 2e-6
    assert np.sum(y.grad.numpy() * e) == pytest.approx(derivative, rel=1e-7)
    y = tg.tensor(x)
    assert y.renorm_(p, 0, 1.5) is y
    np.testing.assert_allclose(y.numpy(), plainly(x), rtol=1e-14)
    for args, text in (((0, 0, 1.0), "non-positive"), ((2, 0, -1.0), "maxnorm"), ((2, 3, 1.0), "out of range")):
        with pytest.raises((RuntimeError, IndexError), match=text):
            tg.renorm(y, *args)
