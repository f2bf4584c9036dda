"""`autograd.functional`: values against closed forms and differences, PyTorch's shapes, tuples and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp
from tracegrad.torch.tape import grad, no_grad
from tracegrad.torch.tape.tensors.factories import ones, tensor, zeros

A = np.array([[2.0, -1.0, 0.5], [0.0, 1.0, 3.0]])
V = np.array([1.0, -2.0, 0.5])
# How a Jacobian can be computed.
WAYS: list[dict[str, Any]] = [{}, {"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}]


def x3(requires_grad: bool = True) -> Any:
    return tensor([1.0, 2.0, 3.0], requires_grad=requires_grad)


def cubes(x: Any) -> Any:
    return (x**3).sum()


def mixed(x: Any, y: Any) -> Any:
    """A scalar whose Hessian has all blocks: `H_xx = diag(2 y)`, `H_xy = diag(2 x)`, `H_yy = diag(6 y)`."""
    return (x * x * y + y**3).sum()


def differences(f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The Jacobian of `f` by central differences, in the shape of the value and then of `x`."""
    columns = []
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = step
        columns.append((f(x + e) - f(x - e)) / (2 * step))
    return np.stack(columns, -1).reshape(*columns[0].shape, *x.shape)


# -- values ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_the_jacobian_of_a_linear_map_is_its_matrix(options: dict[str, Any]) -> None:
    result = jacobian(lambda x: tensor(A) @ x, x3(), **options)
    np.testing.assert_array_equal(result.array, A)
    assert not result.requires_grad


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: x.tanh() * x.exp(),
    "reduction": lambda x: x.exp().sum(1),
    "product": lambda x: x @ x.T,
    "scalar": lambda x: (x.sin() * x).sum(),
    "view": lambda x: x.reshape(-1)[1:] ** 2,
}


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_jacobian_agrees_with_differences(name: str, options: dict[str, Any]) -> None:
    f = FUNCTIONS[name]
    x = np.random.default_rng(1).uniform(0.5, 1.5, (2, 3))
    result = jacobian(f, tensor(x), **options)
    expected = differences(lambda v: f(tensor(v)).array, x)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.array, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vjp_and_jvp_are_products_with_the_jacobian(name: str) -> None:
    f, rng = FUNCTIONS[name], np.random.default_rng(2)
    x = tensor(rng.uniform(0.5, 1.5, (2, 3)))
    matrix = jacobian(f, x).array.reshape(-1, 6)
    out = f(x)
    u, v = rng.normal(size=out.shape), rng.normal(size=x.shape)
    value, row = vjp(f, x, tensor(u))
    np.testing.assert_array_equal(value.array, out.array)
    np.testing.assert_allclose(row.array.reshape(-1), u.reshape(-1) @ matrix, rtol=1e-12, atol=1e-14)
    value, column = jvp(f, x, tensor(v))
    np.testing.assert_array_equal(value.array, out.array)
    np.testing.assert_allclose(column.array.reshape(-1), matrix @ v.reshape(-1), rtol=1e-12, atol=1e-14)
    assert (row.shape, column.shape) == (x.shape, out.shape)


@pytest.mark.parametrize(
    "options", [{}, {"vectorize": True}, {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}], ids=str
)
def test_hessian_has_a_block_for_each_pair_of_inputs(options: dict[str, Any]) -> None:
    x, y = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    blocks = hessian(mixed, (tensor(x), tensor(y)), **options)
    expected = ((np.diag(2 * y), np.diag(2 * x)), (np.diag(2 * x), np.diag(6 * y)))
    assert isinstance(blocks, tuple)
    assert isinstance(blocks[0], tuple)
    for row, wanted in zip(blocks, expected):
        for block, w in zip(row, wanted):
            np.testing.assert_allclose(block.array, w, rtol=1e-14)


@pytest.mark.parametrize("product", [vhp, hvp])
def test_products_with_the_hessian(product: Any) -> None:
    value, result = product(cubes, x3(), tensor(V))
    assert value.item() == 36.0
    np.testing.assert_allclose(result.array, 6 * np.array([1.0, 2.0, 3.0]) * V)
    _, (gx, gy) = product(mixed, (tensor([1.0, 2.0]), tensor([3.0, 5.0])), (tensor([1.0, 0.0]), tensor([0.0, 1.0])))
    np.testing.assert_allclose(gx.array, [6.0, 4.0])
    np.testing.assert_allclose(gy.array, [2.0, 30.0])


def test_one_element_needs_no_vector() -> None:
    s = tensor(2.0)
    assert [v.item() for v in vjp(lambda x: x**3, s)] == [8.0, 12.0]
    assert [v.item() for v in jvp(lambda x: x**3, s)] == [8.0, 12.0]
    assert [v.item() for v in vhp(lambda x: x**3, s)] == [8.0, 12.0]
    assert [v.item() for v in hvp(lambda x: x**3, s)] == [8.0, 12.0]
    assert hessian(lambda x: x**3, s).item() == 12.0


# -- tuples, shapes, dtypes ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("vectorize", [False, True])
def test_results_are_tuples_where_arguments_and_outputs_are(vectorize: bool) -> None:
    def two(x: Any, y: Any) -> tuple[Any, Any]:
        return x.sum() * y, y * 2

    (a, b), (c, d) = jacobian(two, (x3(), tensor([1.0, 2.0])), vectorize=vectorize)
    np.testing.assert_array_equal(a.array, [[1, 1, 1], [2, 2, 2]])
    np.testing.assert_array_equal(b.array, 6 * np.eye(2))
    np.testing.assert_array_equal(c.array, np.zeros((2, 3)))
    np.testing.assert_array_equal(d.array, 2 * np.eye(2))
    (single,) = jacobian(lambda x: x**2, (tensor(2.0),), vectorize=vectorize)
    assert (single.item(), single.shape) == (4.0, ())
    (only,) = jacobian(lambda x: (x**2,), tensor(2.0), vectorize=vectorize)
    assert only.item() == 4.0
    out, v = vjp(lambda x: (x.sum(),), (x3(),))
    assert isinstance(out, tuple)
    assert isinstance(v, tuple)
    out, v = jvp(lambda x: (x * 2, x.sum()), x3(), ones(3))
    assert [p.tolist() for p in v] == [[2.0, 2.0, 2.0], 3.0]


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_what_does_not_depend_on_an_input_has_derivative_zero(options: dict[str, Any]) -> None:
    a, b = jacobian(lambda x, y: x * 2, (x3(), tensor([1.0, 2.0])), **options)
    np.testing.assert_array_equal(a.array, 2 * np.eye(3))
    np.testing.assert_array_equal(b.array, np.zeros((3, 2)))
    np.testing.assert_array_equal(jacobian(lambda x: ones(2), x3(), **options).array, np.zeros((2, 3)))
    assert jacobian(lambda x: x[:0], x3(), **options).shape == (0, 3)


@pytest.mark.parametrize("product", [vhp, hvp])
def test_a_linear_function_has_hessian_zero(product: Any) -> None:
    assert product(lambda x: (2 * x).sum(), x3(), ones(3))[1].tolist() == [0.0] * 3
    assert product(lambda x, y: cubes(x), (x3(), x3()), (ones(3), ones(3)))[1][1].tolist() == [0.0] * 3
    assert product(lambda x: tensor(1.0), x3(), ones(3))[1].tolist() == [0.0] * 3


def test_the_jacobian_has_the_dtype_of_the_input_by_rows_and_of_the_output_by_columns() -> None:
    x = tensor([1.0, 2.0], dtype=np.float32)
    f = lambda x: (x * np.array([1.0, 3.0])).sum()  # noqa: E731
    assert f(x).dtype == np.float64
    assert jacobian(f, x).dtype == np.float32
    assert jacobian(f, x, vectorize=True, strategy="forward-mode").dtype == np.float64


# -- the caller's Tensors and further derivatives ----------------------------------------------------------------------
def test_the_tensors_of_the_caller_are_not_touched() -> None:
    x, seen = x3(), []

    def f(y: Any) -> Any:
        seen.append(y)
        return (y**2).sum()

    for result in (jacobian(f, x), hessian(f, x), *vjp(f, x), *jvp(f, x, ones(3)), *vhp(f, x, ones(3))):
        assert not result.requires_grad
    assert x.grad is None
    assert all(y is not x and y.requires_grad for y in seen)
    plain = x3(False)
    jacobian(f, plain)
    assert not plain.requires_grad


def test_a_tensor_captured_by_the_function_is_not_the_input() -> None:
    x = x3()
    np.testing.assert_array_equal(jacobian(lambda y: x * y, x).array, np.diag([1.0, 2.0, 3.0]))


def test_derivatives_are_taken_although_the_caller_records_nothing() -> None:
    with no_grad():
        assert jacobian(lambda x: x**2, tensor(3.0)).item() == 6.0
        assert hvp(lambda x: x**3, tensor(2.0))[1].item() == 12.0
        assert jacobian(lambda x: x**2, x3(), create_graph=True).requires_grad


@pytest.mark.parametrize("vectorize", [False, True])
def test_create_graph_leads_back_to_the_inputs(vectorize: bool) -> None:
    x = x3()
    matrix = jacobian(lambda x: x**3, x, create_graph=True, vectorize=vectorize)
    assert matrix.grad_fn.name() == "ViewBackward0"
    (g,) = grad(matrix.sum(), x, create_graph=True)
    np.testing.assert_allclose(g.array, 6 * x.array)
    (g,) = grad(g.sum(), x)
    np.testing.assert_allclose(g.array, 6.0)


def test_each_product_can_be_differentiated_further() -> None:
    x, v = x3(), tensor(V, requires_grad=True)
    for product, by_x in ((vjp, 6 * x.array * V), (jvp, 6 * x.array * V)):
        out, result = product(lambda x: x**3, x, v, create_graph=True)
        assert out.requires_grad
        gx, gv = grad(result.sum(), (x, v))
        np.testing.assert_allclose(gx.array, by_x)
        np.testing.assert_allclose(gv.array, 3 * x.array**2)
    for product in (vhp, hvp):
        _, result = product(cubes, x, v, create_graph=True)
        gx, gv = grad(result.sum(), (x, v))
        np.testing.assert_allclose(gx.array, 6 * V)
        np.testing.assert_allclose(gv.array, 6 * x.array)


@pytest.mark.parametrize("vectorize", [False, True])
def test_the_hessian_can_be_differentiated_further(vectorize: bool) -> None:
    x = x3()
    (third,) = grad(hessian(cubes, x, create_graph=True, vectorize=vectorize).sum(), x)
    assert third.tolist() == [6.0, 6.0, 6.0]


def test_derivatives_nest() -> None:
    third = jacobian(lambda x: hessian(lambda y: (y**4).sum(), x, create_graph=True).sum(0), x3())
    np.testing.assert_allclose(third.array, np.diag([24.0, 48.0, 72.0]))


def test_derivatives_are_the_same_inside_and_of_traced_functions() -> None:
    x = x3(False)
    for f in (
        lambda x: jacobian(lambda y: y.sin() * x, x),
        lambda x: hessian(cubes, x, vectorize=True),
        lambda x: hvp(cubes, x, x * x)[1],
    ):
        traced = tg.trace(f)
        for point in (x, x + 1):
            np.testing.assert_allclose(traced(point).array, f(point).array, rtol=1e-14)
    assert hessian(tg.trace(cubes), x).tolist() == np.diag([6.0, 12.0, 18.0]).tolist()


# -- errors, as PyTorch 2.13 says them ---------------------------------------------------------------------------------
NOT_OUTPUT = (
    "Output 0 of the user-provided function does not require gradients. The outputs must be computed in a "
    "differentiable manner from the input when running in strict mode."
)
NO_JACOBIAN = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} is "
    "independent of the input. This is not allowed in strict mode. You should ensure that your function is twice "
    "differentiable and that the jacobian depends on the inputs (this would be violated by a linear function for "
    "example)."
)
INDEPENDENT = (
    "The {} of the user-provided function is independent of input 0. This is not allowed in strict mode when "
    "create_graph=True."
)
NOT_INPUT = "The output of the user-provided function is independent of input 1. This is not allowed in strict mode."
STRICT = {"strict": True}
GRAPH = {"strict": True, "create_graph": True}
BOTH = (x3(), x3())
PAIR = (ones(3), ones(3))
SUM = lambda x: (2 * x).sum()  # noqa: E731
SQUARES = lambda x: (x * x).sum()  # noqa: E731
CONSTANT = lambda x: tensor(1.0)  # noqa: E731
FIRST = lambda x, y: cubes(x)  # noqa: E731
FORWARD = {"strategy": "forward-mode"}

ERRORS: list[tuple[Any, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    (
        jacobian,
        (cubes, 3.0),
        {},
        TypeError,
        "The inputs given to jacobian must be either a Tensor or a tuple of Tensors but the given inputs has type "
        "<class 'float'>.",
    ),
    (
        jacobian,
        (cubes, (x3(), 3.0)),
        {},
        TypeError,
        "The inputs given to jacobian must be either a Tensor or a tuple of Tensors but the value at index 1 has type "
        "<class 'float'>.",
    ),
    (
        jacobian,
        (cubes, [x3()]),
        {},
        TypeError,
        "The inputs given to jacobian must be either a Tensor or a tuple of Tensors but the given inputs has type "
        "<class 'list'>.",
    ),
    (
        hessian,
        (lambda x: 3.0, x3()),
        {},
        TypeError,
        "The outputs of the user-provided function given to hessian must be either a Tensor or a tuple of Tensors but "
        "the given outputs of the user-provided function has type <class 'float'>.",
    ),
    (
        vjp,
        (lambda x: x, x3(), 3.0),
        {},
        TypeError,
        "The v given to vjp must be either a Tensor or a tuple of Tensors but the given v has type <class 'float'>.",
    ),
    (
        jacobian,
        (cubes, tensor([1, 2])),
        {},
        RuntimeError,
        "only Tensors of floating point dtype can require gradients",
    ),
    (
        jacobian,
        (cubes, x3()),
        {"strategy": "x"},
        AssertionError,
        'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs than '
        'inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".',
    ),
    (
        hessian,
        (cubes, x3()),
        {"outer_jacobian_strategy": "x"},
        AssertionError,
        'Expected strategy to be either "forward-mode" or "reverse-mode".',
    ),
    (
        jacobian,
        (cubes, x3()),
        FORWARD,
        NotImplementedError,
        "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for `vectorize=True`.",
    ),
    (
        jacobian,
        (cubes, x3()),
        FORWARD | {"create_graph": True},
        NotImplementedError,
        'autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not supported together '
        '(yet). Please either set `create_graph=False` or `strategy="reverse-mode"`.',
    ),
    (
        jacobian,
        (cubes, x3()),
        FORWARD | STRICT,
        RuntimeError,
        'autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` are not supported together (yet). '
        'Please either set `strict=False` or `strategy="reverse-mode"`.',
    ),
    (
        jacobian,
        (cubes, x3()),
        {"vectorize": True} | STRICT,
        RuntimeError,
        "autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. Please either "
        "set `strict=False` or `vectorize=False`.",
    ),
    (
        hessian,
        (lambda x: (cubes(x),), x3()),
        {},
        RuntimeError,
        "The function given to hessian should return a single Tensor",
    ),
    (
        hessian,
        (lambda x: x, x3()),
        {},
        RuntimeError,
        "The Tensor returned by the function given to hessian should contain a single element",
    ),
    (
        hvp,
        (lambda x: (cubes(x),), x3(), ones(3)),
        {},
        RuntimeError,
        "The function given to hvp should return a single Tensor",
    ),
    (
        vhp,
        (lambda x: x, x3(), ones(3)),
        {},
        RuntimeError,
        "The Tensor returned by the function given to vhp should contain a single element",
    ),
    (
        vjp,
        (lambda x: x**2, x3()),
        {},
        RuntimeError,
        "The vector v can only be None if the user-provided function returns a single Tensor with a single element.",
    ),
    *[
        (
            f,
            (cubes, x3()),
            {},
            RuntimeError,
            "The vector v can only be None if the input to the user-provided function is a single Tensor with a single "
            "element.",
        )
        for f in (jvp, vhp, hvp)
    ],
    *[
        (
            f,
            (lambda x: x.sum(), x3(), ones(2)),
            {},
            RuntimeError,
            "v has invalid size: should be torch.Size([3]) but got torch.Size([2]).",
        )
        for f in (jvp, vhp, hvp)
    ],
    (
        vjp,
        (lambda x: (x, x), x3(), (ones(3), ones(2))),
        {},
        RuntimeError,
        "Entry 1 in v has invalid size: should be torch.Size([3]) but got torch.Size([2]).",
    ),
    (
        vjp,
        (lambda x: (x, x), x3(), ones(3)),
        {},
        RuntimeError,
        "v is a tuple of invalid length: should be 2 but got 1.",
    ),
    (vjp, (lambda x: x, x3(), PAIR), {}, RuntimeError, "The given v should contain a single Tensor."),
    # strict
    (jacobian, (lambda x: ones(2), x3()), STRICT, RuntimeError, NOT_OUTPUT),
    (
        jacobian,
        (lambda x, y: x * 2, BOTH),
        STRICT,
        RuntimeError,
        "Output 0 of the user-provided function is independent of input 1. This is not allowed in strict mode.",
    ),
    (jacobian, (lambda x: x * 2, x3()), GRAPH, RuntimeError, INDEPENDENT.format("jacobian")),
    (hessian, (SUM, x3()), STRICT, RuntimeError, NO_JACOBIAN.format(0)),
    (hessian, (CONSTANT, x3()), STRICT, RuntimeError, NOT_OUTPUT),
    (hessian, (SQUARES, x3()), GRAPH, RuntimeError, INDEPENDENT.format("jacobian")),
    (hessian, (FIRST, BOTH), STRICT, RuntimeError, NO_JACOBIAN.format(1)),
    (
        hessian,
        (lambda x, y: cubes(x) + cubes(y), BOTH),
        STRICT,
        RuntimeError,
        "Output 0 of the user-provided function is independent of input 1. This is not allowed in strict mode.",
    ),
    (vjp, (CONSTANT, x3()), STRICT, RuntimeError, NOT_OUTPUT),
    (vjp, (FIRST, BOTH), STRICT, RuntimeError, NOT_INPUT),
    (vjp, (SUM, x3()), GRAPH, RuntimeError, INDEPENDENT.format("jacobian")),
    (jvp, (CONSTANT, x3(), ones(3)), STRICT, RuntimeError, NOT_OUTPUT),
    (jvp, (FIRST, BOTH, PAIR), STRICT, RuntimeError, NOT_INPUT),
    (jvp, (SUM, x3(), ones(3)), GRAPH, RuntimeError, INDEPENDENT.format("jacobian")),
    *[
        case
        for f in (vhp, hvp)
        for case in (
            (f, (SUM, x3(), ones(3)), STRICT, RuntimeError, NO_JACOBIAN.format(0)),
            (f, (SQUARES, x3(), ones(3)), GRAPH, RuntimeError, INDEPENDENT.format("hessian")),
            (f, (CONSTANT, x3(), ones(3)), STRICT, RuntimeError, NOT_OUTPUT),
            (f, (FIRST, BOTH, PAIR), STRICT, RuntimeError, NOT_INPUT),
            (f, (lambda x, y: cubes(x) + y.sum(), BOTH, PAIR), STRICT, RuntimeError, NO_JACOBIAN.format(1)),
        )
    ],
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors_say_what_pytorch_says(case: int) -> None:
    f, args, options, error, text = ERRORS[case]
    with pytest.raises(error) as caught:
        f(*args, **options)
    message, _, place = str(caught.value).rpartition(" (")
    assert message == text
    assert place.startswith(__file__)


def test_strict_accepts_what_depends_on_its_inputs() -> None:
    assert jacobian(lambda x: x**2, tensor(3.0), strict=True, create_graph=True).item() == 6.0
    assert hessian(SQUARES, x3(), strict=True).tolist() == (2 * np.eye(3)).tolist()
    for product in (vhp, hvp):
        assert product(SQUARES, x3(), ones(3), strict=True)[1].tolist() == [2.0] * 3
    assert jvp(lambda x: x * x, x3(), zeros(3), strict=True)[1].tolist() == [0.0] * 3
