"""`gradcheck` finds wrong rules and passes right ones; texts and conditions are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tracegrad.autograd.function import Function
from tracegrad.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck

import tracegrad as tg
from tracegrad.errors import UnsupportedError
from tracegrad.torch import functions  # noqa: F401  registers the functions
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.tape.recording.node import Node, next_number
from tracegrad.torch.tape.tensors.factories import ones, tensor
from tracegrad.torch.tape.tensors.tensor import of_array

RNG = np.random.default_rng(11)


def x3(dtype: Any = None) -> Any:
    return tensor([1.0, 2.0, 3.0], dtype=dtype, requires_grad=True)


# -- functions whose rules are known ---------------------------------------------------------------------------------
class Custom(Node):
    """The node of a function that the test wrote: `rule(ct, x)` is what it gives back."""

    __slots__ = ("array", "count", "is_multi_result", "rule")

    def __init__(self, x: Any, rule: Callable[..., Any], count: int):
        self.edges, self.hooks, self.number = (x._edge_of(),), None, next_number()
        self.array, self.rule, self.count, self.is_multi_result = x.array, rule, count, count > 1

    def pull(self, ct: Any, recording: bool) -> Any:
        return (self.rule(ct, self.array),)


def custom(value: Callable[[Any], Any], rule: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function of one Tensor with this value, whose derivative is by this rule."""

    def f(x: Any) -> Any:
        values = value(x.array)
        several = isinstance(values, tuple)
        node = Custom(x, rule, len(values) if several else 1)
        outputs = []
        for k, v in enumerate(values if several else (values,)):
            out = of_array(np.asarray(v))
            out._requires, out._edge = True, (node, k) if several else node
            outputs.append(out)
        return tuple(outputs) if several else outputs[0]

    return f


right = custom(lambda x: x * x, lambda ct, x: ct * 2 * x)
wrong = custom(lambda x: x * x, lambda ct, x: ct * 3 * x)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_a_right_rule_passes(fast_mode: bool) -> None:
    assert gradcheck(right, x3(), fast_mode=fast_mode)


def test_a_wrong_rule_is_found_and_both_jacobians_are_shown() -> None:
    with pytest.raises(GradcheckError) as caught:
        gradcheck(wrong, x3())
    assert str(caught.value) == (
        "Jacobian mismatch for output 0 with respect to input 0,\n"
        "numerical:tensor([[2.0000, 0.0000, 0.0000],\n        [0.0000, 4.0000, 0.0000],\n"
        "        [0.0000, 0.0000, 6.0000]])\n"
        "analytical:tensor([[3., 0., 0.],\n        [0., 6., 0.],\n        [0., 0., 9.]])\n"
    )
    assert isinstance(caught.value, RuntimeError)
    assert not gradcheck(wrong, x3(), raise_exception=False)


def test_fast_mode_finds_a_wrong_rule_and_shows_the_elements() -> None:
    with pytest.raises(GradcheckError) as caught:
        gradcheck(wrong, x3(), fast_mode=True)
    text = str(caught.value)
    assert text.startswith("Jacobian mismatch for output 0 with respect to input 0,\nnumerical:")
    assert (
        "Below, we recompute numerical and analytical jacobians in slow mode:\n\nNumerical:\n tensor([[2.0000" in text
    )
    assert "Analytical:\ntensor([[3., 0., 0.]" in text
    assert "The max per-element difference (slow mode) is: 2.99999" in text
    with pytest.raises(GradcheckError) as again:
        gradcheck(wrong, x3(), fast_mode=True)
    assert str(again.value) == text


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("element", range(6))
def test_one_wrong_element_is_enough(element: int, fast_mode: bool) -> None:
    def rule(ct: Any, x: Any) -> Any:
        out = ct * 2 * x
        out.reshape(-1)[element] *= 1.5 if fast_mode else 1.01
        return out

    x = tensor(np.arange(1.0, 7.0).reshape(2, 3), requires_grad=True)
    assert not gradcheck(custom(lambda v: v * v, rule), x, fast_mode=fast_mode, raise_exception=False)


def test_the_guilty_output_and_input_are_named() -> None:
    def f(x: Any, y: Any) -> Any:
        return x * y, x + wrong(y)

    with pytest.raises(GradcheckError, match=r"^Jacobian mismatch for output 1 with respect to input 1,"):
        gradcheck(f, (x3(), x3()))


def test_tolerances_decide() -> None:
    nearly = custom(lambda x: x * x, lambda ct, x: ct * 2.002 * x)
    assert not gradcheck(nearly, x3(), rtol=1e-4, raise_exception=False)
    assert gradcheck(nearly, x3(), rtol=1e-2)
    assert gradcheck(nearly, x3(), rtol=0.0, atol=1e-2)


def test_a_rule_that_ignores_its_cotangent_is_found() -> None:
    with pytest.raises(GradcheckError, match=r"^backward not multiplied by grad_output$"):
        gradcheck(custom(lambda x: x.sum(), lambda ct, x: np.ones_like(x)), x3())
    tiny = custom(lambda x: x.sum(), lambda ct, x: np.ones_like(x) * ct + 1e-12)
    assert not gradcheck(tiny, x3(), raise_exception=False)
    assert gradcheck(tiny, x3(), masked=True, check_undefined_grad=False)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_a_rule_that_gives_something_else_each_time_is_found(fast_mode: bool) -> None:
    calls = iter(range(1000))
    f = custom(lambda x: x * 1.0, lambda ct, x: ct * (1 + 1e-9 * next(calls)))
    with pytest.raises(GradcheckError) as caught:
        gradcheck(f, x3(), fast_mode=fast_mode)
    assert str(caught.value).startswith(
        "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
        "different values, although analytical gradient matches numerical gradient."
    )
    assert gradcheck(f, x3(), fast_mode=fast_mode, nondet_tol=1e-5)


def test_a_gradient_of_another_size_or_dtype_is_found() -> None:
    with pytest.raises(GradcheckError, match="incorrect size"):
        gradcheck(custom(lambda x: x * 1.0, lambda ct, x: ct[:1]), x3())
    single = custom(lambda x: x * 1.0, lambda ct, x: ct.astype(np.float32))
    assert gradcheck(single, x3())
    with pytest.raises(GradcheckError, match=r"^Gradient has dtype mismatch$"):
        gradcheck(single, x3(), check_grad_dtypes=True)


def test_rules_must_take_absent_cotangents() -> None:
    values = lambda x: (x * 1.0, x * 2.0)  # noqa: E731
    careless = custom(values, lambda cts, x: cts[0] + 2 * cts[1])
    # Without the check of absent ones, one-hot cotangents of one output leave the other absent all the same.
    with pytest.raises(TypeError):
        gradcheck(careless, x3())

    def careful(cts: Any, x: Any) -> Any:
        return (0 if cts[0] is None else cts[0]) + (0 if cts[1] is None else 2 * cts[1]) + np.zeros_like(x)

    assert gradcheck(custom(values, careful), x3())

    def offset(cts: Any, x: Any) -> Any:
        return careful(cts, x) + (1.0 if cts[0] is None and not np.any(cts[1]) else 0.0)

    with pytest.raises(GradcheckError, match=r"^Expected all input grads to be undefined or zero"):
        gradcheck(custom(values, offset), x3())
    assert gradcheck(custom(values, offset), x3(), check_undefined_grad=False)

    def refuses(cts: Any, x: Any) -> Any:
        if cts[0] is None and not np.any(cts[1]):
            raise RuntimeError("nothing to do")
        return careful(cts, x)

    with pytest.raises(GradcheckError, match=r"^Expected backward function to handle undefined output grads"):
        gradcheck(custom(values, refuses), x3())


# -- functions that say their derivative -------------------------------------------------------------------------------
class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * ct


class WrongSquare(Square):
    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x * ct


class DetachedSquare(Square):
    """Its derivative is right, but not as a function of the input."""

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x.detach() * ct


class BareSquare(Square):
    """Asks for absent cotangents, and does not take them."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return Square.forward(ctx, x)


def test_the_backward_of_a_function_is_checked() -> None:
    assert gradcheck(Square.apply, x3(), check_batched_grad=True)
    assert gradgradcheck(Square.apply, x3(), check_batched_grad=True)
    with pytest.raises(GradcheckError, match=r"^Jacobian mismatch for output 0 with respect to input 0,"):
        gradcheck(WrongSquare.apply, x3())
    assert gradcheck(DetachedSquare.apply, x3())
    with pytest.raises(GradcheckError, match=r"^Jacobian mismatch for output 0 with respect to input 0,"):
        gradgradcheck(DetachedSquare.apply, x3())
    with pytest.raises(GradcheckError, match=r"^Expected backward function to handle undefined output grads"):
        gradcheck(BareSquare.apply, x3())
    assert gradcheck(BareSquare.apply, x3(), check_undefined_grad=False)


# -- arguments -------------------------------------------------------------------------------------------------------
sine = FUNCTIONS["sin"]


def test_something_must_require_grad() -> None:
    text = (
        "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True. "
        rf"\({__file__}"
    )
    for inputs in (x3().detach(), 3.0, ()):
        with pytest.raises(ValueError, match=text):
            gradcheck(sine, inputs)


def test_single_precision_is_warned_of() -> None:
    text = (
        "^Input #1 requires gradient and is not a double precision floating point or complex. This check will likely "
        rf"fail if all the inputs are not of double precision floating point or complex\.  \({__file__}"
    )
    with pytest.warns(UserWarning, match=text) as caught:
        assert gradcheck(lambda y, x: x.sin(), (x3().detach(), x3(np.float32)), eps=1e-2, atol=1e-2)
    assert caught[0].filename == __file__


def test_memory_that_elements_share_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"The 0th input has a dimension with stride 0. gradcheck only supports"):
        gradcheck(sine, tensor([1.0], requires_grad=True).expand(3))
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    with pytest.raises(RuntimeError, match="The 0th input is read-only memory"):
        gradcheck(sine, of_array(frozen, True))


def test_outputs_keep_shape_and_dtype() -> None:
    text = (
        r"Expected `func` to return outputs with the same shape when inputs are perturbed on index \(0,\) by 1e-06, "
        r"but got: shapes \(2,\) and \(3,\)\."
    )
    with pytest.raises(AssertionError, match=text):
        gradcheck(lambda x: x[x > 1.0000000001], x3())
    calls = iter(range(10))
    f = lambda x: tensor(x.array, dtype=np.float64 if next(calls) < 2 else np.float32)  # noqa: E731
    with pytest.raises(AssertionError, match=r"same dtype when inputs are perturbed .* dtypes float64 and float32"):
        gradcheck(f, x3())


def test_inputs_are_left_as_they_were() -> None:
    x = x3()
    assert gradcheck(sine, x)
    assert gradcheck(sine, x, fast_mode=True)
    with pytest.raises(AssertionError):
        gradcheck(lambda x: x[x > 1.0000000001], x)
    assert x.tolist() == [1.0, 2.0, 3.0]
    assert (x.grad, x._version) == (None, 0)


def test_forward_mode_in_batches_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="check_batched_forward_grad"):
        gradcheck(sine, x3(), check_forward_ad=True, check_batched_forward_grad=True)
    assert gradgradcheck(sine, x3(), check_fwd_over_rev=True)


@pytest.mark.parametrize(
    ("check", "options", "text"),
    [
        (
            gradcheck,
            {"check_backward_ad": False},
            "Expected at least one of check_forward_ad or check_backward_ad to be True",
        ),
        (
            gradcheck,
            {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True},
            "Setting check_batched_grad=True requires check_backward_ad to be True",
        ),
        (
            gradcheck,
            {"check_batched_forward_grad": True},
            "Setting check_batched_forward_grad=True requires check_forward_ad to be True",
        ),
        (
            gradgradcheck,
            {"check_rev_over_rev": False},
            "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True",
        ),
        (
            gradgradcheck,
            {"check_fwd_over_rev": True, "check_rev_over_rev": False},
            "Setting check_undefined_grad=True requires check_rev_over_rev to be True",
        ),
        (
            gradgradcheck,
            {
                "check_fwd_over_rev": True,
                "check_rev_over_rev": False,
                "check_undefined_grad": False,
                "check_batched_grad": True,
            },
            "Setting check_batched_grad=True requires check_rev_over_rev to be True",
        ),
    ],
)
def test_options_that_exclude_each_other(check: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        check(sine, x3(), **options)


# -- outputs ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fast_mode", [False, True])
def test_what_does_not_require_grad_must_be_constant(fast_mode: bool) -> None:
    with pytest.raises(GradcheckError, match=r"^Numerical gradient for function expected to be zero$"):
        gradcheck(lambda x: x.detach() * 2, x3(), fast_mode=fast_mode)
    assert gradcheck(lambda x: x.detach() * 0, x3(), fast_mode=fast_mode)


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x,
        lambda x: [x * 2, x],
        lambda x: (x * 2, x.detach()),
        lambda x: x.max(0),
        lambda x: (x.sin(), x > 0),
        lambda x: x[:0],
        lambda x: x.sum(),
    ],
    ids=["itself", "list", "detached beside", "integers beside", "booleans beside", "no elements", "scalar"],
)
def test_outputs_of_every_kind(f: Callable[[Any], Any], fast_mode: bool) -> None:
    assert gradcheck(f, x3(), fast_mode=fast_mode, check_batched_grad=True)


def test_outputs_must_be_tensors() -> None:
    with pytest.raises(TypeError, match="gradcheck expects func to return a Tensor or several, but got NoneType"):
        gradcheck(lambda x: None, x3())


def test_inputs_may_be_unused_captured_views_and_no_tensors_at_all() -> None:
    x = x3()
    assert gradcheck(lambda x, y, k: x * k, [x, x3(), 2])
    assert gradcheck(lambda _: x.sin(), x)
    wide = tensor(np.arange(1.0, 13.0).reshape(3, 4), requires_grad=True)
    assert gradcheck(lambda v: v.log(), wide.T[::2])
    assert gradcheck(sine, tensor(2.0, requires_grad=True))


def test_a_traced_function_is_a_function() -> None:
    f = tg.trace(lambda x, y: (x.sin() * y).sum())
    assert gradcheck(f, (x3(), x3()))
    assert gradgradcheck(f, (x3(), x3()))


# -- second derivatives ----------------------------------------------------------------------------------------------
def test_a_first_derivative_that_hides_a_dependence_is_found() -> None:
    x = x3()
    f = lambda x: x.detach() * x  # noqa: E731
    with pytest.raises(GradcheckError, match=r"^Jacobian mismatch for output 0 with respect to input 0,"):
        gradgradcheck(f, x)
    assert not gradgradcheck(f, x, raise_exception=False, fast_mode=True)


@pytest.mark.parametrize("options", [{}, {"fast_mode": True}, {"gen_non_contig_grad_outputs": True}], ids=str)
def test_second_derivatives(options: dict[str, Any]) -> None:
    def f(a: Any, b: Any) -> Any:
        return a @ b, a.sum() * b

    a, b = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True), tensor([1.0, -1.0], requires_grad=True)
    assert gradgradcheck(f, (a, b), check_batched_grad=True, **options)
    assert gradgradcheck(lambda x: 2 * x, x3(), **options)


def test_cotangents_may_be_given() -> None:
    assert gradgradcheck(lambda x: x**3, x3(), tensor([1.0, -1.0, 2.0], requires_grad=True))
    assert gradgradcheck(lambda x: x**3, x3(), ones(3))
    assert gradgradcheck(lambda x: (x**3).sum(), x3(), (None,))


# -- complex numbers -------------------------------------------------------------------------------------------------
Z = np.array([1 + 2j, 3 - 1j])
square = lambda z: z * z  # noqa: E731
complex_of = lambda x: x + 1j * x * x  # noqa: E731


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(
    ("value", "x", "good", "bad"),
    [
        (square, Z, lambda ct, z: ct * 2 * z.conj(), lambda ct, z: ct * 2 * z),
        (np.abs, Z, lambda ct, z: ct * z / np.abs(z), lambda ct, z: ct * z.conj() / np.abs(z)),
        (lambda z: z.real * 1.0, Z, lambda ct, z: ct * (1 + 0j), lambda ct, z: ct * (1 + 1j)),
        (
            complex_of,
            np.array([1.0, 2.0, 3.0]),
            lambda ct, x: ct.real + 2 * x * ct.imag,
            lambda ct, x: ct.real - 2 * x * ct.imag,
        ),
    ],
    ids=["complex", "complex to real", "real part", "real to complex"],
)
def test_gradients_of_complex_functions_are_pytorchs(value: Any, x: Any, good: Any, bad: Any, fast_mode: bool) -> None:
    point = of_array(x.copy(), True)
    assert gradcheck(custom(value, good), point, fast_mode=fast_mode)
    assert not gradcheck(custom(value, bad), point, fast_mode=fast_mode, raise_exception=False)


def test_the_part_of_a_complex_output_is_named() -> None:
    with pytest.raises(GradcheckError) as caught:
        gradcheck(custom(square, lambda ct, z: ct * 2 * z), of_array(Z.copy(), True))
    assert str(caught.value) == (
        "While considering the imaginary part of complex outputs only, Jacobian mismatch for output 0 with respect to "
        "input 0,\n"
        "numerical:tensor([[ 4.0000+2.0000j,  0.0000+0.0000j],\n        [ 0.0000+0.0000j, -2.0000+6.0000j]])\n"
        "analytical:tensor([[-4.+2.j,  0.+0.j],\n        [ 0.+0.j,  2.+6.j]])\n"
    )


# -- the table -------------------------------------------------------------------------------------------------------
def near(*shape: int) -> Any:
    """Numbers around 1, apart from each other, so that no maximum and no bound is at two of them."""
    count = int(np.prod(shape))
    values = 0.55 + 0.9 * (RNG.permutation(count) + 0.5) / max(count, 1)
    return tensor(values.reshape(shape), requires_grad=True)


F = FUNCTIONS
TABLE: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    **{name: (F[name], ((2, 3),)) for name in (
        "abs", "atan", "cos", "cosh", "digamma", "erf", "erfc", "exp", "exp2", "expm1", "lgamma", "log",
        "log10", "log1p", "log2", "neg", "reciprocal", "rsqrt", "sigmoid", "sin", "sinc", "sinh", "sqrt",
        "square", "tan", "tanh", "sum", "mean", "prod", "std", "var", "amax", "max", "median", "norm", "relu", "trapz",
        "ravel", "tril", "triu", "diff", "std_mean", "var_mean", "unbind",
    )},
    **{name: (F[name], ((2, 3), (3,))) for name in (
        "add", "atan2", "div", "fmax", "fmin", "fmod", "hypot", "logaddexp", "maximum", "minimum", "mul", "pow",
        "remainder", "sub", "xlogy",
    )},
    "cumprod": (lambda x: F["cumprod"](x, 1), ((2, 3),)),
    "cumsum": (lambda x: F["cumsum"](x, 0), ((2, 3),)),
    "logsumexp": (lambda x: F["logsumexp"](x, 1), ((2, 3),)),
    "softmax": (lambda x: F["softmax"](x, 1), ((2, 3),)),
    "log_softmax": (lambda x: F["log_softmax"](x, 0), ((2, 3),)),
    "clamp": (lambda x: F["clamp"](x, 0.7, 1.21), ((2, 3),)),
    "lerp": (F["lerp"], ((3,), (3,), (3,))),
    "addcmul": (F["addcmul"], ((2, 3), (3,), (2, 1))),
    "addcdiv": (F["addcdiv"], ((2, 3), (3,), (2, 1))),
    "where": (lambda x, y: F["where"](x > 1, x * x, y), ((2, 3), (3,))),
    "matmul": (F["matmul"], ((2, 3), (3, 2))),
    "mv": (F["mv"], ((2, 3), (3,))),
    "bmm": (F["bmm"], ((2, 2, 3), (2, 3, 1))),
    "outer": (F["outer"], ((2,), (3,))),
    "dot": (F["dot"], ((3,), (3,))),
    "einsum": (lambda x, y: F["einsum"]("ij,jk->ki", x, y), ((2, 3), (3, 2))),
    "cross": (F["cross"], ((2, 3), (2, 3))),
    "kron": (F["kron"], ((2, 1), (1, 3))),
    "det": (F["det"], ((3, 3),)),
    "inverse": (lambda x: F["inverse"](x + 2 * np.eye(3)), ((3, 3),)),
    "cholesky": (lambda x: F["cholesky"](x @ x.T + np.eye(3)), ((3, 3),)),
    "logdet": (lambda x: F["logdet"](x @ x.T + np.eye(3)), ((3, 3),)),
    "cat": (lambda x, y: F["cat"]([x, y], 0), ((2, 3), (1, 3))),
    "stack": (lambda x, y: F["stack"]([x, y], 1), ((2, 3), (2, 3))),
    "split": (lambda x: F["split"](x, 2, 1), ((2, 3),)),
    "topk": (lambda x: F["topk"](x, 2), ((2, 3),)),
    "sort": (F["sort"], ((2, 3),)),
    "gather": (lambda x: F["gather"](x, 1, tensor([[0, 2], [1, 1]])), ((2, 3),)),
    "index": (lambda x: x[[0, 1, 0], [2, 2, 1]], ((2, 3),)),
    "slice": (lambda x: x[1:, ::2] ** 2, ((2, 3),)),
    "permute": (lambda x: x.permute(1, 0).reshape(2, 3) * x, ((2, 3),)),
    "expand": (lambda x: x.expand(2, 3).sum(0) * x, ((3,),)),
    "in place": (lambda x: (x * 1.0).mul_(x).exp_(), ((2, 3),)),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_the_rules_of_the_table_pass(name: str) -> None:
    f, shapes = TABLE[name]
    inputs = tuple(near(*shape) for shape in shapes)
    assert gradcheck(f, inputs)
    assert gradcheck(f, inputs, fast_mode=True)
    assert gradgradcheck(f, inputs, fast_mode=True)
