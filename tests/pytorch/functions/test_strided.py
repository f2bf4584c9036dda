"""Views by strides and elements at flat indices: what PyTorch 2.13 computes, eager and traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg

MODES: dict[str, Any] = {"eager": lambda f: f, "traced": tg.trace}


def weighted(x: Any) -> Any:
    return (x * tg.arange(float(x.numel())).reshape(x.shape)).sum()


@pytest.mark.parametrize("mode", MODES)
def test_a_view_by_strides_shares_elements_and_gradients(mode: str) -> None:
    def run(x: Any) -> Any:
        y = x * 1
        first = y.as_strided((2, 3), (3, 1))
        first.mul_(2)  # an update of the view is one of its base
        z = x * 1
        second = tg.as_strided(z, (3, 4), (2, 1), 1)
        z.mul_(3)  # and an update of the base one of the view
        return y, second, *tg.autograd.grad(weighted(y) + weighted(second), x)

    x = tg.arange(12.0).requires_grad_()
    y, second, gradient = MODES[mode](run)(x)
    numbers = np.arange(12.0)
    np.testing.assert_array_equal(y.detach(), np.where(numbers < 6, 2, 1) * numbers)
    positions = np.arange(3)[:, None] * 2 + np.arange(4) + 1
    np.testing.assert_array_equal(second.detach(), 3 * numbers[positions])
    expected = np.where(numbers < 6, 2, 1) * numbers
    np.add.at(expected, positions, 3.0 * np.arange(12).reshape(3, 4))
    np.testing.assert_array_equal(gradient, expected)


def test_views_by_strides_of_views_arrays_and_nothing() -> None:
    x = tg.arange(12.0).requires_grad_()
    assert x.as_strided((2, 2), (3, 1)).grad_fn.name() == "AsStridedBackward0"
    assert x.detach()[3:].as_strided((2,), (1,), 4).tolist() == [4.0, 5.0]
    assert tg.as_strided_copy(x, (2, 2), (4, 1)).tolist() == [[0.0, 1.0], [4.0, 5.0]]
    assert tg.as_strided(np.arange(5), (2, 3), (2, 1)).tolist() == [[0, 1, 2], [2, 3, 4]]
    assert tg.empty(0).as_strided((0, 3), (1, 1)).shape == (0, 3)
    assert tg.tensor(3.0).as_strided((2,), (0,)).tolist() == [3.0, 3.0]
    scattered = tg.as_strided_scatter(x, tg.ones(2, 2), (2, 2), (4, 1), 1)
    assert scattered.tolist() == [0.0, 1.0, 1.0, 3.0, 4.0, 1.0, 1.0, *range(7, 12)]
    assert tg.autograd.gradcheck(
        lambda x, y: tg.as_strided_scatter(x, y, (2, 2), (4, 1)), (x, tg.ones(2, 2, requires_grad=True))
    )


@pytest.mark.parametrize("mode", MODES)
def test_elements_are_put_at_flat_indices(mode: str) -> None:
    def run(x: Any, values: Any) -> Any:
        y = x.put(tg.tensor([0, 5, -1]), values)
        z = x.put(tg.tensor([5, 5, 1]), values, accumulate=True)
        w = (x * 1).put_(tg.tensor([[2, 3, 4]]), values[None])
        return y, z, w, *tg.autograd.grad(weighted(y) + weighted(z) + weighted(w), (x, values))

    x = tg.arange(6.0).reshape(2, 3).requires_grad_()
    values = tg.tensor([7.0, 8.0, 9.0], requires_grad=True)
    y, z, w, of_x, of_values = MODES[mode](run)(x, values)
    assert y.tolist() == [[7.0, 1.0, 2.0], [3.0, 4.0, 9.0]]
    assert z.tolist() == [[0.0, 10.0, 2.0], [3.0, 4.0, 20.0]]
    assert w.tolist() == [[0.0, 1.0, 7.0], [8.0, 9.0, 5.0]]
    assert of_x.tolist() == [[0.0, 3.0, 4.0], [6.0, 8.0, 10.0]]
    assert of_values.tolist() == [0.0 + 5 + 2, 0.0 + 5 + 3, 5.0 + 1 + 4]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: x.as_strided((2,), (12,)), RuntimeError, "out of bounds for one of 12"),
        (lambda x: x.as_strided((2, 3), (1,)), RuntimeError, "mismatch in length of strides and shape"),
        (lambda x: x.as_strided((2,), (-1,)), RuntimeError, "Negative strides are not supported"),
        (lambda x: x.reshape(3, 4).T.as_strided((2,), (1,)), tg.UnsupportedError, "not contiguous"),
        (
            lambda x: x.as_strided((2, 3), (1, 1)).mul_(2),
            RuntimeError,
            "more than one element of the written-to",
        ),
        (lambda x: tg.as_strided_scatter(x, x, (2,), (1,)), RuntimeError, "expected src to have a size equal"),
        (lambda x: x.put(tg.tensor([0, 1]), x[:1]), RuntimeError, "same number of elements"),
        (lambda x: x.put(tg.tensor([0]), tg.tensor([1])), RuntimeError, "self.dtype = Double and source.dtype = Long"),
        (lambda x: x.put(tg.tensor([0.0]), x[:1]), RuntimeError, "Expected a long tensor for index, but got Double"),
        (lambda x: x.put(tg.tensor([12]), x[:1]), IndexError, "index 12 is out of bounds"),
        (lambda x: tg.frombuffer(bytearray(16), dtype=tg.int32, offset=1), ValueError, "multiple of element size"),
        (
            lambda x: tg.frombuffer(bytearray(16), dtype=tg.int32, offset=16),
            ValueError,
            "must be in a buffer of length 16",
        ),
        (lambda x: tg.frombuffer(bytearray(16), dtype=tg.int32, count=5), ValueError, "requested 5 . 4 bytes"),
        (lambda x: tg.frombuffer(bytearray(16), dtype=tg.int32, count=0), ValueError, "must not be 0"),
        (lambda x: tg.chain_matmul(), RuntimeError, "Expected one or more matrices"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(tg.arange(12.0))


def test_tensors_of_numbers_and_of_memory() -> None:
    assert (tg.scalar_tensor(3).item(), tg.scalar_tensor(3).dtype) == (3.0, tg.get_default_dtype())
    assert tg.scalar_tensor(True, dtype=tg.bool).dtype is tg.bool
    memory = bytearray(np.arange(4, dtype="int32").tobytes())
    x = tg.frombuffer(memory, dtype=tg.int32, count=2, offset=4)
    assert x.tolist() == [1, 2]
    x[0] = 7
    assert np.frombuffer(memory, "int32").tolist() == [0, 7, 2, 3]
    with pytest.warns(UserWarning, match="not writable"):
        assert tg.frombuffer(bytes(memory), dtype=tg.uint8).shape == (16,)
    product = tg.chain_matmul(tg.ones(2, 3), tg.ones(3, 4), tg.ones(4, 1))
    assert product.tolist() == [[12.0], [12.0]]


@pytest.mark.parametrize("norm", [None, "forward", "ortho"])
def test_hermitian_transforms_of_several_dimensions_are_scipys(norm: Any) -> None:
    from scipy import fft

    x = np.random.default_rng(3).standard_normal((2, 3, 4))
    z = tg.tensor(x + 1j * x[::-1], requires_grad=True)
    for name, options in (("hfft2", {}), ("hfftn", {}), ("hfftn", {"s": (2, 5), "dim": (0, 2)})):
        scipys = {{"dim": "axes"}.get(key, key): value for key, value in options.items()}
        transform, inverse = (getattr(tg.fft, prefix + name) for prefix in ("", "i"))
        expected = getattr(fft, name)(z.detach().numpy(), norm=norm, **scipys)
        np.testing.assert_allclose(transform(z, norm=norm, **options).detach(), expected, atol=1e-12)
        expected = getattr(fft, f"i{name}")(x, norm=norm, **scipys)
        np.testing.assert_allclose(inverse(tg.tensor(x), norm=norm, **options), expected, atol=1e-12)
    assert tg.autograd.gradcheck(lambda z: tg.fft.hfft2(z, norm=norm), (z,))
    with pytest.raises(RuntimeError, match="Invalid normalization mode"):
        tg.fft.hfft2(z, norm="other")
