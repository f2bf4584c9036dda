"""PyTorch's functions of elements, its reductions and those of nn.functional, against numbers that PyTorch gave.

`torch_cases.py` has the calls, `data/torch_functions.json` what PyTorch gives for them.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from along import replayed
from torch_cases import CONSTANT, GROUPS, INPUTS, calls, recorded, weights

import tracegrad as tg
from tracegrad.torch.functions.core import registry
from tracegrad.torch.functions.core.generator import default_generator
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.math import special
from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.tape.backward.engine import grad

RECORDED = recorded()
CALLS = [call for group in GROUPS for call in calls(group)]
SPACE = {**FUNCTIONS, "F": F, "S": special, "inf": math.inf}
# PyTorch computes these roughly, or with constants of float32; of the last, the second derivative is of a bound, 1e23.
ROUGH = {
    "F.hardsigmoid(k)": 1e-7,
    "digamma(p)": 1e-9,
    "S.psi(p)": 1e-9,
    "polygamma(0,p)": 1e-9,
    "polygamma(1,p)": 1e-9,
    "F.binary_cross_entropy(p,square(x),weight=fixed,reduction='sum')": 1e-8,
    "F.binary_cross_entropy(edge,bits)": 1e-8,
}
every_call = pytest.mark.parametrize("call", CALLS)


def names_in(call: str) -> list[str]:
    return [name for name in INPUTS if re.search(rf"\b{name}\b", call)]


def evaluate(call: str, inputs: dict[str, Any]) -> list[Any]:
    """The results of a call."""
    result = eval(call, {**SPACE, **inputs})
    return list(result) if isinstance(result, tuple) else [result]


def tensors(call: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of a call as Tensors, and those of them that require grad."""
    inputs, wanted = {}, {}
    for name in names_in(call):
        array = INPUTS[name]
        inputs[name] = tg.tensor(array, requires_grad=array.dtype.kind == "f" and name not in CONSTANT)
        if inputs[name].requires_grad:
            wanted[name] = inputs[name]
    return inputs, wanted


def value(x: Any) -> Any:
    return x.detach().numpy() if isinstance(x, tg.Tensor) else x


def close(got: Any, want: Any, what: str = "", rtol: float = 1e-11) -> None:
    np.testing.assert_allclose(value(got), want, rtol=rtol, atol=1e-12, err_msg=what)


def derivatives(outputs: list[Any], wanted: dict[str, Any]) -> dict[str, Any] | None:
    live = [x for x in outputs if isinstance(x, tg.Tensor) and x.requires_grad]
    if not live:
        return None
    seeds = [tg.tensor(weights(x.shape)) for x in live]
    result = grad(live, list(wanted.values()), seeds, create_graph=True, allow_unused=True)
    return dict(zip(wanted, result))


def test_the_record_is_of_these_calls() -> None:
    assert list(RECORDED) == list(dict.fromkeys(CALLS))


@every_call
def test_a_call_on_arrays_gives_what_pytorch_gives(call: str) -> None:
    results = evaluate(call, {name: INPUTS[name].copy() for name in names_in(call)})
    assert len(results) == len(RECORDED[call]["results"])
    for got, want in zip(results, RECORDED[call]["results"]):
        if not isinstance(want, dict):
            assert got is want
            continue
        assert isinstance(got, np.ndarray)
        assert got.dtype == want["dtype"]
        assert got.shape == np.shape(want["values"])
        close(got, want["values"], rtol=ROUGH.get(call, 1e-11))


@every_call
def test_a_call_on_tensors_has_pytorchs_derivatives_and_node(call: str) -> None:
    inputs, wanted = tensors(call)
    results = evaluate(call, inputs)
    for got, want in zip(results, RECORDED[call]["results"]):
        if isinstance(want, dict):
            close(got, want["values"], rtol=ROUGH.get(call, 1e-11))
    grads = derivatives(results, wanted)
    check_derivatives(grads, RECORDED[call]["grads"], ROUGH.get(call, 1e-11))
    if grads and RECORDED[call]["second"] and call not in ROUGH:
        check_derivatives(derivatives(list(grads.values()), wanted), RECORDED[call]["second"], 1e-9)


@pytest.mark.parametrize("call", [call for call in CALLS if call not in calls("pooling of one dimension")])
def test_the_node_of_a_call_has_pytorchs_name(call: str) -> None:
    nodes = [
        x.grad_fn and x.grad_fn.name() if isinstance(x, tg.Tensor) else None for x in evaluate(call, tensors(call)[0])
    ]
    assert nodes == [name and name.removeprefix("torch::autograd::") for name in RECORDED[call]["nodes"]]


def check_derivatives(got: dict[str, Any] | None, want: dict[str, Any] | None, rtol: float) -> None:
    """No derivative, and one that is zero, are the same number; where PyTorch has nan it says nothing."""
    for name, g in (want or {}).items():
        result = value(got[name]) if got is not None else None
        if result is not None or g is not None:
            told = np.array(0.0 if g is None else g)
            close(np.where(np.isnan(told), np.nan, 0.0 if result is None else result), told, name, rtol)
    assert want is not None or got is None


# -- compiled ------------------------------------------------------------------------------------------------------
# What asks for values, and so makes a trace of its own, or gives no array.
ASKING = ("equal(", "allclose(", "F.one_hot(i)")


def traceable(group: str) -> list[str]:
    return [call for call in dict.fromkeys(calls(group)) if not call.startswith(ASKING)]


@pytest.mark.parametrize("group", GROUPS)
def test_a_traced_group_of_calls_gives_what_pytorch_gives(group: str) -> None:
    chosen = traceable(group)
    names = sorted({name for call in chosen for name in names_in(call)})

    def run(arrays: dict[str, Any]) -> list[Any]:
        return [evaluate(call, arrays) for call in chosen]

    results = tg.trace(run)({name: INPUTS[name] for name in names})
    for call, got in zip(chosen, results):
        for x, want in zip(got, RECORDED[call]["results"]):
            assert x.dtype == want["dtype"], call
            close(x, want["values"], call, ROUGH.get(call, 1e-11))


@pytest.mark.parametrize("group", GROUPS)
def test_the_compiled_derivative_of_a_group_is_the_sum_of_pytorchs(group: str) -> None:
    chosen = [c for c in traceable(group) if RECORDED[c]["grads"] and finite(RECORDED[c]["grads"]) and c not in ROUGH]
    names = sorted({name for call in chosen for name in RECORDED[call]["grads"]})
    fixed = {name: INPUTS[name] for call in chosen for name in names_in(call) if name not in names}

    def total(arrays: dict[str, Any]) -> Any:
        out = 0.0
        for call in chosen:
            for x in evaluate(call, {**fixed, **arrays}):
                out = out + np.sum(x * weights(x.shape)) if x.dtype.kind == "f" else out
        return out

    if not chosen:
        pytest.skip("has no derivative")
    got = tg.grad(total)({name: INPUTS[name] for name in names})
    for name in names:
        told = [RECORDED[call]["grads"].get(name) for call in chosen]
        want = sum(np.array(g) for g in told if g is not None)
        np.testing.assert_allclose(got[name], want, rtol=1e-10, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_of_calls_compiled_on_the_tape_has_the_derivatives_of_eager_mode(group: str) -> None:
    chosen = [c for c in traceable(group) if RECORDED[c]["grads"] and finite(RECORDED[c]["grads"])]
    if not chosen:
        pytest.skip("has no derivative")
    names = sorted({name for call in chosen for name in names_in(call)})

    def total(inputs: dict[str, Any]) -> Any:
        outputs = [x for call in chosen for x in evaluate(call, inputs) if isinstance(x, tg.Tensor) and x.requires_grad]
        return sum((x * tg.tensor(weights(x.shape))).sum() for x in outputs)

    results = []
    for f in (total, tg.trace(total)):
        inputs, wanted = tensors(" ".join(chosen))
        assert sorted(inputs) == names
        first = derivatives([f(inputs)], wanted)
        with replayed():
            second = derivatives([x for x in first.values() if x is not None], wanted)
        results.append({**first, **{f"second of {name}": x for name, x in (second or {}).items()}})
    eager, compiled = results
    for name, want in eager.items():
        if want is None or compiled[name] is None:
            assert not any(value(x).any() for x in (want, compiled[name]) if x is not None), name
        elif np.isfinite(value(want)).all():
            np.testing.assert_allclose(value(compiled[name]), value(want), rtol=1e-8, atol=1e-9, err_msg=name)


def finite(grads: dict[str, Any]) -> bool:
    return all(g is None or np.isfinite(np.array(g)).all() for g in grads.values())


# -- dtypes --------------------------------------------------------------------------------------------------------
OF_ONE = [call for call in calls("functions of one") if re.fullmatch(r"\w+\([xp]\)", call)]


@pytest.mark.parametrize("call", [*OF_ONE, *calls("rectifiers"), *calls("smooth activations"), *calls("choices")])
def test_results_and_gradients_of_float32_are_float32(call: str) -> None:
    arrays = {k: v.astype(np.float32) if v.dtype == float else v for k, v in INPUTS.items() if k in names_in(call)}
    inputs = {k: tg.tensor(v, requires_grad=v.dtype.kind == "f") for k, v in arrays.items()}
    for got, want in zip(evaluate(call, inputs), RECORDED[call]["results"]):
        if want["dtype"] != "float64" or not got.requires_grad:
            continue
        assert got.dtype == np.float32
        np.testing.assert_allclose(value(got), want["values"], rtol=2e-5, atol=2e-6)
        wanted = [x for x in inputs.values() if x.requires_grad]
        for g in grad(got, wanted, tg.tensor(np.ones(got.shape, np.float32)), allow_unused=True, retain_graph=True):
            assert g is None or g.dtype == np.float32


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "bool"])
def test_functions_of_real_numbers_take_integers_as_float64(dtype: str) -> None:
    x = np.array([0, 1, 1], dtype)
    for name in ("exp", "sigmoid", "sqrt", "erf", "sin", "mean", "logsumexp", "softmax", "var", "norm"):
        result = FUNCTIONS[name](x, 0) if name in ("logsumexp", "softmax") else FUNCTIONS[name](x)
        assert result.dtype == np.float64, name
        want = RECORDED_INTEGERS.get(name)
        assert want is None or np.allclose(result, want), name


RECORDED_INTEGERS = {"sqrt": [0, 1, 1], "mean": 2 / 3, "var": 1 / 3, "norm": math.sqrt(2), "exp": [1, math.e, math.e]}


# -- several results, other names, in place ------------------------------------------------------------------------
def test_pairs_have_names_and_print_as_pytorch_prints_them() -> None:
    x = tg.tensor([[1.0, 5.0], [7.0, 2.0]], requires_grad=True)
    result = FUNCTIONS["max"](x, 1)
    values, indices = result
    assert result.values is values
    assert result.indices is indices
    assert re.fullmatch(
        r"tracegrad\.return_types\.max\(\nvalues=tensor\(\[5\., 7\.\], grad_fn=<MaxBackward0>\),\n"
        r"indices=tensor\(\[1, 0\]\)\)",
        repr(result),
    )
    assert FUNCTIONS["aminmax"](x).max.item() == 7.0
    assert FUNCTIONS["median"](x, 0).indices.tolist() == [0, 1]


def test_numpys_names_for_dim_and_keepdim_mean_the_same() -> None:
    x = INPUTS["cube"]
    for name in ("sum", "mean", "var", "std", "amax", "argmin", "logsumexp", "norm", "nansum"):
        want = FUNCTIONS[name](x, dim=1, keepdim=True)
        np.testing.assert_array_equal(FUNCTIONS[name](x, axis=1, keepdims=True), want)
    with pytest.raises(TypeError, match="which mean the same"):
        FUNCTIONS["sum"](x, dim=1, axis=1)


IN_PLACE_OF_ONE = [call.split("(")[0] for call in OF_ONE if call.split("(")[0] in registry.IN_PLACE]


@pytest.mark.parametrize("name", IN_PLACE_OF_ONE)
def test_an_in_place_form_gives_what_the_function_gives(name: str) -> None:
    call = next(c for c in OF_ONE if c.startswith(f"{name}("))
    source = tg.tensor(INPUTS[call[-2]], requires_grad=True)
    x = source * 1.0
    assert getattr(x, f"{name}_")() is x
    close(x, RECORDED[call]["results"][0]["values"])
    (g,) = grad(x, source, tg.tensor(weights(x.shape)))
    close(g, next(iter(RECORDED[call]["grads"].values())), rtol=ROUGH.get(call, 1e-11))


def test_inplace_activations_update_their_input() -> None:
    array = np.array([-1.0, 2.0])
    assert F.relu(array, inplace=True) is array
    assert F.threshold(array, 0.0, 0.0, True) is array
    assert F.relu(array, False) is not array
    assert array.tolist() == [0.0, 2.0]
    x = tg.tensor([-1.0, 2.0], requires_grad=True)
    y = x * 1.0
    assert F.leaky_relu(y, 0.5, inplace=True) is y
    close(grad(y, x, tg.tensor([1.0, 1.0]))[0], [0.5, 1.0])


# -- edges ---------------------------------------------------------------------------------------------------------
def test_logcumsumexp_has_finite_derivatives_after_minus_infinity() -> None:
    x = tg.tensor([-math.inf, -math.inf, 0.0, -math.inf, 1.0], requires_grad=True)
    y = FUNCTIONS["logcumsumexp"](x, 0)
    close(y[2:], [0.0, 0.0, math.log(1 + math.e)])
    (g,) = grad(y[4], x)
    close(g, [0.0, 0.0, 1 / (1 + math.e), 0.0, math.e / (1 + math.e)])


def test_cumprod_is_exact_behind_a_zero_at_every_order() -> None:
    x = tg.tensor([2.0, 0.0, 3.0], requires_grad=True)
    (g,) = grad(FUNCTIONS["cumprod"](x, 0)[2], x, create_graph=True)
    close(g, [0.0, 6.0, 0.0])
    rows = [grad(g[k], x, retain_graph=True)[0].tolist() for k in range(3)]
    assert rows == [[0.0, 3.0, 0.0], [3.0, 0.0, 2.0], [0.0, 2.0, 0.0]]


def test_reductions_of_nothing() -> None:
    empty = np.zeros((0, 3))
    assert FUNCTIONS["sum"](empty).item() == 0.0
    assert FUNCTIONS["prod"](empty, 0).tolist() == [1.0, 1.0, 1.0]
    assert FUNCTIONS["amax"](empty, 1).shape == (0,)
    assert FUNCTIONS["max"](empty, 1).indices.shape == (0,)
    assert np.isnan(FUNCTIONS["median"](empty))
    assert FUNCTIONS["all"](empty)
    assert not FUNCTIONS["any"](empty)


def test_questions_asked_inside_a_trace_are_guarded() -> None:
    def same(x: Any) -> Any:
        return x * 2 if FUNCTIONS["equal"](x, np.ones(2)) else x * 3

    traced = tg.trace(same)
    assert traced(np.ones(2)).tolist() == [2.0, 2.0]
    assert traced(np.zeros(2) + 2).tolist() == [6.0, 6.0]


def test_dropout_keeps_the_mean_and_follows_the_seed() -> None:
    x = np.ones(10_000)
    default_generator.manual_seed(3)
    first = F.dropout(x, 0.25)
    assert set(np.unique(first)) == {0.0, 1 / 0.75}
    assert abs(first.mean() - 1) < 0.03
    default_generator.manual_seed(3)
    np.testing.assert_array_equal(F.dropout(x, 0.25), first)
    assert F.dropout(x, 1.0).max() == 0.0
    default_generator.manual_seed(3)
    compiled = tg.trace(lambda v: F.dropout(v, 0.25))
    np.testing.assert_array_equal(compiled(x), first)
    assert (compiled(x) != first).any()


def test_heaviside_takes_the_value_given_at_zero() -> None:
    assert FUNCTIONS["heaviside"](INPUTS["zeros"] - 1.0, 0.5).tolist() == [[0.0, 0.0, 0.0], [0.5, 0.0, 1.0]]


# -- errors, in PyTorch's words ------------------------------------------------------------------------------------
ERRORS = [
    ("F.nll_loss(x,i[:1])", ValueError, "Expected input batch_size (2) to match target batch_size (1)."),
    ("F.nll_loss(cube,m)", RuntimeError, "Expected target size [2, 4], got [2, 3]"),
    ("F.cross_entropy(x,i,label_smoothing=2)", RuntimeError, "label_smoothing must be between 0.0 and 1.0. Got: 2"),
    ("F.cross_entropy(x,x[:,:2])", RuntimeError, "0D or 1D target tensor expected, multi-target not supported"),
    ("F.cross_entropy(x,i+2)", IndexError, "out of bounds"),
    ("F.mse_loss(x,x,reduction='foo')", ValueError, "foo is not a valid value for reduction"),
    ("F.binary_cross_entropy(x,v)", ValueError, "is deprecated. Please ensure they have the same size."),
    ("F.embedding(i+9,w)", IndexError, "index out of range in self"),
    ("F.embedding(v,w)", RuntimeError, "Expected tensor for argument #1 'indices' to have one of the following scalar"),
    ("F.one_hot(x)", RuntimeError, "one_hot is only applicable to index tensor of type LongTensor."),
    ("F.one_hot(i,2)", RuntimeError, "Class values must be smaller than num_classes."),
    ("F.one_hot(n)", RuntimeError, "Class values must be non-negative."),
    ("F.layer_norm(x,(4,))", RuntimeError, "Given normalized_shape=[4], expected input with shape [*, 4], but got"),
    ("F.layer_norm(x,(3,),b)", RuntimeError, "Expected weight to be of same shape as normalized_shape"),
    ("F.pad(x,(1,2,3))", RuntimeError, "Padding length must be divisible by 2"),
    ("F.softshrink(x,-1)", RuntimeError, "lambda must be in range [0, 1.79769e+308] for input dtype Double, but found"),
    ("F.gelu(x,'f')", RuntimeError, "approximate argument must be either none or tanh."),
    ("F.glu(x)", RuntimeError, "Halving dimension must be even, but dimension 1 is size 3"),
    ("F.prelu(x,b)", RuntimeError, "Found parameter numbers = 4 and channel size = 3."),
    ("F.huber_loss(x,x,delta=0)", RuntimeError, "huber_loss does not support non-positive values for delta."),
    ("F.linear(x,b[None])", RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x1)"),
    ("F.conv2d(image,kernel)", RuntimeError, "expected input[1, 2, 5, 6] to have 1 channels, but got 2 channels"),
    ("F.conv2d(image[:,:,:2],full)", RuntimeError, "Kernel size can't be greater than actual input size"),
    ("F.dropout(x,2.)", ValueError, "dropout probability has to be between 0 and 1, but got 2.0"),
    ("clamp(x)", RuntimeError, "At least one of 'min' or 'max' must not be None"),
    (
        "div(x,2,rounding_mode='f')",
        RuntimeError,
        "div expected rounding_mode to be one of None, 'trunc', or 'floor'",
    ),
    ("max(x[:0])", RuntimeError, "max(): Expected reduction dim to be specified for input.numel() == 0."),
    ("max(x[:0],0)", IndexError, "max(): Expected reduction dim 0 to have non-zero size."),
    ("argmax(x[:0])", IndexError, "argmax(): Expected reduction dim to be specified for input.numel() == 0."),
    ("aminmax(x[:0])", RuntimeError, "cannot compute aminmax over an empty dimension as the operation has no identity"),
    ("sum(x,3)", IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 3)"),
    ("sum(x,(0,0))", RuntimeError, "dim 0 appears multiple times in the list of dims"),
    ("diff(s)", RuntimeError, "diff expects input to be at least one-dimensional"),
    ("norm(x,'foo')", RuntimeError, "Order foo not supported."),
    ("positive(q)", RuntimeError, "The `+` operator, on a bool tensor is not supported."),
    ("std(x,unbiased=True,correction=1)", TypeError, "mean the same"),
    ("trapezoid(x,b)", RuntimeError, "trapezoid: There must be one `x` value for each sample point"),
    ("gradient(x[:1])", RuntimeError, "torch.gradient expected each dimension size to be at least edge_order+1"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS)
def test_errors_say_what_pytorchs_say(call: str, error: type[Exception], text: str) -> None:
    inputs = {name: INPUTS[name] for name in names_in(call)}
    for args in (inputs, {name: tg.tensor(x) for name, x in inputs.items()}):
        with pytest.raises(error, match=re.escape(text)) as raised:
            evaluate(call, args)
        assert issubclass(raised.type, error)


def test_a_target_of_another_size_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=re.escape("Using a target size ((3,)) that is different to the input size")):
        F.mse_loss(INPUTS["x"], INPUTS["v"])


# -- the record itself ---------------------------------------------------------------------------------------------
def test_the_record_is_what_an_installed_pytorch_gives() -> None:
    torch = pytest.importorskip("torch")
    from record_torch import record

    torch.set_default_dtype(torch.float64)
    for call in CALLS:
        again = record(call)
        for got, want in zip(again["results"], RECORDED[call]["results"]):
            if isinstance(want, dict):
                np.testing.assert_allclose(got["values"], want["values"], rtol=1e-9, atol=1e-12, err_msg=call)
        assert again["nodes"] == RECORDED[call]["nodes"], call


@pytest.mark.parametrize("how", ["arrays", "tensors", "traced", "traced tensors"])
def test_batch_norm_moves_the_running_statistics_it_is_given(how: str) -> None:
    result = (lambda v: tg.tensor(v)) if how.endswith("tensors") else np.array
    x, mean, var = result(INPUTS["x"]), result([1.0, 2.0, 3.0]), result([1.0, 1.0, 2.0])
    run = tg.trace(train) if how.startswith("traced") else train
    for _ in range(2):
        run(x, mean, var)
    data, share = INPUTS["x"], 0.9**2
    want = share * np.array([1.0, 2.0, 3.0]) + (1 - share) * data.mean(0)
    np.testing.assert_allclose(value(mean), want, rtol=1e-12)
    want = share * np.array([1.0, 1.0, 2.0]) + (1 - share) * data.var(0, ddof=1)
    np.testing.assert_allclose(value(var), want, rtol=1e-12)


def train(x: Any, mean: Any, var: Any) -> Any:
    return F.batch_norm(x, mean, var, training=True)


def test_what_pytorch_refuses_is_refused() -> None:
    x = tg.tensor(INPUTS["x"])
    for error, call in (
        (ValueError, lambda: F.batch_norm(x[:1], None, None, training=True)),
        (RuntimeError, lambda: F.batch_norm(x, None, None)),
        (RuntimeError, lambda: x.scatter_reduce(1, tg.tensor(INPUTS["places"]), x, "median")),
        (RuntimeError, lambda: tg.quantile(x, 1.5)),
        (RuntimeError, lambda: tg.histc(x, bins=0)),
        (RuntimeError, lambda: F.group_norm(x, 2)),
        (TypeError, lambda: tg.max(x, 0, out=x)),
    ):
        with pytest.raises(error):
            call()
    with pytest.warns(UserWarning, match="was resized"):
        assert tg.add(x, 1, out=tg.zeros(2)).shape == (2, 3)
