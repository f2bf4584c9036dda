"""Attention and recurrent networks against NumPy, compiled steps of them, and modules as functions of parameters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import nn
from tracegrad.func import functional_call, grad, replace_all_batch_norm_modules_, stack_module_state, vmap
from tracegrad.trace.sources import class_patching

F = nn.functional


@pytest.fixture(autouse=True)
def strictly() -> Iterator[None]:
    """No part of a step may fall back to plain Python, or lose a derivative: both are told by warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def arrays(module: Any) -> dict[str, Any]:
    return {name: x.numpy().copy() for name, x in module.state_dict().items()}


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def test_attention_is_what_its_definition_says() -> None:
    tg.manual_seed(1)
    module = nn.MultiheadAttention(6, 2, batch_first=True)
    nn.init.normal_(module.in_proj_bias)
    p, x = arrays(module), np.random.default_rng(1).normal(size=(3, 4, 6))
    q, k, v = (x @ p["in_proj_weight"][s].T + p["in_proj_bias"][s] for s in (slice(6), slice(6, 12), slice(12, 18)))
    heads, shares = [], []
    for part in (slice(3), slice(3, 6)):
        shares.append(softmax(q[..., part] @ k[..., part].transpose(0, 2, 1) / 3**0.5))
        heads.append(shares[-1] @ v[..., part])
    expected = np.concatenate(heads, -1) @ p["out_proj.weight"].T + p["out_proj.bias"]
    args = tg.tensor(x)
    output, weights = module(args, args, args)
    np.testing.assert_allclose(output.detach().numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(weights.detach().numpy(), sum(shares) / 2, rtol=1e-10)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_recurrent_network_is_what_its_definition_says(kind: str) -> None:
    tg.manual_seed(2)
    module = getattr(nn, kind)(3, 4)
    p, x = arrays(module), np.random.default_rng(2).normal(size=(5, 3))
    h, c = np.zeros(4), np.zeros(4)
    for row in x:
        a, b = p["weight_ih_l0"] @ row + p["bias_ih_l0"], p["weight_hh_l0"] @ h + p["bias_hh_l0"]
        if kind == "LSTM":
            i, f, g, o = np.split(a + b, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            (r, z, n), (br, bz, bn) = np.split(a, 3), np.split(b, 3)
            z = sigmoid(z + bz)
            h = (1 - z) * np.tanh(n + sigmoid(r + br) * bn) + z * h
    output, state = module(tg.tensor(x))
    np.testing.assert_allclose(output[-1].detach().numpy(), h, rtol=1e-10)
    np.testing.assert_allclose((state[0] if kind == "LSTM" else state)[0].detach().numpy(), h, rtol=1e-10)


class Sequences(nn.Module):
    """An embedding, layers of the kind that is asked for, and scores."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.kind = kind
        if kind == "transformer":
            self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 6, dropout=0.1, batch_first=True), 2)
        else:
            self.body = getattr(nn, kind)(4, 4, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        """Scores of what comes next."""
        result = self.body(self.table(x))
        return self.head(result if self.kind == "transformer" else result[0])


@pytest.mark.parametrize("kind", ["transformer", "LSTM"])
def test_a_compiled_step_of_a_model_of_sequences_does_what_the_eager_one_does(kind: str) -> None:
    x = tg.tensor([[0, 1, 2, 3], [4, 3, 2, 1]])
    results = []
    for wrap in (lambda f: f, tg.trace):
        tg.manual_seed(3)
        net, loss_of = Sequences(kind), nn.CrossEntropyLoss()

        def step(x: Any, net: Any = net, loss_of: Any = loss_of) -> Any:
            net.zero_grad()
            loss = loss_of(net(x[:, :-1]).reshape(-1, 5), x[:, 1:].reshape(-1))
            loss.backward()
            with tg.no_grad():
                for p in net.parameters():
                    p -= 0.1 * p.grad
            return loss

        run = wrap(step)
        results.append(([run(x).item() for _ in range(3)], arrays(net)))
        assert not class_patching._TRACES  # the classes have their own functions again
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-9)
    for name, expected in results[0][1].items():
        np.testing.assert_allclose(results[1][1][name], expected, rtol=1e-7, atol=1e-12, err_msg=name)


def test_attention_drops_weights_and_groups_heads() -> None:
    q, k, v = tg.randn(2, 4, 3, 5), tg.randn(2, 2, 6, 5), tg.randn(2, 2, 6, 5)
    grouped = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    repeated = F.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    np.testing.assert_allclose(grouped.numpy(), repeated.numpy())
    tg.manual_seed(4)
    ones = tg.ones(1, 200, 1)
    result = F.scaled_dot_product_attention(tg.zeros(1, 50, 1), tg.zeros(1, 200, 1), ones, dropout_p=0.5).numpy()
    assert result.mean() == pytest.approx(1.0, abs=0.05)
    assert 0.02 < result.std() < 0.2


# -- as functions of parameters --------------------------------------------------------------------------------------
def made() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.BatchNorm1d(4), nn.Linear(4, 1)).eval()


def test_the_gradient_of_a_functional_call_is_that_of_the_module() -> None:
    net, x = made(), tg.randn(5, 3)
    before = dict(net.named_parameters())
    (net(x) ** 2).sum().backward()
    result = tg.grad(lambda p: (functional_call(net, p, (x.numpy(),)) ** 2).sum())
    plain = result({name: p.detach().numpy() for name, p in before.items()})
    tensors = result({name: p.detach() for name, p in before.items()})
    for name, p in before.items():
        assert net.get_parameter(name) is p
        np.testing.assert_allclose(plain[name], p.grad.numpy(), rtol=1e-9)
        np.testing.assert_allclose(tensors[name].numpy(), p.grad.numpy(), rtol=1e-9)


def test_a_functional_call_that_raises_leaves_the_module_as_it_was() -> None:
    net = made()
    before = list(net.parameters())
    with pytest.raises(RuntimeError):
        functional_call(net, {"0.weight": tg.ones(4, 7)}, tg.ones(1, 3))
    assert [a is b for a, b in zip(net.parameters(), before)] == [True] * len(before)
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): 0.bias.*Unexpected key\(s\): x"):
        functional_call(net, {"0.weight": before[0], "x": before[0]}, tg.ones(1, 3), strict=True)
    with pytest.raises(ValueError, match=r"0\.weight appears in multiple dictionaries"):
        functional_call(net, ({"0.weight": before[0]}, {"0.weight": before[0]}), tg.ones(1, 3))


def test_shared_parameters_are_replaced_everywhere_if_they_are_tied() -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    nn.init.eye_(net[0].weight)
    assert functional_call(net, {"0.weight": 2 * tg.eye(2)}, tg.ones(2)).tolist() == [4.0, 4.0]
    assert functional_call(net, {"0.weight": 2 * tg.eye(2)}, tg.ones(2), tie_weights=False).tolist() == [2.0, 2.0]


def test_many_models_run_at_once_by_their_stacked_states() -> None:
    nets, x = [made() for _ in range(3)], tg.randn(5, 3)
    params, buffers = stack_module_state(nets)
    result = vmap(lambda p, b: functional_call(nets[0], (p, b), (x,)))(params, buffers)
    np.testing.assert_allclose(result.detach().numpy(), np.stack([net(x).detach().numpy() for net in nets]), rtol=1e-12)
    assert all(p.requires_grad for p in params.values())
    with pytest.raises(RuntimeError, match="at least one model"):
        stack_module_state([])
    with pytest.raises(RuntimeError, match="same training/eval mode"):
        stack_module_state([made(), made().train()])
    with pytest.raises(RuntimeError, match="same class"):
        stack_module_state([nn.ReLU(), nn.Tanh()])
    nets[1].get_parameter(next(iter(params))).requires_grad_(False)
    with pytest.raises(RuntimeError, match=r"from each model to have the same \.requires_grad"):
        stack_module_state(nets)


def test_batch_normalizations_without_running_statistics_have_gradients_of_each_sample() -> None:
    net = replace_all_batch_norm_modules_(nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Flatten()))
    params, x = dict(net.named_parameters()), tg.randn(4, 1, 2, 6)

    def loss(p: Any, row: Any) -> Any:
        return functional_call(net, p, (row,)).pow(3).sum()

    each = vmap(grad(loss), in_dims=(None, 0))(params, x)
    for k, row in enumerate(x):
        for name, expected in grad(loss)(params, row).items():
            np.testing.assert_allclose(each[name][k].detach(), expected.detach(), rtol=1e-9, atol=1e-12)
    assert not list(net.buffers())
    assert not net.eval()[1].track_running_stats
