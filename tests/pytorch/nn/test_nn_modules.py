"""Modules beside what transcripts say of them: copies, pickles, states of other libraries, and nothing half-done."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import nn


class Net(nn.Module):
    """Two layers that share one, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 3)
        self.two = nn.Sequential(self.one, nn.BatchNorm1d(3))
        self.steps = nn.Buffer(tg.tensor(0), persistent=False)

    def forward(self, x: Any) -> Any:
        """Both."""
        return self.two(self.one(x))


class Foreign:
    """An array of another library: all that is known of it is the protocol."""

    def __init__(self, array: Any):
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


class LikeTorch:
    """A tensor of PyTorch's, as far as states have to do with it."""

    dtype = "torch.float32"

    def __init__(self, array: Any):
        self.array = array

    def detach(self) -> Any:
        """Without the tape."""
        return self

    cpu = detach

    def numpy(self) -> Any:
        """As an ndarray."""
        return self.array


def values(module: Any) -> dict[str, Any]:
    return {name: x.numpy().copy() for name, x in module.state_dict().items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


@pytest.mark.parametrize("remake", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copied", "pickled"])
def test_a_copy_has_parameters_of_its_own_that_are_shared_as_they_were(remake: Any) -> None:
    net = Net()
    result = remake(net)
    assert same(values(result), values(net))
    assert repr(result) == repr(net)
    assert result.two[0] is result.one
    assert [isinstance(p, nn.Parameter) for p in result.parameters()] == [True] * 4
    assert "steps" not in result.state_dict()
    assert isinstance(result.steps, nn.Buffer)
    with tg.no_grad():
        result.one.weight.fill_(0.0)
    assert not same(values(result), values(net))
    x = tg.randn(4, 3)
    result(x).sum().backward()
    assert result.one.weight.grad is not None
    assert net.one.weight.grad is None


@pytest.mark.parametrize("wrap", [np.asarray, tg.from_numpy, Foreign, LikeTorch])
def test_a_state_may_be_of_any_library(wrap: Any) -> None:
    layer, w, b = nn.Linear(2, 3), np.arange(6.0).reshape(3, 2), np.float32([1.0, 2.0, 3.0])
    layer.load_state_dict({"weight": wrap(w), "bias": wrap(b)})
    np.testing.assert_array_equal(layer.weight.detach().numpy(), w)
    assert layer.bias.dtype == np.float64
    assert layer.bias.tolist() == [1.0, 2.0, 3.0]


def test_numpys_way_of_saving_keeps_a_state(tmp_path: Any) -> None:
    net, other = Net(), Net()
    np.savez(tmp_path / "net.npz", **{name: x.numpy() for name, x in net.state_dict().items()})
    with np.load(tmp_path / "net.npz") as state:
        other.load_state_dict(state)
    assert same(values(other), values(net))


def test_safetensors_keep_a_state(tmp_path: Any) -> None:
    files = pytest.importorskip("safetensors.numpy")
    net, other = Net(), Net()
    files.save_file({name: x.numpy() for name, x in net.state_dict().items()}, tmp_path / "net.safetensors")
    other.load_state_dict(files.load_file(tmp_path / "net.safetensors"))
    assert same(values(other), values(net))


@pytest.mark.parametrize("kind", ["Linear(3, 2)", "LSTM(3, 4, 2)", "MultiheadAttention(4, 2)", "BatchNorm1d(3)"])
def test_a_state_of_pytorch_loads_and_gives_its_outputs(kind: str) -> None:
    torch = pytest.importorskip("torch")
    theirs, ours = eval(kind, vars(torch.nn)).double(), eval(kind, vars(nn))
    assert list(theirs.state_dict()) == list(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(0).normal(size=(5, 4 if "Attention" in kind else 3))
    count = 3 if "Attention" in kind else 1
    expected, result = theirs(*[torch.tensor(x)] * count), ours(*[tg.tensor(x)] * count)
    expected, result = (y[0] if isinstance(y, tuple) else y for y in (expected, result))
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-9)


def test_a_parameter_is_one_inside_traces_too() -> None:
    layer = nn.Linear(2, 2)
    compiled = tg.trace(lambda x: x * (2.0 if isinstance(layer.weight, nn.Parameter) else 3.0))
    assert compiled(np.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "bad",
    [
        {"one.bias": np.ones(4)},
        {"one.bias": None},
        {"one.bias": "text"},
        {"one.bias": np.ones(3, complex)},
        {"x": np.ones(1)},
    ],
    ids=["shape", "none", "text", "complex", "unexpected"],
)
def test_a_state_that_does_not_fit_changes_nothing(bad: dict[str, Any]) -> None:
    net = Net()
    before = values(net)
    state = {**{name: x + 1 for name, x in before.items()}, **bad}
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading state_dict for Net:\n\t"):
        net.load_state_dict(state)
    assert same(values(net), before)


def test_what_is_computed_by_parameters_takes_the_short_way_of_tensors() -> None:
    p = nn.Parameter(np.ones(2))
    assert type(p) is tg.Tensor
    assert type(p * 2) is tg.Tensor
    assert not isinstance(p * 2, nn.Parameter)


def test_a_converted_parameter_is_the_same_object_and_keeps_its_gradient() -> None:
    layer = nn.Linear(2, 1)
    layer(tg.ones(2)).sum().backward()
    weight = layer.weight
    layer.float()
    assert layer.weight is weight
    assert weight.grad.dtype == np.float32
    assert layer(tg.ones(2, dtype=tg.float32)).dtype == np.float32


def test_layers_begin_with_the_distributions_that_pytorch_gives_them() -> None:
    tg.manual_seed(3)
    layer = nn.Linear(400, 300)
    for x, bound in ((layer.weight, 1 / 20), (layer.bias, 1 / 20)):
        assert abs(x.detach().numpy()).max() <= bound
        assert x.detach().numpy().std() == pytest.approx(bound / 3**0.5, rel=0.1)
    conv = nn.Conv2d(8, 64, 3, groups=2)
    bound = (4 * 9) ** -0.5
    assert abs(conv.weight.detach().numpy()).max() <= bound
    assert conv.weight.detach().numpy().std() == pytest.approx(bound / 3**0.5, rel=0.05)
    back = nn.ConvTranspose2d(8, 64, 3, groups=2)
    bound = 1 / (32 * 9) ** 0.5
    assert abs(back.weight.detach().numpy()).max() <= bound
    assert abs(back.bias.detach().numpy()).max() <= bound
    assert back.weight.detach().numpy().std() == pytest.approx(bound / 3**0.5, rel=0.05)
    assert nn.Embedding(100, 50).weight.detach().numpy().std() == pytest.approx(1.0, rel=0.05)
    tg.manual_seed(3)
    assert np.array_equal(nn.Linear(400, 300).weight.detach().numpy(), layer.weight.detach().numpy())


def test_initial_values_have_the_spread_that_they_say() -> None:
    tg.manual_seed(4)
    x = tg.empty(200, 100)
    init = nn.init
    for fill, spread in (
        (lambda: init.xavier_uniform_(x, gain=2.0), 2 * (2 / 300) ** 0.5),
        (lambda: init.xavier_normal_(x), (2 / 300) ** 0.5),
        (lambda: init.kaiming_uniform_(x, nonlinearity="relu"), (2 / 100) ** 0.5),
        (lambda: init.kaiming_normal_(x, mode="fan_out", nonlinearity="tanh"), 5 / 3 * (1 / 200) ** 0.5),
        (lambda: init.uniform_(x, -1.0, 3.0), 4 / 12**0.5),
        (lambda: init.normal_(x, 1.0, 2.0), 2.0),
    ):
        assert fill() is x
        assert x.numpy().std() == pytest.approx(spread, rel=0.03)
    w = init.trunc_normal_(x, 0.0, 1.0, -0.5, 2.0).numpy()
    assert -0.5 <= w.min() < -0.49
    assert 1.9 < w.max() <= 2.0
    init.orthogonal_(x, gain=2.0)
    np.testing.assert_allclose(x.numpy().T @ x.numpy(), 4 * np.eye(100), atol=1e-12)
    init.sparse_(x, 0.75)
    assert ((x.numpy() == 0).sum(0) == 150).all()


def test_a_forward_hook_that_always_runs_sees_an_error() -> None:
    class Failing(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("no")

    seen: list[Any] = []
    module = Failing()
    module.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    module.register_forward_hook(lambda m, args, out: seen.append("skipped"))
    with pytest.raises(ValueError, match="no"):
        module(1)
    assert seen == [None]


def test_modules_compute_on_ndarrays_too() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert type(nn.ReLU()(x)) is np.ndarray
    assert nn.Softmax(dim=1)(x).sum() == pytest.approx(2.0)
    layer = nn.Linear(3, 2)
    np.testing.assert_allclose(
        layer(x).detach().numpy(), x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    )


def test_a_transposed_convolution_is_the_transpose_compiled_and_eager() -> None:
    rng = np.random.default_rng(0)
    for stride, padding, dilation, groups, size in (
        (1, 0, 1, 1, 7),
        (2, 1, 1, 2, 9),
        (3, 2, 2, 1, 11),
        (2, 0, 3, 2, 12),
    ):
        x, w = rng.normal(size=(2, 4, size, size)), rng.normal(size=(6, 4 // groups, 3, 3))

        def forth(x: Any, w: Any) -> Any:
            return nn.functional.conv2d(x, w, None, stride, padding, dilation, groups)  # noqa: B023

        y = rng.normal(size=np.shape(forth(x, w)))
        more = (size + 2 * padding - 2 * dilation - 1) % stride

        def back(y: Any, w: Any) -> Any:
            return nn.functional.conv_transpose2d(y, w, None, stride, padding, more, groups, dilation)  # noqa: B023

        wanted = tg.vjp(forth, x, w)[1](y)[0]
        np.testing.assert_allclose(back(y, w), wanted, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(tg.trace(back)(y, w), wanted, rtol=1e-12, atol=1e-12)
        # What is linear in each has the other for a slope.
        derivatives = tg.grad(lambda y, w: np.sum(back(y, w) * x), (0, 1))(y, w)  # noqa: B023
        np.testing.assert_allclose(derivatives[0], forth(x, w), rtol=1e-12, atol=1e-12)
        derivative_in_w = tg.grad(lambda w: np.sum(forth(x, w) * y))(w)  # noqa: B023
        np.testing.assert_allclose(derivatives[1], derivative_in_w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_that_hooks_refuse_changes_nothing(assign: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))
    options = {name: x + 1.0 for name, x in model.state_dict().items()}
    before, parameters = {name: x.clone() for name, x in model.state_dict().items()}, list(model.parameters())
    seen = []

    def refusing(module: Any, keys: Any) -> None:
        seen.append(model[0].bias.item())
        raise KeyError

    handle = model.register_load_state_dict_post_hook(refusing)
    with pytest.raises(KeyError):
        model.load_state_dict(options, assign=assign)
    assert seen == [before["0.bias"].item() + 1.0]
    handle.remove()
    model.register_load_state_dict_post_hook(lambda module, keys: None)
    with pytest.raises(RuntimeError, match="Unexpected"):
        model.load_state_dict({**options, "more": options["0.bias"]}, assign=assign)
    assert all(x is y for x, y in zip(model.parameters(), parameters))
    for name, x in model.state_dict().items():
        np.testing.assert_array_equal(x.numpy(), before[name].numpy())
    assert model.load_state_dict(options, assign=assign) == ([], [])
    np.testing.assert_array_equal(model[0].bias.detach().numpy(), options["0.bias"].numpy())


def test_a_state_without_the_number_of_batches_is_loaded() -> None:
    norm = tg.nn.BatchNorm1d(2)
    norm(tg.randn(3, 2))
    state = {k: v for k, v in norm.state_dict().items() if k != "num_batches_tracked"}
    other = tg.nn.BatchNorm1d(2)
    assert str(other.load_state_dict(state)) == "<All keys matched successfully>"
    np.testing.assert_array_equal(other.running_mean, norm.running_mean)
    with pytest.raises(RuntimeError, match="running_var"):
        other.load_state_dict({k: v for k, v in state.items() if k != "running_var"})


def test_modules_of_one_function_share_forward_and_may_be_subclassed() -> None:
    assert nn.ReLU.forward is nn.Mish.forward
    assert nn.MaxPool1d.forward is nn.MaxPool3d.forward

    class Shifted(nn.ReLU):
        def forward(self, input: Any) -> Any:
            return super().forward(input) + 1.0

    class Named(nn.Tanh):
        pass

    x = tg.tensor([-1.0, 2.0])
    assert Shifted()(x).tolist() == [1.0, 3.0]
    assert tg.trace(lambda x: Shifted()(x))(x).tolist() == [1.0, 3.0]
    assert Named()(x).tolist() == nn.functional.tanh(x).tolist()
    assert pickle.loads(pickle.dumps(nn.Softshrink(0.25)))(x).tolist() == [-0.75, 1.75]


def test_parameters_of_a_plain_dict_are_in_the_order_of_their_names() -> None:
    x = {"w": tg.ones(1), "b": tg.zeros(1)}
    assert list(nn.ParameterDict(x)) == ["b", "w"]
    assert list(nn.ParameterDict(OrderedDict(x))) == list(nn.ParameterDict(x.items())) == ["w", "b"]
    assert list(nn.ParameterDict(nn.ParameterDict(OrderedDict(x)))) == ["w", "b"]
    assert list(nn.ModuleDict({"w": nn.ReLU(), "b": nn.ReLU()})) == ["w", "b"]


def test_backward_hooks_see_gradients_that_come_from_the_output_only() -> None:
    square, seen = nn.MSELoss(), []
    square.register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs))
    x = tg.tensor([2.0], requires_grad=True)
    (g,) = tg.autograd.grad(square(x, tg.zeros(1)), x, create_graph=True)
    assert tg.autograd.grad(g, x)[0].item() == 2.0
    assert len(seen) == 1


def test_pytorchs_modules_of_layers_have_their_names() -> None:
    from tracegrad.nn.modules.batchnorm import _BatchNorm
    from tracegrad.nn.modules.conv import _ConvNd
    from tracegrad.nn.modules.module import Module
    from tracegrad.nn.modules.utils import _pair, _triple

    from tracegrad.nn.modules import Linear

    assert (Linear, Module, nn.modules.loss.MSELoss) == (nn.Linear, nn.Module, nn.MSELoss)
    assert (_pair(3), _triple([1, 2, 3])) == ((3, 3), (1, 2, 3))
    assert isinstance(nn.BatchNorm2d(1), _BatchNorm)
    assert isinstance(nn.ConvTranspose1d(1, 1, 1), _ConvNd)
    assert set(nn.__all__) - {"functional", "init", "utils", "modules"} <= set(dir(nn.modules))
