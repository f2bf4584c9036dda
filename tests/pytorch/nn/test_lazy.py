"""Lazy modules: the first call sets the shapes, and the module is an ordinary one afterwards."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import nn

# The arguments after the number of features or channels, and an input with 4 of them.
LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Linear", (3,), {}, (2, 4)),
    ("Linear", (3,), {"bias": False}, (4,)),
    ("Conv1d", (6, 3), {"groups": 2, "padding": 1}, (2, 4, 5)),
    ("Conv2d", (3, 3), {"padding_mode": "reflect", "padding": 1}, (4, 5, 5)),
    ("Conv3d", (3, 2), {"bias": False}, (1, 4, 3, 3, 3)),
    ("ConvTranspose1d", (6, 3), {"groups": 2}, (2, 4, 5)),
    ("ConvTranspose2d", (3, 3), {"stride": 2, "output_padding": 1}, (4, 3, 3)),
    ("ConvTranspose3d", (3, 2), {}, (1, 4, 2, 2, 2)),
    ("BatchNorm1d", (), {}, (3, 4)),
    ("BatchNorm2d", (), {"momentum": 0.5, "bias": False}, (3, 4, 2, 2)),
    ("BatchNorm3d", (), {"track_running_stats": False}, (3, 4, 2, 2, 2)),
    ("InstanceNorm1d", (), {"affine": True, "track_running_stats": True}, (3, 4, 5)),
    ("InstanceNorm2d", (), {"affine": True, "track_running_stats": True}, (3, 4, 2, 2)),
    ("InstanceNorm3d", (), {"affine": True, "track_running_stats": False}, (3, 4, 2, 2, 2)),
]


@pytest.mark.parametrize(("name", "args", "settings", "shape"), LAYERS)
def test_a_lazy_layer_becomes_the_ordinary_one(
    name: str, args: tuple[Any, ...], settings: dict[str, Any], shape: tuple[int, ...]
) -> None:
    settings = {**settings, "dtype": np.float64}
    x = tg.tensor(np.random.default_rng(0).standard_normal(shape))
    tg.manual_seed(3)
    ordinary = getattr(nn, name)(4, *args, **settings)
    expected = ordinary(x)
    lazy = getattr(nn, f"Lazy{name}")(*args, **settings)
    assert type(lazy) is not type(ordinary)
    assert lazy.has_uninitialized_params()
    assert list(lazy.state_dict()) == list(ordinary.state_dict())
    parameters = dict(lazy.named_parameters())
    tg.manual_seed(3)
    result = lazy(x)
    assert type(lazy) is type(ordinary)
    assert repr(lazy) == repr(ordinary)
    np.testing.assert_array_equal(result.detach(), expected.detach())
    assert {k: id(p) for k, p in lazy.named_parameters()} == {k: id(p) for k, p in parameters.items()}
    assert all(isinstance(p, nn.Parameter) for p in parameters.values())
    for key, value in ordinary.state_dict().items():
        assert value.dtype == lazy.state_dict()[key].dtype
        np.testing.assert_array_equal(value, lazy.state_dict()[key])


def test_an_uninitialized_parameter_has_no_value() -> None:
    parameter = nn.LazyLinear(2, dtype=np.float32).weight
    assert (parameter.dtype, parameter.requires_grad, parameter.grad, parameter.is_leaf) == (
        np.float32,
        True,
        None,
        True,
    )
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter or buffer"):
        _ = parameter.shape
    with pytest.raises(RuntimeError, match="Can't share memory on an uninitialized"):
        parameter.share_memory_()
    actions = (lambda p: p + 1, lambda p: p.detach(), lambda p: p[0], lambda p: p.requires_grad_(False), tg.exp)
    for action in actions:
        with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
            action(parameter)
    for x in (parameter, nn.UninitializedBuffer(dtype=np.float32)):
        for same in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            assert (type(same), same.dtype, same.requires_grad) == (type(x), np.float32, x.requires_grad)
    assert isinstance(parameter, nn.Parameter)
    assert not isinstance(parameter, nn.Buffer)
    assert nn.parameter.is_lazy(parameter)


def test_states_are_loaded_before_and_after_the_first_call() -> None:
    def network() -> nn.Sequential:
        return nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())

    lazy, ready = network(), nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    assert str(lazy.load_state_dict(network().state_dict())) == "<All keys matched successfully>"
    assert lazy[0].has_uninitialized_params()
    with pytest.raises(RuntimeError, match="trying to load an uninitialized parameter into an initialized one"):
        ready.load_state_dict(lazy.state_dict())
    other = copy.deepcopy(lazy)
    other.load_state_dict(ready.state_dict())
    assert not other[0].has_uninitialized_params()
    x = tg.randn(5, 4)
    np.testing.assert_array_equal(other.eval()(x).detach(), ready.eval()(x).detach())
    assert ([type(x) for x in other], other[0].in_features) == ([nn.Linear, nn.BatchNorm1d], 4)
    assert lazy.to(np.float32)[1].running_mean.dtype == np.float32
    assert lazy(tg.randn(5, 4, dtype=np.float32)).dtype == np.float32
    assert [p.dtype for p in lazy.parameters()] == [np.float32] * 4


@pytest.mark.parametrize(
    ("module", "shape", "error", "text"),
    [
        (
            lambda: nn.LazyConv2d(6, 3),
            (3,),
            RuntimeError,
            "Expected 3D .unbatched. or 4D .batched. input to LazyConv2d",
        ),
        (lambda: nn.LazyConv2d(6, 3, groups=2), (1, 3, 5, 5), ValueError, "in_channels must be divisible by groups"),
        (nn.LazyBatchNorm2d, (3, 4), ValueError, "expected 4D input .got 2D input"),
        (nn.modules.lazy.LazyModuleMixin, (3,), NotImplementedError, "initialize_parameters is not implemented"),
        (lambda: Unfinished(), (3,), RuntimeError, "module Unfinished has not been fully initialized"),
    ],
)
def test_inputs_that_tell_no_shapes(module: Any, shape: tuple[int, ...], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        module()(tg.ones(shape))


class Unfinished(nn.modules.lazy.LazyModuleMixin):
    """A module whose parameter stays without a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.UninitializedParameter()

    def initialize_parameters(self, x: Any) -> None:
        pass


def test_a_lazy_network_is_trained_from_the_first_step_on() -> None:
    def losses(traced: bool, lazy: bool) -> list[float]:
        tg.manual_seed(1)
        network = nn.Sequential(nn.LazyLinear(3), nn.Tanh(), nn.LazyLinear(1)) if lazy else None
        network = network or nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        adam = tg.optim.Adam(network.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            adam.zero_grad()
            loss = (network(x) ** 2).sum()
            loss.backward()
            adam.step()
            return loss

        run = tg.trace(step) if traced else step
        x = tg.tensor(np.linspace(-1.0, 1.0, 20).reshape(5, 4))
        results = [run(x).item() for _ in range(4)]
        return results

    expected = losses(False, False)
    assert losses(False, True) == expected
    with pytest.warns(tg.errors.PerformanceWarning, match="a lazy module in it has no shapes yet"):
        traced = losses(True, True)
    np.testing.assert_allclose(traced, expected, rtol=1e-12)
