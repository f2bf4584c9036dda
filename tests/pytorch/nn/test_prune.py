"""`torch.nn.utils.prune`: masked parameters. The masks are those that PyTorch 2.13 computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import nn
from tracegrad.nn.utils import prune


def waves(*shape: int) -> Any:
    return tg.tensor(np.sin(np.arange(1, np.prod(shape) + 1) * 1.3).reshape(shape))


def linear(columns: int, rows: int) -> Any:
    result = nn.Linear(columns, rows, dtype=tg.float64)
    with tg.no_grad():
        result.weight.copy_(waves(rows, columns))
        result.bias.copy_(waves(rows))
    return result


def zeros(mask: Any) -> list[int]:
    return np.flatnonzero(mask.numpy() == 0).tolist()  # type: ignore[no-any-return]


def test_elements_near_zero_are_pruned_one_method_after_the_other() -> None:
    layer = linear(4, 3)
    before = layer.weight.detach().numpy().copy()
    assert prune.l1_unstructured(layer, "weight", 0.3) is layer
    assert zeros(layer.weight_mask) == np.sort(np.argsort(np.abs(before).ravel())[:4]).tolist()
    assert sorted(layer.state_dict()) == ["bias", "weight_mask", "weight_orig"]
    assert {name for name, _ in layer.named_parameters()} == {"bias", "weight_orig"}
    prune.l1_unstructured(layer, "weight", 2)
    assert zeros(layer.weight_mask) == np.sort(np.argsort(np.abs(before).ravel())[:6]).tolist()
    prune.ln_structured(layer, "weight", 1, n=2, dim=0)
    norms = np.linalg.norm(before, axis=1)
    assert np.argmin(norms) in np.flatnonzero(layer.weight_mask.numpy().sum(1) == 0)
    assert len(layer._forward_pre_hooks) == 1
    np.testing.assert_array_equal(layer.weight.detach().numpy(), before * layer.weight_mask.numpy())


def test_gradients_and_steps_keep_the_mask() -> None:
    layer = prune.ln_structured(linear(3, 2), "weight", 0.5, n=float("inf"), dim=0)
    optimizer = tg.optim.SGD(layer.parameters(), lr=0.1)

    def step() -> Any:
        optimizer.zero_grad()
        loss = layer(waves(4, 3)).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    traced = tg.trace(step)
    losses = [float(traced()) for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert (layer.weight_orig.grad.numpy()[layer.weight_mask.numpy() == 0] == 0).all()
    original = layer.weight_orig.detach().numpy() * layer.weight_mask.numpy()
    assert prune.is_pruned(nn.Sequential(layer))
    prune.remove(layer, "weight")
    np.testing.assert_array_equal(layer.weight.detach().numpy(), original)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    assert not prune.is_pruned(nn.Sequential(layer))
    np.testing.assert_allclose(
        layer(waves(4, 3)).detach().numpy(), waves(4, 3).numpy() @ original.T + layer.bias.detach().numpy()
    )


def test_parameters_are_pruned_as_one_vector() -> None:
    net = nn.Sequential(linear(3, 4), linear(4, 2))
    parameters = [(net[0], "weight"), (net[1], "weight")]
    values = np.concatenate([module.weight.detach().numpy().ravel() for module, _ in parameters])
    prune.global_unstructured(parameters, prune.L1Unstructured, amount=0.4)
    prune.global_unstructured(parameters, prune.L1Unstructured, amount=3)
    masks = np.concatenate([module.weight_mask.numpy().ravel() for module, _ in parameters])
    expected = np.ones(20)
    expected[np.argsort(np.abs(values))[:11]] = 0
    np.testing.assert_array_equal(masks, expected)


def test_scores_stand_for_the_values() -> None:
    layer = prune.l1_unstructured(linear(2, 2), "weight", 1, importance_scores=tg.tensor([[4.0, 3.0], [0.5, 1.0]]))
    assert zeros(layer.weight_mask) == [2]


def test_random_methods_prune_as_many_as_they_should() -> None:
    tg.manual_seed(0)
    layer = prune.random_unstructured(linear(5, 4), "weight", 0.25)
    assert len(zeros(layer.weight_mask)) == 5
    prune.random_structured(layer, "weight", 2, dim=1)
    assert (layer.weight_mask.numpy().sum(0) == 0).sum() >= 2


def test_a_method_prunes_a_tensor_without_a_module() -> None:
    x = waves(2, 3)
    expected = x.numpy().copy()
    expected.ravel()[np.argsort(np.abs(expected).ravel())[:2]] = 0
    np.testing.assert_array_equal(prune.L1Unstructured(2).prune(x).numpy(), expected)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda m: prune.remove(m, "weight"), ValueError, "has to be pruned before"),
        (lambda m: prune.l1_unstructured(m, "weight", 7), ValueError, "smaller than the number of parameters"),
        (lambda m: prune.l1_unstructured(m, "weight", 1.5), ValueError, r"amount=1.5 should either be a float in the"),
        (lambda m: prune.l1_unstructured(m, "weight", "a"), TypeError, "Invalid type for amount: a"),
        (lambda m: prune.ln_structured(m, "weight", 1, 2, 5), IndexError, "Invalid index 5 for tensor of size"),
        (lambda m: prune.ln_structured(m, "bias", 1, 2, 0), ValueError, "only be applied to multidimensional tensors"),
        (lambda m: prune.l1_unstructured(m, "weight", 1, tg.ones(3)), AssertionError, "should have the same shape"),
        (lambda m: prune.custom_from_mask(m, "weight", tg.ones(3)), AssertionError, "must match self.mask shape"),
        (lambda m: prune.l1_unstructured(m, "nothing", 1), AttributeError, "nothing"),
        (lambda m: prune.global_unstructured([(m, "weight")], prune.LnStructured, amount=1, n=2), TypeError, "Only"),
        (lambda m: prune.global_unstructured(1, prune.L1Unstructured, amount=1), TypeError, "not an Iterable"),
    ],
)
def test_bad_arguments_leave_the_module_as_it_was(
    call: Callable[[Any], Any], error: type[Exception], text: str
) -> None:
    layer = linear(2, 2)
    with pytest.raises(error, match=text):
        call(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    assert not layer._forward_pre_hooks
