"""`torch.nn.utils` and `torch.optim.swa_utils`: packed sequences, computed weights, and averages of models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import nn
from tracegrad.nn.utils import rnn
from tracegrad.torch.optim import swa_utils

RNG = np.random.default_rng(0)


def sequences(*lengths: int) -> list[Any]:
    return [tg.tensor(RNG.normal(size=(n, 3))) for n in lengths]


def test_sequences_are_padded_packed_and_restored() -> None:
    parts = sequences(2, 4, 1)
    padded = rnn.pad_sequence(parts, padding_value=7.0)
    assert padded.shape == (4, 3, 3)
    assert (padded[2:, 0] == 7).all()
    left = rnn.pad_sequence(parts, batch_first=True, padding_side="left")
    assert (left[0, 2:] == parts[0]).all()
    assert (left[0, :2] == 0).all()
    packed = rnn.pack_padded_sequence(padded, [2, 4, 1], enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1]
    assert (packed.data[:3] == tg.stack([parts[1][0], parts[0][0], parts[2][0]])).all()
    for x, y in zip(rnn.unpack_sequence(packed), parts):
        assert (x == y).all()
    again, lengths = rnn.pad_packed_sequence(packed, batch_first=True, padding_value=7.0, total_length=5)
    assert lengths.tolist() == [2, 4, 1]
    assert (again[:, :4] == padded.transpose(0, 1)).all()
    assert (again[:, 4] == 7).all()
    with pytest.raises(RuntimeError, match="must be sorted in decreasing order"):
        rnn.pack_sequence(parts)
    with pytest.raises(RuntimeError, match="greater than 0"):
        rnn.pack_padded_sequence(padded, [2, 1, 0])
    with pytest.raises(ValueError, match="Expected total_length to be at least"):
        rnn.pad_packed_sequence(packed, total_length=3)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_networks_run_packed_sequences_as_each_alone(kind: Any, bidirectional: bool) -> None:
    tg.manual_seed(0)
    net = kind(3, 4, num_layers=2, bidirectional=bidirectional)
    parts = sequences(2, 5, 3)
    packed = rnn.pack_sequence(parts, enforce_sorted=False)
    output, state = net(packed)
    states = state if isinstance(state, tuple) else (state,)
    assert isinstance(output, rnn.PackedSequence)
    for k, (x, y) in enumerate(zip(parts, rnn.unpack_sequence(output))):
        expected, last = net(x)
        assert tg.allclose(y, expected)
        for result, alone in zip(states, last if isinstance(last, tuple) else (last,)):
            assert tg.allclose(result[:, k], alone)


def test_states_of_packed_sequences_are_in_the_order_of_the_caller() -> None:
    net = nn.GRU(3, 4)
    parts, h = sequences(2, 5), tg.randn(1, 2, 4)
    output, _ = net(rnn.pack_sequence(parts, enforce_sorted=False), h)
    for k, y in enumerate(rnn.unpack_sequence(output)):
        assert tg.allclose(y, net(parts[k], h[:, k])[0])


def test_a_step_over_packed_sequences_compiles() -> None:
    net = nn.LSTM(3, 4)
    padded = rnn.pad_sequence(sequences(4, 2))

    def step(x: Any) -> Any:
        output, _ = net(rnn.pack_padded_sequence(x, [4, 2]))
        net.zero_grad()
        output.data.square().sum().backward()
        return net.weight_hh_l0.grad.clone()

    traced = tg.trace(step)
    for _ in range(3):
        assert tg.allclose(traced(padded), step(padded))
    assert traced.cache_info().traces == 1


def test_weight_norm_has_norms_and_directions() -> None:
    tg.manual_seed(0)
    layer = nn.Linear(3, 4)
    x, y = tg.randn(2, 3), layer(tg.ones(2, 3))
    nn.utils.weight_norm(layer)
    assert tg.allclose(layer(tg.ones(2, 3)), y)
    assert layer.weight_g.shape == (4, 1)
    with tg.no_grad():
        layer.weight_g.mul_(2.0)
    layer(x).sum().backward()
    v, g = layer.weight_v.detach().numpy(), layer.weight_g.detach().numpy()
    expected = g * v / np.linalg.norm(v, axis=1, keepdims=True)
    np.testing.assert_allclose(layer.weight.detach().numpy(), expected)
    assert layer.weight_v.grad.mul(layer.weight_v).sum(1).abs().max() < 1e-12  # no derivative along v
    nn.utils.remove_weight_norm(layer)
    np.testing.assert_allclose(layer.weight.detach().numpy(), expected)
    assert {name for name, _ in layer.named_parameters()} == {"weight", "bias"}
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
        nn.utils.remove_weight_norm(layer)


def test_spectral_norm_divides_by_the_largest_singular_value() -> None:
    tg.manual_seed(0)
    layer = nn.utils.spectral_norm(nn.Linear(3, 4), n_power_iterations=3)
    original = layer.weight_orig.detach().numpy().copy()
    x = tg.randn(2, 3)
    for _ in range(30):
        layer(x)
    np.testing.assert_allclose(layer.weight.detach().numpy(), original / np.linalg.norm(original, 2), rtol=1e-6)
    layer.eval()
    before = layer.weight_u.clone()
    layer(x).sum().backward()
    assert (layer.weight_u == before).all()
    assert layer.weight_orig.grad is not None
    step = tg.trace(layer)
    for _ in range(3):
        assert tg.allclose(step(x), layer(x))
    nn.utils.remove_spectral_norm(layer)
    assert {name for name, _ in layer.named_parameters()} == {"weight", "bias"}


def test_averages_of_models() -> None:
    model = nn.Linear(2, 1)
    mean = swa_utils.AveragedModel(model)
    ema = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.75))
    values = []
    for k in range(4):
        with tg.no_grad():
            model.weight.fill_(float(k))
        values.append(float(k))
        mean.update_parameters(model)
        ema.update_parameters(model)
    assert mean.module.weight.tolist() == [[np.mean(values)] * 2]
    expected = values[0]
    for value in values[1:]:
        expected = 0.75 * expected + 0.25 * value
    assert ema.module.weight.tolist() == [[pytest.approx(expected)] * 2]
    assert int(mean.n_averaged) == 4
    assert "n_averaged" in mean.state_dict()
    with pytest.raises(ValueError, match="Invalid decay value"):
        swa_utils.get_ema_avg_fn(2.0)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_rates_of_averaging_anneal(strategy: str) -> None:
    optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
    schedule = swa_utils.SWALR(optimizer, 0.2, anneal_epochs=4, anneal_strategy=strategy)
    rates = [schedule.get_last_lr()[0]]
    for _ in range(6):
        optimizer.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    t = np.minimum(np.arange(7) / 4, 1)
    share = t if strategy == "linear" else (1 - np.cos(np.pi * t)) / 2
    np.testing.assert_allclose(rates, 0.2 * share + (1 - share))
