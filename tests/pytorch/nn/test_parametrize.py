"""`torch.nn.utils.parametrize` and `parametrizations`: parameters that are computed from others.

The numbers of orthogonal maps are those that PyTorch 2.13 gives.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import nn
from tracegrad.nn.utils import parametrizations, parametrize


class Symmetric(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x: Any) -> Any:
        return x.triu()


class Positive(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.exp()

    def right_inverse(self, x: Any) -> Any:
        return x.log()


class RankOne(nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return a[:, None] * b

    def right_inverse(self, x: Any) -> Any:
        return x[:, 0].clone(), x[0].clone()


class Inside(nn.Module):
    def forward(self, x: Any) -> Any:
        return x[1:-1]


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    before = tg.get_default_dtype()
    tg.set_default_dtype(tg.float64)
    yield
    tg.set_default_dtype(before)


def waves(*shape: int) -> Any:
    return tg.tensor(np.sin(np.arange(1, np.prod(shape) + 1) * 1.3).reshape(shape))


def linear(columns: int, rows: int) -> Any:
    result = nn.Linear(columns, rows, bias=False)
    with tg.no_grad():
        result.weight.copy_(waves(rows, columns))
    return result


def test_a_parameter_is_computed_at_each_read_and_set_through_its_inverse() -> None:
    layer = linear(3, 3)
    before = layer.weight.detach().numpy().copy()
    assert parametrize.register_parametrization(layer, "weight", Symmetric()) is layer
    expected = np.triu(before) + np.triu(before, 1).T
    np.testing.assert_array_equal(layer.weight.detach().numpy(), expected)
    assert [name for name, _ in layer.named_parameters()] == ["parametrizations.weight.original"]
    parametrize.register_parametrization(layer, "weight", Positive())
    np.testing.assert_allclose(layer.weight.detach().numpy(), np.exp(expected), rtol=1e-15)
    layer.weight = np.e * tg.ones(3, 3)
    original = layer.parametrizations.weight.original
    np.testing.assert_allclose(original.detach().numpy(), np.triu(np.ones((3, 3))), rtol=1e-15)
    layer.weight.sum().backward()
    np.testing.assert_allclose(original.grad.numpy(), np.e * (2 * np.triu(np.ones((3, 3)), 1) + np.eye(3)), rtol=1e-15)
    assert type(layer).__name__ == "ParametrizedLinear"
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    assert parametrize.is_parametrized(layer)
    assert not parametrize.is_parametrized(layer, "bias")


def test_traced_steps_train_the_original() -> None:
    def layers() -> tuple[Any, Any]:
        layer = parametrize.register_parametrization(linear(3, 3), "weight", Symmetric())
        return layer, tg.optim.SGD(layer.parameters(), lr=0.1, momentum=0.5)

    def step(layer: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(waves(2, 3)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    (eager, first), (compiled, second) = layers(), layers()
    traced = tg.trace(lambda: step(compiled, second))
    for _ in range(4):
        np.testing.assert_allclose(float(traced()), float(step(eager, first)), rtol=1e-13)
    np.testing.assert_allclose(compiled.weight.detach().numpy(), eager.weight.detach().numpy(), rtol=1e-13)


def test_tensors_are_computed_once_while_they_are_cached() -> None:
    layer = parametrize.register_parametrization(linear(3, 3), "weight", Symmetric())
    with parametrize.cached():
        with parametrize.cached():
            first = layer.weight
        assert layer.weight is first
    assert layer.weight is not first


def test_several_originals() -> None:
    layer = parametrize.register_parametrization(linear(3, 2), "weight", RankOne())
    shapes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    assert shapes == {"parametrizations.weight.original0": (2,), "parametrizations.weight.original1": (3,)}
    layer.weight = tg.tensor([[2.0, 4.0, 6.0], [3.0, 6.0, 9.0]])
    np.testing.assert_array_equal(layer.weight.detach().numpy(), np.outer([2.0, 3.0], [2.0, 4.0, 6.0]))
    with pytest.raises(ValueError, match="Cannot leave unparametrized"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)


@pytest.mark.parametrize("leave", [True, False])
def test_a_removed_parametrization_leaves_a_parameter(leave: bool) -> None:
    layer = parametrize.register_parametrization(linear(2, 2), "weight", Positive())
    computed, original = (x.detach().numpy().copy() for x in (layer.weight, layer.parametrizations.weight.original))
    assert parametrize.remove_parametrizations(layer, "weight", leave_parametrized=leave) is layer
    assert type(layer) is nn.Linear
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    np.testing.assert_array_equal(layer.weight.detach().numpy(), computed if leave else original)


def test_buffers_stay_buffers() -> None:
    layer = parametrize.register_parametrization(nn.BatchNorm1d(2), "running_var", Positive())
    assert "parametrizations.running_var.original" in dict(layer.named_buffers())


def test_copies_are_independent() -> None:
    layer = parametrize.register_parametrization(linear(2, 2), "weight", Positive())
    other = copy.deepcopy(layer)
    with tg.no_grad():
        other.parametrizations.weight.original.zero_()
    parametrize.remove_parametrizations(layer, "weight")
    np.testing.assert_array_equal(other.weight.detach().numpy(), np.ones((2, 2)))
    assert (layer.weight != 1).all()
    with pytest.raises(RuntimeError, match=r"only supported through state_dict\(\)"):
        pickle.dumps(other)


def test_state_is_loaded_into_the_originals() -> None:
    layer, other = (parametrize.register_parametrization(linear(2, 2), "weight", Positive()) for _ in range(2))
    layer.weight = tg.ones(2, 2)
    assert list(layer.state_dict()) == ["parametrizations.weight.original"]
    other.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(other.weight.detach().numpy(), np.ones((2, 2)))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda m: parametrize.register_parametrization(m, "nothing", Positive()), "with name 'nothing'"),
        (lambda m: parametrize.register_parametrization(m, "weight", nn.Flatten(0)), "may not change the shape"),
        (lambda m: parametrize.remove_parametrizations(m, "weight"), "does not have a parametrization on weight"),
        (lambda m: parametrize.ParametrizationList([], m.weight), "one or more modules"),
        (lambda m: parametrizations.orthogonal(m, orthogonal_map="x"), "Got: x"),
        (lambda m: parametrizations.orthogonal(nn.Linear(1, 1), "bias"), "Got a tensor of 1 dimensions"),
        (lambda m: parametrizations.spectral_norm(m, n_power_iterations=0), "n_power_iterations to be positive"),
    ],
)
def test_bad_arguments_leave_the_module_as_it_was(call: Callable[[Any], Any], text: str) -> None:
    layer = linear(3, 3)
    with pytest.raises(ValueError, match=text):
        call(layer)
    assert type(layer) is nn.Linear
    assert [name for name, _ in layer.named_parameters()] == ["weight"]


def test_a_second_parametrization_may_not_change_the_shape() -> None:
    layer = parametrize.register_parametrization(linear(3, 4), "weight", Positive())
    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(layer, "weight", Inside())
    parametrize.register_parametrization(layer, "weight", Inside(), unsafe=True)
    assert layer.weight.shape == (2, 3)


def test_what_has_no_inverse_cannot_be_set() -> None:
    layer = parametrize.register_parametrization(linear(2, 2), "weight", nn.Tanh())
    with pytest.raises(RuntimeError, match=r"parametrization Tanh does not implement right_inverse\."):
        layer.weight = tg.ones(2, 2)


@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_weight_norm(dim: int | None) -> None:
    layer = linear(3, 4)
    weight = layer.weight.detach().numpy().copy()
    parametrizations.weight_norm(layer, dim=dim)
    np.testing.assert_allclose(layer.weight.detach().numpy(), weight, rtol=1e-14)
    norms = layer.parametrizations.weight.original0
    axis = None if dim is None else 1 - dim % 2
    np.testing.assert_allclose(norms.detach().numpy(), np.linalg.norm(weight, axis=axis, keepdims=dim is not None))
    (layer.weight * waves(4, 3)).sum().backward()
    unit = weight / norms.detach().numpy()
    expected = (unit * waves(4, 3).numpy()).sum(axis, keepdims=dim is not None)
    np.testing.assert_allclose(norms.grad.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", [nn.Linear, nn.ConvTranspose1d])
def test_spectral_norm(kind: type[nn.Module]) -> None:
    tg.manual_seed(0)
    layer = parametrizations.spectral_norm(kind(3, 4, 1) if kind is nn.ConvTranspose1d else kind(3, 4))
    original = layer.parametrizations.weight.original.detach().numpy()
    for _ in range(50):
        weight = layer.weight
    greatest = np.linalg.norm(original.reshape(*original.shape[:2]), 2)
    np.testing.assert_allclose(weight.detach().numpy(), original / greatest, rtol=1e-6)
    layer.eval()
    state = {name: x.clone() for name, x in layer.named_buffers()}
    layer.weight.sum().backward()
    assert all((x == state[name]).all() for name, x in layer.named_buffers())
    assert tuple(layer.parametrizations.weight[0]._u.shape) == (4,)


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (2, 3), (2, 4, 3)])
@pytest.mark.parametrize("name", ["matrix_exp", "cayley", "householder", None])
def test_orthogonal_weights_stay_orthogonal(shape: tuple[int, ...], name: str | None) -> None:
    tg.manual_seed(0)
    layer = nn.Module()
    layer.weight = nn.Parameter(waves(*shape))
    parametrizations.orthogonal(layer, orthogonal_map=name)
    original = layer.parametrizations.weight.original
    assert tuple(original.shape) == shape
    optimizer = tg.optim.SGD([original], lr=0.1)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        weight = layer.weight
        square = weight @ weight.mT if shape[-2] < shape[-1] else weight.mT @ weight
        np.testing.assert_allclose(
            square.detach().numpy(), np.broadcast_to(np.eye(min(shape[-2:])), square.shape), atol=1e-13
        )
        loss = (weight * waves(*shape)).sum()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1]


# The first row of the weight, and the last of the gradient of `(weight * waves(3, 3)).sum()`.
PYTORCH = {
    "matrix_exp": ([0.628119919532, 0.541878659594, 0.55841998976], [1.23824947228, -0.0885258070848, 0.0]),
    "cayley": ([0.629158040598, 0.541555841073, 0.557563835762], [1.22617247252, -0.0947339655435, 0.0]),
    "householder": ([0.455725775261, 0.532552434414, 0.713233427682], [1.80391620575, 1.39053385379, 0.0]),
}


@pytest.mark.parametrize("name", PYTORCH)
def test_orthogonal_maps_have_pytorchs_numbers(name: str) -> None:
    layer = parametrizations.orthogonal(linear(3, 3), orthogonal_map=name)
    original = layer.parametrizations.weight.original
    with tg.no_grad():
        original.add_(0.3 * waves(3, 3).tril(-1))
    weight = layer.weight
    (weight * waves(3, 3)).sum().backward()
    first, last = PYTORCH[name]
    np.testing.assert_allclose(weight[0].detach().numpy(), first, rtol=1e-10)
    np.testing.assert_allclose(original.grad[2].numpy(), last, rtol=1e-10, atol=1e-12)


def test_an_orthogonal_map_without_trivialization_has_no_inverse() -> None:
    layer = parametrizations.orthogonal(linear(3, 3), orthogonal_map="cayley", use_trivialization=False)
    skew = np.tril(waves(3, 3).numpy(), -1)
    skew = skew - skew.T
    expected = np.linalg.solve(np.eye(3) - skew / 2, np.eye(3) + skew / 2)
    np.testing.assert_allclose(layer.weight.detach().numpy(), expected, rtol=1e-12)
    with pytest.raises(NotImplementedError, match="use_trivialization=False"):
        layer.weight = tg.ones(3, 3)
