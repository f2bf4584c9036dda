"""Complex numbers at once and on the tape: ops against finite differences, PyTorch's functions against its own numbers.

A gradient follows PyTorch's convention: the derivative of a real function L of z = x + iy is dL/dx + i dL/dy.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from complex_samples import answer, samples
from torch_complex import CALLS, DATA, INPUTS, names_in, weights

import tracegrad as tg
from tracegrad.errors import DTypeError, UnsupportedError
from tracegrad.ops import TABLE, lazy
from tracegrad.ops.core.op import AS_WRITTEN

assert lazy.fft.fft.name in TABLE  # which is imported late, as those beside it are
RECORDED = json.loads(DATA.read_text())
rng = np.random.default_rng(0)


def like(x: Any) -> Any:
    """Random numbers of the shape and dtype of a real or complex array."""
    out = rng.uniform(-1, 1, x.shape)
    return np.asarray(out + 1j * rng.uniform(-1, 1, x.shape) if x.dtype.kind == "c" else out, x.dtype)


def inner(x: Any, y: Any) -> float:
    """The inner product of arrays as vectors of their real and imaginary parts."""
    return float(np.vdot(x, y).real)


def slope(f: Any, args: list[Any], direction: list[Any], step: float = 1e-6) -> float:
    """The central difference of the real number `f(args)` along a direction."""
    moved = [[a + by * d for a, d in zip(args, direction)] for by in (step, -step)]
    return (f(*moved[0]) - f(*moved[1])) / (2 * step)


# -- every op ----------------------------------------------------------------------------------------------------


# Those whose derivative is meant to differ from that of their values: of Hermitian matrices, and of vectors whose
# phases stay. PyTorch's numbers are those of calls that do not depend on these.
DECLARED = ("symmetric", "mirrored", "eigh", "svd", "eig", "complement", "added_by_svd", "with_derivatives")


every_sample = pytest.mark.parametrize(("op", "operands", "params"), list(samples()))


def results(ans: Any) -> list[Any]:
    """The one result of an op, or its several ones."""
    return list(ans) if isinstance(ans, tuple) else [ans]


def pulled(op: Any, operands: Any, params: Any, cts: Any, places: list[int], create_graph: bool = False) -> Any:
    """The gradients of the operands at `places` for the cotangents `cts` of the results."""
    tensors = [x if hasattr(x, "requires_grad") else tg.tensor(x) for x in operands]
    for i in places:
        tensors[i].requires_grad_()
    outs = results(op(*tensors, **params))
    wanted = [tensors[i] for i in places]
    return tg.autograd.grad(outs, wanted, cts, create_graph=create_graph), wanted


@every_sample
def test_an_op_has_the_right_derivative_or_refuses(op: Any, operands: Any, params: Any) -> None:
    ans = answer(op, operands, params)
    assert (ans is not None) == bool(op.on_complex)
    if ans is None or any(y.dtype.kind not in "fc" for y in results(ans)) or not op.differentiable:
        assert op.on_complex in ("", AS_WRITTEN)
        return
    if op.name in DECLARED:
        pytest.skip("has another derivative by definition")
    places = [i for i, x in enumerate(operands) if x.dtype.kind in "fc" and op.differentiable_in(i)]
    cts = [like(y) for y in results(ans)]
    result, _ = pulled(op, operands, params, [tg.tensor(ct) for ct in cts], places)

    def weighted(*args: Any) -> float:
        return sum(inner(ct, y) for ct, y in zip(cts, results(op(*args, **params))))

    for i, g in zip(places, result):
        x = operands[i]
        assert (g.dtype, g.shape) == (x.dtype, x.shape)
        axes = (1, 1j) if x.dtype.kind == "c" else (1,)
        for direction in (axis * rng.uniform(-1, 1, x.shape) for axis in axes):
            want = slope(lambda v: weighted(*operands[:i], v, *operands[i + 1 :]), [x], [direction])  # noqa: B023
            assert inner(g.numpy(), direction) == pytest.approx(want, rel=1e-5, abs=1e-6)


@every_sample
def test_an_op_has_the_right_second_derivative(op: Any, operands: Any, params: Any) -> None:
    ans = answer(op, operands, params)
    if ans is None or any(y.dtype.kind not in "fc" for y in results(ans)) or not op.differentiable:
        return
    if op.name in DECLARED:
        pytest.skip("has another derivative by definition")
    places = [i for i, x in enumerate(operands) if x.dtype.kind in "fc" and op.differentiable_in(i)]
    count = len(places)
    inputs = [*(operands[i] for i in places), *map(like, results(ans))]
    outs = [like(x) for x in inputs[:count]]

    def gradients(*args: Any) -> list[Any]:
        inside = list(operands)
        for i, x in zip(places, args):
            inside[i] = x
        return [g.numpy() for g in pulled(op, inside, params, [tg.tensor(ct) for ct in args[count:]], places)[0]]

    seeds = [tg.tensor(ct, requires_grad=True) for ct in inputs[count:]]
    first, wanted = pulled(op, operands, params, seeds, places, create_graph=True)
    live = [(g, w) for g, w in zip(first, outs) if g.requires_grad]
    cts = [tg.tensor(w) for _, w in live]
    result = tg.autograd.grad([g for g, _ in live], [*wanted, *seeds], cts, allow_unused=True)
    directions = [like(x) for x in inputs]
    want = slope(lambda *args: sum(inner(w, g) for w, g in zip(outs, gradients(*args))), inputs, directions)
    got = sum(inner(g.numpy(), d) for g, d in zip(result, directions) if g is not None)
    assert got == pytest.approx(want, rel=1e-4, abs=1e-5)


def test_an_op_that_the_table_does_not_know_refuses_a_complex_cotangent() -> None:
    with pytest.raises(UnsupportedError, match="the derivative of maximum of complex numbers is not known"):
        TABLE["maximum"].pull(0, np.array([1j]), None, (np.ones(1), np.ones(1)), {})


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["sin", "multiply", "matmul", "reduce_sum", "absolute", "conj", "var"])
def test_an_op_keeps_the_precision(name: str, dtype: str) -> None:
    op = TABLE[name]
    operands, params = next(iter(op.sample_cases()))
    out = op(*(np.asarray(x, dtype) for x in operands), **params)
    assert out.dtype == dtype if out.dtype.kind == "c" else out.dtype == np.finfo(dtype).dtype


# -- PyTorch's functions -----------------------------------------------------------------------------------------
def from_parts(recorded: Any, like: Any) -> Any:
    array = np.asarray(recorded)
    return array[..., 0] + 1j * array[..., 1] if like.dtype.kind == "c" else array


def test_the_record_is_of_these_calls() -> None:
    assert list(RECORDED) == CALLS


@pytest.mark.parametrize("call", CALLS)
def test_values_and_gradients_are_pytorchs(call: str) -> None:
    inputs = {name: tg.tensor(INPUTS[name], requires_grad=True) for name in names_in(call)}
    out = eval(call, {"f": tg, **inputs})
    seed = tg.tensor(weights(out.shape, out.dtype))
    values = [out.detach(), *tg.autograd.grad(out, list(inputs.values()), seed)]
    rtol = 2e-6 if out.dtype == np.complex64 else 1e-10
    assert len(values) == len(RECORDED[call])
    for got, want in zip(values, RECORDED[call]):
        expected = from_parts(want, got)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got.numpy(), expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("call", [call for call in CALLS if "complex64" not in call])
def test_second_derivatives_pass_gradgradcheck(call: str) -> None:
    names = names_in(call)
    inputs = [tg.tensor(INPUTS[name], requires_grad=True) for name in names]
    assert tg.autograd.gradgradcheck(lambda *xs: eval(call, {"f": tg, **dict(zip(names, xs))}), inputs, fast_mode=True)


# -- what has no meaning -----------------------------------------------------------------------------------------
Z = tg.tensor([1 + 2j, 3 - 1j])


MEANINGLESS = """
f.maximum(z, z) | f.sign(z) | f.floor(z) | f.round(z) | z % 2 | z // 2 | f.clamp(z, 0, 1) | f.erf(z)
f.atan2(z, z) | f.amax(z) | f.sort(z) | f.argmax(z) | f.median(z) | f.relu(z) | f.softmax(z, 0)
np.floor(z)
"""


@pytest.mark.parametrize("call", [call.strip() for call in MEANINGLESS.strip().replace("\n", "|").split("|")])
def test_what_has_no_complex_meaning_is_refused(call: str) -> None:
    with pytest.raises((DTypeError, UnsupportedError), match="complex"):
        eval(call, {"f": tg, "z": Z, "np": np})


# -- PyTorch's conditions ----------------------------------------------------------------------------------------
def test_a_weight_of_a_complex_output_must_be_given_and_be_complex() -> None:
    z = tg.tensor([1 + 2j], requires_grad=True)
    with pytest.raises(RuntimeError, match=r"implicitly created only for real scalar outputs but got torch.complex128"):
        z.sum().backward()
    mismatch = "both grad_output and output are required to have the same dtype. Mismatch in dtype: grad_output"
    with pytest.raises(RuntimeError, match=mismatch):
        z.sum().backward(tg.tensor(1.0))
    with pytest.raises(RuntimeError, match=mismatch):
        z.abs().sum().backward(tg.tensor(1j))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("x.imag", "imag is not implemented for tensors with non-complex dtypes"),
        ("f.view_as_real(x)", "view_as_real is only supported for complex tensors"),
        ("f.view_as_complex(f.ones(3))", "Tensor must have a last dimension of size 2"),
        ("f.view_as_complex(f.ones(2, 2).T)", "Tensor must have a last dimension with stride 1"),
        (
            "f.view_as_complex(f.ones(2, dtype=f.int64))",
            "only supported for half, float and double .* scalar type: Long",
        ),
        ("f.complex(x, x.float())", "Expected object of scalar type Double but got scalar type Float"),
        (
            "f.complex(x.long(), x.long())",
            "Expected both inputs to be Half, Float or Double tensors but got Long and Long",
        ),
        ("x.mul_(1j)", "result type ComplexDouble can't be cast to the desired output type Double"),
        ("x.fill_(1j)", "value cannot be converted to type double without overflow"),
        ("x.__setitem__(0, 1j)", "value cannot be converted to type double without overflow"),
        ("float(z[0])", "value cannot be converted to type double without overflow"),
        ("int(z[0])", "value cannot be converted to type int64_t without overflow"),
        ("f.autograd.functional.jacobian(f.exp, z)", "only for real scalar outputs but got torch.complex128"),
        ("z.H", "tensor.H is only supported on matrices"),
        ("z.mH", "tensor.mH is only supported on matrices or batches of matrices. Got 1-D tensor"),
        ("z.adjoint()", "adjoint.. is only supported on matrices or batches of matrices. Got 1-D tensor"),
    ],
)
def test_misuse_raises_pytorchs_error(call: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        eval(call, {"f": tg, "x": tg.ones(2), "z": Z})


# -- numbers and dtypes ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dtype", "want"),
    [("float32", "complex64"), ("float64", "complex128"), ("int64", "complex128"), ("complex64", "complex64")],
)
def test_a_python_complex_number_takes_the_precision_of_the_tensor(dtype: str, want: str) -> None:
    x = tg.ones(2, dtype=getattr(tg, dtype))
    for out in (x * 1j, 1j + x, x / 2j, 1j - x, x**1j, np.multiply(x, 1j), tg.where(tg.tensor([True, False]), x, 1j)):
        assert out.dtype == want


def test_gradients_of_numbers_of_single_precision_are_of_single_precision() -> None:
    z = tg.tensor([1 + 2j], dtype=tg.complex64, requires_grad=True)
    x = tg.tensor([3.0], dtype=tg.float32, requires_grad=True)
    for create_graph in (False, True):
        grads = tg.autograd.grad((z * x * 1j).abs().sum(), [z, x], create_graph=create_graph)
        assert [g.dtype for g in grads] == [np.complex64, np.float32]


def test_a_complex_number_does_not_widen_a_recorded_gradient() -> None:
    x = tg.tensor([2.0], dtype=tg.float32, requires_grad=True)
    (g,) = tg.autograd.grad((x * (1 + 1j) * x).imag.sum(), x, create_graph=True)
    assert g.dtype == np.float32
    (h,) = tg.autograd.grad(g.sum(), x)
    assert h.tolist() == [2.0]


# -- parts are views ---------------------------------------------------------------------------------------------
def test_an_update_of_a_part_is_one_of_the_whole() -> None:
    z = tg.tensor([1 + 2j, 3 - 4j])
    z.real.mul_(10)
    z.imag[1] = 7
    assert z.tolist() == [10 + 2j, 30 + 7j]
    tg.view_as_real(z)[0] = tg.tensor([5.0, 6.0])
    assert z.tolist() == [5 + 6j, 30 + 7j]
    z.real = tg.tensor([0.0, 1.0])
    z.imag = 2
    assert z.tolist() == [2j, 1 + 2j]
    assert z.real._base is z
    assert z._version == 5


def test_an_update_of_a_part_is_recorded() -> None:
    z = tg.tensor([1 + 2j], requires_grad=True)
    x = tg.tensor([3.0], requires_grad=True)
    y = z * 1
    y.imag.mul_(x)
    y.real += x
    (y.abs() ** 2).sum().backward()
    # |(1 + 3) + (2 * 3) i|**2
    assert x.grad.item() == pytest.approx(2 * 4 + 2 * 6 * 2)
    assert z.grad.item() == pytest.approx(2 * 4 + 2 * 6 * 3 * 1j)


def test_view_as_complex_is_a_view_of_its_parts() -> None:
    x = tg.tensor([[1.0, 2.0]], requires_grad=True)
    parts = x * 1
    z = tg.view_as_complex(parts)
    z.mul_(1j)
    assert parts.tolist() == [[-2.0, 1.0]]
    parts.sum().backward()
    assert x.grad.tolist() == [[1.0, -1.0]]


def test_a_saved_operand_whose_part_was_updated_is_noticed() -> None:
    z = tg.tensor([1 + 2j], requires_grad=True)
    y = z * 1
    out = y * y
    y.real.add_(1)
    with pytest.raises(
        RuntimeError, match=r"modified by an inplace operation: \[CPUComplexDoubleType \[1\]\]|ComplexDouble"
    ):
        out.sum().backward(tg.tensor(1 + 0j))


# -- NumPy's functions -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("call", ["np.real(z)", "np.imag(z)", "np.conj(z)", "np.angle(z)", "np.angle(z, deg=True)",
                                  "np.abs(z)", "np.sign(z)", "np.vdot(z, 1j * z)", "np.vecdot(z, 1j * z)", "np.exp(z)",
                                  "np.linalg.norm(z)", "np.iscomplex(z)", "np.isreal(z)", "np.sum(z)", "np.var(z)",
                                  "np.nan_to_num(z / 0)", "np.iscomplexobj(z)", "np.float_power(z, 2)", "z @ z", "z**2",
                                  "np.where(np.abs(z) > 3, z, 0)", "np.einsum('i,j', z, z)", "np.prod(z)"])  # fmt: skip
def test_numpys_functions_of_a_tensor_are_those_of_its_array(call: str) -> None:
    with np.errstate(all="ignore"):
        want = eval(call, {"np": np, "z": Z.numpy()})
    got = eval(call, {"np": np, "z": Z})
    assert np.asarray(got).dtype == np.asarray(want).dtype
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-15, atol=1e-15)


def test_numpys_parts_of_a_tensor_have_gradients() -> None:
    z = tg.tensor([3 + 4j], requires_grad=True)
    for part, want in ((np.real, 1), (np.imag, 1j), (np.abs, 0.6 + 0.8j), (np.angle, (-4 + 3j) / 25)):
        (g,) = tg.autograd.grad(part(z).sum(), z)
        np.testing.assert_allclose(g.numpy(), [want], rtol=1e-15)


# -- the rest ----------------------------------------------------------------------------------------------------
def test_gradcheck_notices_a_wrong_complex_gradient() -> None:
    class Unconjugated(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, z: Any) -> Any:
            ctx.save_for_backward(z)
            return z * z

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * 2 * ctx.saved_tensors[0]

    z = tg.tensor([1 + 2j], requires_grad=True)
    assert tg.autograd.gradcheck(lambda v: v * v, z)
    assert not tg.autograd.gradcheck(Unconjugated.apply, z, raise_exception=False)


def test_the_derivatives_at_zero_are_zero() -> None:
    for fn in (tg.abs, tg.angle, tg.linalg.vector_norm, lambda v: tg.sgn(v).real):
        z = tg.tensor(0j, requires_grad=True)
        fn(z).backward()
        assert z.grad.item() == 0


def test_steepest_descent_finds_a_complex_root() -> None:
    z = tg.tensor(1 + 0.5j, requires_grad=True)
    for _ in range(200):
        ((z * z + 1).abs() ** 2).backward()
        with tg.no_grad():
            z -= 0.05 * z.grad
        z.grad = None
    assert abs(z.item() - 1j) < 1e-6


def test_accumulation_and_hooks_see_complex_gradients() -> None:
    z = tg.tensor([1 + 2j], requires_grad=True)
    seen = []
    z.register_hook(lambda g: seen.append(g.item()))
    for _ in range(2):
        z.imag.sum().backward()
    assert (seen, z.grad.tolist()) == ([1j, 1j], [2j])


def test_conversions_keep_or_drop_the_imaginary_part() -> None:
    z = tg.tensor([1 + 2j], requires_grad=True)
    assert z.to(tg.complex64).dtype == np.complex64
    with pytest.warns(np.exceptions.ComplexWarning):
        x = z.to(tg.float64)
    x.sum().backward()
    assert z.grad.tolist() == [1 + 0j]
    assert complex(z) == 1 + 2j


@pytest.mark.parametrize("side", [0.0, -0.0])
@pytest.mark.parametrize("x", [2.0, -2.0, 1.0001, -1.0001])
@pytest.mark.parametrize("name", ["arcsin", "arccos", "arccosh"])
def test_on_a_branch_cut_the_sign_of_zero_says_whose_derivative_it_is(name: str, x: float, side: float) -> None:
    f, z, h = getattr(np, name), complex(x, side), 1e-6
    beside = [f(np.complex128(complex(x + step, side))) for step in (h, -h)]
    wanted = pytest.approx((beside[0] - beside[1]) / (2 * h), rel=1e-3)
    with tg.settings.override(first_call="replay"):
        assert tg.jvp(f, (np.complex128(z),), (np.complex128(1),))[1] == wanted
        assert tg.grad(f, holomorphic=True)(np.complex128(z)) == wanted


def test_complex_numbers_are_computed_with_numbers_of_python() -> None:
    f = tg.trace(lambda x, y: (1j * x * y, 1j * x + y, y - 1j * x, 1j * x / y, (1j * x) ** y, y * (1j * x)))
    for got, want in zip(f(1.5, 2.0), f.__wrapped__(1.5, 2.0)):
        assert type(got) is complex
        assert got == pytest.approx(want, rel=1e-15)
    assert tg.grad(lambda x, y: np.exp(1j * x * y).imag)(1.5, 2.0) == pytest.approx(2 * np.cos(3.0))
