"""Layers of few programs: random rectifiers and pooling, the adaptive softmax, wrappers, and deprecated names."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import nn
from tracegrad.nn import functional as F
from tracegrad.typing import NDArray

RNG = np.random.default_rng(4)


# -- random rectifiers -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("traced", [False, True])
def test_a_random_rectifier_draws_a_slope_for_each_element(traced: bool) -> None:
    layer = nn.RReLU(0.25, 0.5)

    def run(x: Any) -> Any:
        return layer(x)

    call = tg.trace(run) if traced else run
    x = tg.tensor(np.linspace(-1.0, 1.0, 201), requires_grad=True)
    tg.manual_seed(0)
    first, second = call(x), call(x)
    positive = x.array > 0
    for y in (first, second):
        (slope,) = tg.autograd.grad(y.sum(), x, retain_graph=True)
        assert (y.array[positive] == x.array[positive]).all()
        assert (slope.array[positive] == 1).all()
        assert ((slope.array[~positive] >= 0.25) & (slope.array[~positive] < 0.5)).all()
        np.testing.assert_allclose(y.array, slope.array * x.array, rtol=1e-15)
    assert (first.array[:100] != second.array[:100]).any()
    np.testing.assert_allclose(layer.eval()(x).array, np.where(positive, x.array, 0.375 * x.array))
    assert layer(x).grad_fn.name() == "RreluWithNoiseBackward0"
    assert repr(nn.RReLU(0.1, 0.2, True)) == "RReLU(lower=0.1, upper=0.2, inplace=True)"
    with pytest.raises(RuntimeError, match="Lower bound should be less than or equal to the upper bound"):
        F.rrelu(x, 0.5, 0.1)


@pytest.mark.parametrize("name", ["celu", "elu", "hardtanh", "leaky_relu", "relu", "rrelu", "selu", "threshold"])
def test_functions_with_an_underscore_update_their_input(name: str) -> None:
    args = (0.25, 3.0) if name == "threshold" else ()
    x = tg.tensor([-2.0, 0.5, 3.0])
    expected = getattr(F, name)(x, *args)
    assert getattr(F, f"{name}_")(x, *args) is x
    assert x.tolist() == expected.tolist()


# -- pooling at random places ------------------------------------------------------------------------------------------
def starts(sample: float, size: int, out: int, kernel: int) -> list[int]:
    """The first elements of the windows by Graham's pseudo-random sequence, in Python's numbers."""
    step = (size - kernel) / (out - 1) if out > 1 else 0.0
    return [int((i + sample) * step) - int(sample * step) for i in range(out - 1)] + [size - kernel]


def pooled(x: NDArray, samples: NDArray, kernel: tuple[int, ...], out: tuple[int, ...]) -> tuple[NDArray, NDArray]:
    """Maxima and their places, element by element."""
    order = samples[..., ::-1] if len(out) == 2 else samples
    values, places = (np.zeros((*x.shape[:2], *out), dtype) for dtype in (x.dtype, np.int64))
    for n, c in np.ndindex(*x.shape[:2]):
        first = [starts(*each) for each in zip(order[n, c], x.shape[2:], out, kernel)]
        for place in np.ndindex(*out):
            corner = [a[i] for a, i in zip(first, place)]
            inside = itertools.product(*(range(a, a + k) for a, k in zip(corner, kernel)))
            best = max(inside, key=lambda i: (x[(n, c, *i)], tuple(-j for j in i)))
            values[(n, c, *place)] = x[(n, c, *best)]
            places[(n, c, *place)] = np.ravel_multi_index(best, x.shape[2:])
    return values, places


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    ("shape", "kernel", "out"),
    [
        ((2, 3, 7, 9), (2, 2), (3, 4)),
        ((1, 2, 6, 5), (3, 2), (2, 3)),
        ((1, 1, 5, 5), (2, 1), (1, 1)),
        ((0, 2, 8, 8), (3, 3), (4, 4)),
        ((2, 1, 5, 4, 6), (2, 1, 3), (3, 2, 2)),
    ],
)
def test_fractional_pooling_is_that_of_the_paper(
    shape: tuple[int, ...], kernel: tuple[int, ...], out: tuple[int, ...], traced: bool
) -> None:
    count = len(out)
    function = getattr(F, f"fractional_max_pool{count}d")
    x, samples = RNG.integers(0, 6, size=shape).astype(float), RNG.random((*shape[:2], count))

    def run(x: Any, samples: Any) -> Any:
        return function(x, kernel, out, return_indices=True, _random_samples=samples)

    call = tg.trace(run) if traced else run
    leaf = tg.tensor(x, requires_grad=True)
    values, places = call(leaf, tg.tensor(samples))
    expected, at = pooled(x, samples, kernel, out)
    np.testing.assert_array_equal(values.detach(), expected)
    np.testing.assert_array_equal(places, at)
    weights = RNG.random(expected.shape)
    (values * tg.tensor(weights)).sum().backward()
    gradient = np.zeros((*shape[:2], int(np.prod(shape[2:]))))
    for index in np.ndindex(*expected.shape):
        gradient[(*index[:2], at[index])] += weights[index]
    np.testing.assert_allclose(leaf.grad, gradient.reshape(shape))


def test_fractional_pooling_draws_its_windows_at_each_call() -> None:
    layer = nn.FractionalMaxPool2d(2, output_ratio=(0.5, 0.4), return_indices=True)
    x = tg.arange(800.0).reshape(2, 20, 20)
    for call in (layer, tg.trace(lambda x: layer(x))):
        drawn = [call(x)[1] for _ in range(2)]
        assert drawn[0].shape == (2, 10, 8)
        assert (drawn[0] != drawn[1]).any()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: nn.FractionalMaxPool2d(2),
            ValueError,
            "requires specifying either an output size, or a pooling ratio",
        ),
        (lambda: nn.FractionalMaxPool2d(2, 3, 0.5), ValueError, "only one of output_size and output_ratio"),
        (lambda: nn.FractionalMaxPool3d(2, output_ratio=1.5), ValueError, "must be between 0 and 1 .got 1.5"),
        (lambda: F.fractional_max_pool2d(tg.ones(1, 5, 5), 2), ValueError, "either an output_size or an output_ratio"),
        (lambda: F.fractional_max_pool2d(tg.ones(1, 5, 5), 3, 4), RuntimeError, "pool height 3 too large relative to"),
        (lambda: F.fractional_max_pool2d(tg.ones(5, 5), 2, 2), IndexError, "Dimension out of range"),
        (lambda: F.fractional_max_pool2d(tg.ones(1, 5, 5).long(), 2, 2), TypeError, "not implemented for dtype int64"),
        (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 5, []), ValueError, "of length larger than 0"),
        (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2, 5]), ValueError, "between 1 and n_classes-1"),
        (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 5, [3, 2]), ValueError, "sorted in an increasing order"),
        (lambda: SOFTMAX(tg.ones(3, 8), tg.tensor([1, 2])), RuntimeError, "same size in the batch dimension"),
        (
            lambda: SOFTMAX(tg.ones(2, 8), tg.tensor([1, 12])),
            RuntimeError,
            r"in \[0, 9\], but values in range \[1, 12\]",
        ),
        (lambda: SOFTMAX(tg.ones(2, 8), tg.tensor(2)), RuntimeError, "0D target tensor expects 1D input tensors"),
        (lambda: SOFTMAX(tg.ones(8), tg.tensor([[2]])), RuntimeError, "multi-target not supported"),
        (lambda: nn.init.missing, AttributeError, "no attribute 'missing'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


# -- the adaptive softmax ----------------------------------------------------------------------------------------------
tg.manual_seed(8)
SOFTMAX = nn.AdaptiveLogSoftmaxWithLoss(8, 10, [3, 6], div_value=2.0, head_bias=True, dtype=np.float64)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("target", [[0, 1, 7, 9, 4], [0, 1, 2, 0, 0], [8, 8, 9, 9, 8]])
def test_an_adaptive_softmax_is_a_softmax_of_clusters(target: list[int], traced: bool) -> None:
    def log_softmax(x: NDArray) -> Any:
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    x, state = RNG.normal(size=(5, 8)), {k: v.numpy() for k, v in SOFTMAX.state_dict().items()}
    head = log_softmax(x @ state["head.weight"].T + state["head.bias"])
    parts = [head[:, :3]]
    for k in range(2):
        inside = x @ state[f"tail.{k}.0.weight"].T @ state[f"tail.{k}.1.weight"].T
        parts.append(head[:, 3 + k, None] + log_softmax(inside))
    expected = np.concatenate(parts, 1)
    np.testing.assert_allclose(SOFTMAX.log_prob(tg.tensor(x)).detach(), expected)
    assert SOFTMAX.predict(tg.tensor(x)).tolist() == expected.argmax(1).tolist()

    def run(x: Any, target: Any) -> Any:
        return SOFTMAX(x, target)

    call = tg.trace(run) if traced else run
    leaf, classes = tg.tensor(x, requires_grad=True), tg.tensor(target)
    for _ in range(2):
        output, loss = call(leaf, classes)
        np.testing.assert_allclose(output.detach(), expected[np.arange(5), target])
        assert loss.item() == pytest.approx(-expected[np.arange(5), target].mean(), rel=1e-14)
    SOFTMAX.zero_grad()
    loss.backward()
    assert tg.autograd.gradcheck(lambda x: SOFTMAX(x, classes).loss, [tg.tensor(x, requires_grad=True)])
    used = [any(low <= each < high for each in target) for low, high in ((3, 6), (6, 10))]
    assert [projection[0].weight.grad is not None for projection in SOFTMAX.tail] == used
    assert call(leaf[0], classes[0]).output.shape == ()


# -- wrappers and deprecated names -------------------------------------------------------------------------------------
def test_a_data_parallel_module_is_its_module() -> None:
    inside = nn.Linear(2, 1)
    module = nn.DataParallel(inside)
    assert module(tg.ones(3, 2)).tolist() == inside(tg.ones(3, 2)).tolist()
    assert (module.module, module.device_ids) == (inside, [])
    assert list(module.state_dict()) == ["module.weight", "module.bias"]


def test_deprecated_names_warn() -> None:
    x = tg.ones(2, 2)
    with pytest.warns(FutureWarning, match="`nn.init.constant` is now deprecated in favor of `nn.init.constant_`"):
        assert nn.init.constant(x, 3.0) is x
    assert (x == 3).all()
    with pytest.warns(FutureWarning, match="`torch.nn.utils.clip_grad_norm` is now deprecated"):
        assert nn.utils.clip_grad_norm([x], 1.0) == 0
