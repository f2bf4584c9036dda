"""PyTorch's functions of shapes, indices and products compute what PyTorch computes, and so do their derivatives."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch_shapes
from torch_shapes import CALLS, FIXED, FLOATS, call, cotangent, inputs_of

import tracegrad as tg
from tracegrad.torch.functions.core.registry import FUNCTIONS, METHODS

RECORDED = json.loads(torch_shapes.DATA.read_text(encoding="utf-8"))
F = SimpleNamespace(**FUNCTIONS)

each_call = pytest.mark.parametrize("text", CALLS)
DIFFERENTIABLE = [text for text in CALLS if RECORDED[text]["gradients"]]


def method(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    return METHODS[name](x, *args, **kwargs)


def array_of(entry: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.array(entry["values"], entry["dtype"]).reshape(entry["shape"])


def assert_recorded(outputs: tuple[Any, ...], text: str) -> None:
    expected = [array_of(entry) for entry in RECORDED[text]["outputs"]]
    assert [(x.shape, x.dtype) for x in outputs] == [(x.shape, x.dtype) for x in expected]
    for x, y in zip(outputs, expected):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11)


def weighted(outputs: tuple[Any, ...]) -> Any:
    """The sum of the floating outputs, each element times its cotangent."""
    floating = [(k, x) for k, x in enumerate(outputs) if x.dtype.kind == "f"]
    return sum(np.sum(x * cotangent(x.shape, k)) for k, x in floating)


@each_call
def test_arrays_give_the_values_of_pytorch(text: str) -> None:
    assert_recorded(call(text, F, method, FLOATS | FIXED), text)


@each_call
def test_traced_arrays_give_the_values_of_pytorch(text: str) -> None:
    wanted = inputs_of(text)

    def run(*floats: Any) -> Any:
        return call(text, F, method, FLOATS | FIXED | dict(zip(wanted, floats)))

    assert_recorded(tg.trace(run)(*(FLOATS[name] for name in wanted)), text)


@pytest.mark.parametrize("text", DIFFERENTIABLE)
def test_traced_derivatives_are_those_of_pytorch(text: str) -> None:
    gradients = RECORDED[text]["gradients"]

    def total(*floats: Any) -> Any:
        return weighted(call(text, F, method, FLOATS | FIXED | dict(zip(gradients, floats))))

    result = tg.trace(tg.grad(total, argnums=tuple(range(len(gradients)))))(*(FLOATS[name] for name in gradients))
    for x, entry in zip(result, gradients.values()):
        np.testing.assert_allclose(x, array_of(entry), rtol=1e-11, atol=1e-11)


# -- Tensors -------------------------------------------------------------------------------------------------------
# Where one node stands for what PyTorch makes of several, it is called by what it does, not by the last of them.
OTHER_NAMES = {
    'm("sum_to_size", b, 3, 1)': "SumBackward1",
    "f.diag(q)": "DiagonalBackward0",
    "f.diag(q, 1)": "DiagonalBackward0",
    "f.repeat_interleave(x, 2)": "RepeatInterleaveBackward0",
    "f.repeat_interleave(x, 2, dim=1)": "RepeatInterleaveBackward0",
    "f.take_along_dim(x, ij)": "TakeBackward0",
    "f.inner(v, w)": "DotBackward0",
    "f.inner(x, q)": "MmBackward0",
    "f.matmul(v, y)": "MmBackward0",
}
OTHER_STEMS = {
    "f.matmul(": "BmmBackward0",
    "f.einsum(": "EinsumBackward0",
    "f.tensordot(": "TensordotBackward0",
    "f.kron(": "KronBackward0",
}
TAPE_ENDS = ("ViewBackward0", "UnsafeViewBackward0", "CloneBackward0", "PermuteBackward0", "SumBackward1")


def name_of(text: str) -> str:
    """What the node of a call is called."""
    recorded: str = RECORDED[text]["node"]
    stem = next((name for start, name in OTHER_STEMS.items() if text.startswith(start)), recorded)
    return OTHER_NAMES.get(text, stem if recorded in TAPE_ENDS else recorded)


def bound(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    return getattr(x, name)(*args, **kwargs)


def tensors(text: str) -> dict[str, tg.Tensor]:
    wanted = RECORDED[text]["gradients"]
    return {name: tg.tensor(x, requires_grad=name in wanted) for name, x in (FLOATS | FIXED).items()}


def backward(outputs: tuple[Any, ...]) -> None:
    total = sum((x * tg.tensor(cotangent(x.shape, k))).sum() for k, x in enumerate(outputs) if x.requires_grad)
    total.backward()


@each_call
def test_tensors_give_the_values_of_pytorch(text: str) -> None:
    outputs = call(text, F, bound, tensors(text))
    assert all(isinstance(x, tg.Tensor) for x in outputs)
    assert_recorded(tuple(x.detach().numpy() for x in outputs), text)


@pytest.mark.parametrize("text", DIFFERENTIABLE)
def test_a_call_on_tensors_leaves_one_node_with_the_derivatives_of_pytorch(text: str) -> None:
    values = tensors(text)
    outputs = call(text, F, bound, values)
    assert outputs[0].grad_fn.name() == name_of(text)
    backward(outputs)
    for name, entry in RECORDED[text]["gradients"].items():
        result = values[name].grad
        expected = array_of(entry)
        # An input that plays no part has no gradient.
        np.testing.assert_allclose(
            np.zeros_like(expected) if result is None else result.numpy(), expected, rtol=1e-11, atol=1e-11
        )


# The op that a composite records again must be differentiable again.
TWICE = ["f.matmul(b, d)", "f.kron(x, y)", "f.cross(x, z)", "f.addmm(s, x, y, beta=0.5, alpha=2)", "f.outer(v, w)"]


@pytest.mark.parametrize("text", TWICE)
def test_second_derivatives_are_those_of_finite_differences(text: str) -> None:
    names = list(RECORDED[text]["gradients"])

    def slope(x: Any) -> tuple[Any, Any]:
        values = tensors(text)
        first = values[names[-2]] = tg.tensor(x, requires_grad=True)
        loss = sum((out**3).sum() for out in call(text, F, bound, values))
        (first.grad,) = tg.autograd.grad(loss, first, create_graph=True)
        return first, (first.grad * tg.tensor(cotangent(first.shape, 1))).sum()

    start, h = FLOATS[names[-2]], 1e-5
    first, total = slope(start)
    once = first.grad.detach().numpy().copy()
    total.backward()
    result = first.grad.detach().numpy() - once
    for place in np.ndindex(start.shape):
        step = np.zeros_like(start)
        step[place] = h
        difference = (slope(start + step)[1].item() - slope(start - step)[1].item()) / (2 * h)
        np.testing.assert_allclose(result[place], difference, rtol=1e-5, atol=1e-6)


X = np.arange(6.0).reshape(2, 3)
VIEWS = [
    "view(-1)",
    "reshape(3, 2)",
    "t()",
    "T",
    "mT",
    "transpose(0, 1)",
    "permute(1, 0)",
    "unsqueeze(0)",
    "squeeze()",
    "expand(4, 2, 3)",
    "narrow(1, 0, 2)",
    "select(0, 1)",
    "diagonal()",
    "unbind()[0]",
    "split(1)[1]",
    "chunk(2)[1]",
    "tensor_split(2)[1]",
    "ravel()",
    "unflatten(1, (3, 1))",
    "movedim(0, 1)",
    "view_as(x)",
]
COPIES = [
    "flip(0)",
    "roll(1, 0)",
    "rot90()",
    "rot90(4)",
    "repeat(1, 1)",
    "tile(1)",
    "tril()",
    "T.reshape(6)",
    "repeat_interleave(1, dim=0)",
    "masked_fill(x > 1, 0)",
    "diag_embed()",
]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("text", VIEWS)
def test_a_view_shares_memory_and_knows_its_base(text: str, requires_grad: bool) -> None:
    x = tg.tensor(X, requires_grad=requires_grad)
    view = eval(f"x.{text}", {"x": x})
    assert view._is_view()
    assert view._base is x
    assert np.shares_memory(view.detach().numpy(), x.detach().numpy())


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("text", COPIES)
def test_a_copy_has_memory_of_its_own(text: str, requires_grad: bool) -> None:
    x = tg.tensor(X, requires_grad=requires_grad)
    assert not np.shares_memory(eval(f"x.{text}", {"x": x}).detach().numpy(), x.detach().numpy())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x.t().mul_(2)", X * 2),
        ("x.diagonal().fill_(9)", [[9, 1, 2], [3, 9, 5]]),
        ("x.unbind()[0].add_(1)", [[1, 2, 3], [3, 4, 5]]),
        ("x.masked_fill_(x > 1, 0)", [[0, 1, 0], [0, 0, 0]]),
        ("x.index_add_(1, index, x[:, :2] * 0 + 1)", [[1, 2, 2], [4, 5, 5]]),
        ("x.scatter_(1, index[:, None], 7.0)", [[7, 1, 2], [3, 7, 5]]),
        ("x.tril_()", [[0, 0, 0], [3, 4, 0]]),
        ("x.addmm_(x[:, :2] * 0 + 1, x * 0 + 1)", X + 2),
        ("x.fill_diagonal_(5)", [[5, 1, 2], [3, 5, 5]]),
        ("x.__iadd__(1)", X + 1),
    ],
)
def test_a_form_with_an_underscore_updates_in_place(text: str, expected: Any) -> None:
    x = tg.tensor(X)
    eval(text, {"x": x, "index": tg.tensor([0, 1])})
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("x.transpose(0, 5)", IndexError, r"Dimension out of range (expected to be in range of [-2, 1], but got 5)"),
        ("x.select(0, 7)", IndexError, "select(): index 7 out of range for tensor of size [2, 3] at dimension 0"),
        ("x.view(4)", RuntimeError, "shape '[4]' is invalid for input of size 6"),
        ("x.T.view(6)", RuntimeError, "view size is not compatible with input tensor's size and stride"),
        ("x.expand(2, 4)", RuntimeError, "The expanded size of the tensor (4) must match the existing size (3)"),
        ("x @ x", RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"),
        ("x[0].dot(x[0, :2])", RuntimeError, "inconsistent tensor size, expected tensor [3] and src [2]"),
        ("x + x.T", RuntimeError, "The size of tensor a (3) must match the size of tensor b (2) at non-singleton"),
        ("x.add_(x[None])", RuntimeError, "output with shape [2, 3] doesn't match the broadcast shape [1, 2, 3]"),
        ("ints.add_(1.5)", RuntimeError, "result type Double can't be cast to the desired output type Long"),
        ("x.split([1, 2])", RuntimeError, "split_with_sizes expects split_sizes to sum exactly to 2"),
        ("f.cat([])", ValueError, "expected a non-empty list of Tensors"),
        ("f.cat([x, x[0]])", RuntimeError, "Tensors must have same number of dimensions: got 2 and 1"),
        ("f.stack([x, x.T])", RuntimeError, "stack expects each tensor to be equal size, but got [2, 3] at entry 0"),
        ("x.masked_fill(ints, 0)", RuntimeError, "masked_fill_ only supports boolean masks"),
        ("bool(x)", RuntimeError, "Boolean value of Tensor with more than one value is ambiguous"),
        ("x.item()", RuntimeError, "a Tensor with 6 elements cannot be converted to Scalar"),
        ("float(x)", ValueError, "only one element tensors can be converted to Python scalars"),
        ("len(x.sum())", TypeError, "len() of a 0-d tensor"),
        ("iter(x.sum())", TypeError, "iteration over a 0-d tensor"),
        ("[1][x[0, 0]]", TypeError, "only integer tensors of a single element can be converted to an index"),
        ("x.cat", AttributeError, "'Tensor' object has no attribute 'cat'"),
    ],
)
def test_errors_say_what_those_of_pytorch_say(text: str, kind: type[Exception], message: str) -> None:
    names = {"f": F, "x": tg.tensor(X), "ints": tg.tensor([1, 2])}
    with pytest.raises(kind, match=re.escape(message)):
        eval(text, names)


def test_python_sees_a_tensor_as_it_sees_those_of_pytorch() -> None:
    x, one = tg.tensor(X), tg.tensor([2])
    assert (len(x), x.size(), x.size(-1), x.dim(), x.numel(), x.element_size(), x.nbytes) == (2, (2, 3), 3, 2, 6, 8, 48)
    assert [row.tolist() for row in x] == X.tolist()
    assert (int(one), float(one), complex(one), bool(one), [0, 1, 2][one], one.item()) == (2, 2.0, 2 + 0j, True, 2, 2)
    assert 5.0 in x
    assert 6.0 not in x
    assert +x is x
    assert x.real is x
    assert hash(x) == hash(x)
    assert (x == "a") is False
    assert x.contiguous() is x
    assert x.T.contiguous().is_contiguous()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x + 1", "AddBackward0"),
        ("1 - x", "RsubBackward1"),
        ("x - 1", "SubBackward0"),
        ("x ** 2", "PowBackward0"),
        ("x ** x", "PowBackward1"),
        ("2 ** x", "PowBackward2"),
        ("x % 2", "RemainderBackward0"),
        ("x % y", "RemainderBackward1"),
        ("x.T", "PermuteBackward0"),
        ("x.mT", "TransposeBackward0"),
        ("next(iter(x))", "UnbindBackward0"),
        ("x @ x.T", "MmBackward0"),
        ("x @ x[0]", "MvBackward0"),
    ],
)
def test_operators_are_named_as_in_pytorch(text: str, name: str) -> None:
    names = {"x": tg.tensor(X + 1, requires_grad=True), "y": tg.tensor(X + 2, requires_grad=True)}
    assert eval(text, names).grad_fn.name() == name


def test_numpy_functions_of_a_tensor_keep_the_meaning_of_numpy() -> None:
    x = tg.tensor(X, requires_grad=True)
    assert np.transpose(x).shape == (3, 2)
    assert np.repeat(x, 2).tolist() == np.repeat(X, 2).tolist()
    assert np.sum(x).item() == 15.0


def test_strides_count_elements() -> None:
    x = tg.arange(24.0).reshape(2, 3, 4)
    assert (x.stride(), x.transpose(0, 2).stride(), x[:, ::2].stride()) == ((12, 4, 1), (1, 4, 12), (12, 8, 1))
    assert (x.stride(-1), x.stride(0), x.expand(5, 2, 3, 4).stride()[0], tg.ones(()).stride()) == (1, 12, 0, ())
    assert tg.zeros(0, 3).stride() == (3, 1)
    with pytest.raises(IndexError):
        x.stride(3)
