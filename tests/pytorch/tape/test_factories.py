"""Making Tensors, their dtypes, random ones, and conversions: what PyTorch does for the same call."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.stats

import tracegrad as tg
from tracegrad import Tensor, trace
from tracegrad.errors import DTypeError
from tracegrad.torch.tape.tensors import default_rng, dtypes, factories, random, ranges
from tracegrad.torch.tape.tensors.printing import text_of

# The names that the expressions below are written in: those of the package.
NAMES: dict[str, Any] = {
    **dtypes.DTYPES,
    **{name: getattr(module, name) for module in (default_rng, factories, ranges, random) for name in module.__all__},
    "np": np,
}


def made(expression: str) -> Any:
    return eval(expression, NAMES)


@pytest.fixture(autouse=True)
def _float64_is_the_default() -> Iterator[None]:
    yield
    dtypes.set_default_dtype(np.float64)


# -- factories: recorded from PyTorch 2.13 with float64 as its default dtype ("torch." taken out) ---------------------
MADE = [
    ("tensor(2.5)", "tensor(2.5000)"),
    ("tensor(3)", "tensor(3)"),
    ("tensor(True)", "tensor(True)"),
    ("tensor([])", "tensor([])"),
    ("tensor([[], []])", "tensor([], size=(2, 0))"),
    ("tensor([1, 2.5])", "tensor([1.0000, 2.5000])"),
    ("tensor([1, True])", "tensor([1, 1])"),
    ("tensor([True, False])", "tensor([ True, False])"),
    ("tensor([True, 2.5])", "tensor([1.0000, 2.5000])"),
    ("tensor(np.float32(1))", "tensor(1., dtype=float32)"),
    ("tensor([np.float32(1), np.float32(2)])", "tensor([1., 2.], dtype=float32)"),
    ("tensor([np.int32(1)])", "tensor([1], dtype=int32)"),
    ("tensor(range(3))", "tensor([0, 1, 2])"),
    ("tensor(((1, 2), (3, 4)))", "tensor([[1, 2],\n        [3, 4]])"),
    ("tensor([np.arange(3.0), np.ones(3)])", "tensor([[0., 1., 2.],\n        [1., 1., 1.]])"),
    ("tensor([tensor(1.0), tensor(2.0)])", "tensor([1., 2.])"),
    ("tensor([1.5, -1.5], dtype=int64)", "tensor([ 1, -1])"),
    ("tensor(np.arange(3, dtype='uint8'))", "tensor([0, 1, 2], dtype=uint8)"),
    ("as_tensor([1.0, 2.0], dtype=float32)", "tensor([1., 2.], dtype=float32)"),
    ("asarray([1, 2])", "tensor([1, 2])"),
    ("zeros(2, 3)", "tensor([[0., 0., 0.],\n        [0., 0., 0.]])"),
    ("zeros([2, 1])", "tensor([[0.],\n        [0.]])"),
    ("zeros(())", "tensor(0.)"),
    ("zeros(size=(2,))", "tensor([0., 0.])"),
    ("zeros(2, dtype=int32)", "tensor([0, 0], dtype=int32)"),
    ("zeros(3, requires_grad=True)", "tensor([0., 0., 0.], requires_grad=True)"),
    ("ones((1, 2))", "tensor([[1., 1.]])"),
    ("ones(2, dtype=bool)", "tensor([True, True])"),
    ("full((2,), 3)", "tensor([3, 3])"),
    ("full((2,), 3.0)", "tensor([3., 3.])"),
    ("full((), True)", "tensor(True)"),
    ("full((2,), tensor(3))", "tensor([3, 3])"),
    ("full((2,), 1.5, dtype=int64)", "tensor([1, 1])"),
    ("eye(2, 3)", "tensor([[1., 0., 0.],\n        [0., 1., 0.]])"),
    ("eye(3, 2, dtype=int64)", "tensor([[1, 0],\n        [0, 1],\n        [0, 0]])"),
    ("eye(0)", "tensor([], size=(0, 0))"),
    ("arange(5)", "tensor([0, 1, 2, 3, 4])"),
    ("arange(5.0)", "tensor([0., 1., 2., 3., 4.])"),
    ("arange(1, 5, 2)", "tensor([1, 3])"),
    ("arange(1, 5.0, 2)", "tensor([1., 3.])"),
    ("arange(5, 1, -2)", "tensor([5, 3])"),
    ("arange(0)", "tensor([], dtype=int64)"),
    ("arange(0, 0, -1)", "tensor([], dtype=int64)"),
    (
        "arange(0, 1, 0.1)",
        "tensor([0.0000, 0.1000, 0.2000, 0.3000, 0.4000, 0.5000, 0.6000, 0.7000, 0.8000,\n        0.9000])",
    ),
    ("arange(1, 0, -0.25)", "tensor([1.0000, 0.7500, 0.5000, 0.2500])"),
    ("arange(end=5)", "tensor([0, 1, 2, 3, 4])"),
    ("arange(start=1, end=5)", "tensor([1, 2, 3, 4])"),
    ("arange(tensor(3))", "tensor([0, 1, 2])"),
    ("arange(tensor(3.0))", "tensor([0., 1., 2.])"),
    ("arange(0, 2.5, dtype=int64)", "tensor([0, 1])"),
    ("arange(0.5, 4, 1, dtype=int64)", "tensor([0, 1, 2, 3])"),
    ("arange(3, dtype=float32)", "tensor([0., 1., 2.], dtype=float32)"),
    ("linspace(0, 1, 5)", "tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])"),
    ("linspace(3, -3, 4)", "tensor([ 3.,  1., -1., -3.])"),
    ("linspace(2, 5, 1)", "tensor([2.])"),
    ("linspace(0, 1, 0)", "tensor([])"),
    ("linspace(tensor(1.0), tensor(2.0), 3)", "tensor([1.0000, 1.5000, 2.0000])"),
    ("linspace(0, 1, steps=3, requires_grad=True)", "tensor([0.0000, 0.5000, 1.0000], requires_grad=True)"),
    ("linspace(0, 10, 5, dtype=int64)", "tensor([ 0,  2,  5,  7, 10])"),
    ("logspace(0, 1, 5)", "tensor([ 1.0000,  1.7783,  3.1623,  5.6234, 10.0000])"),
    ("logspace(0, 3, 4, base=2)", "tensor([1., 2., 4., 8.])"),
    ("zeros_like(tensor([1, 2]))", "tensor([0, 0])"),
    ("ones_like(tensor([[1.0]]), dtype=bool)", "tensor([[True]])"),
    ("full_like(tensor([1.0, 2.0]), 3)", "tensor([3., 3.])"),
    ("full_like(tensor([1, 2]), 3.7)", "tensor([3, 3])"),
    ("zeros_like(tensor([1.0], requires_grad=True))", "tensor([0.])"),
    ("zeros_like(tensor([1.0]), requires_grad=True)", "tensor([0.], requires_grad=True)"),
    ("tensor([1.0]).new_zeros(2, 3)", "tensor([[0., 0., 0.],\n        [0., 0., 0.]])"),
    ("tensor([1]).new_ones((2,))", "tensor([1, 1])"),
    ("tensor([1]).new_full((2,), 3.5)", "tensor([3, 3])"),
    ("tensor([1]).new_tensor([1.5])", "tensor([1])"),
    ("tensor([1.0]).new_zeros(2, dtype=int64)", "tensor([0, 0])"),
]


@pytest.mark.parametrize(("expression", "text"), MADE, ids=[row[0] for row in MADE])
def test_what_a_factory_makes_is_what_pytorch_makes(expression: str, text: str) -> None:
    assert text_of(made(expression)) == text


REFUSED = [
    ("tensor([1, 2], requires_grad=True)", RuntimeError, "Only Tensors of floating point and complex dtype can requi"),
    ("zeros(2, dtype=int64, requires_grad=True)", RuntimeError, "Only Tensors of floating point and complex dtype can"),
    ("full((2,), 3, requires_grad=True)", RuntimeError, "Only Tensors of floating point and complex dtype can requir"),
    ("arange(5, requires_grad=True)", RuntimeError, "Only Tensors of floating point and complex dtype can require gr"),
    ("randint(5, (2,), requires_grad=True)", RuntimeError, "Only Tensors of floating point and complex dtype can req"),
    ("tensor([[1, 2], [3]])", ValueError, "expected sequence of length 2 at dim 1 .got 1."),
    ("tensor([[[1], [2]], [[3], [4, 5]]])", ValueError, "expected sequence of length 1 at dim 2 .got 2."),
    ("tensor('abc')", TypeError, "invalid data type 'str'"),
    ("tensor(None)", RuntimeError, "Could not infer dtype of NoneType"),
    ("tensor(2**70)", OverflowError, "too large"),
    ("from_numpy([1])", TypeError, "expected np.ndarray .got list."),
    ("from_numpy(np.array(['a']))", DTypeError, "does not support"),
    ("asarray([1, 2], copy=False)", ValueError, "can't alias"),
    ("asarray(np.ones(2), copy=False, dtype=float32)", ValueError, "can't alias tensor with dtype float64 into"),
    ("zeros()", TypeError, 'missing 1 required positional arguments: "size"'),
    ("zeros(-1)", RuntimeError, "negative dimension -1"),
    ("zeros(2.0)", TypeError, "argument 'size' must be tuple of ints, not .float."),
    ("zeros((2,), 3)", TypeError, "takes 1 positional argument but 2 were given"),
    ("zeros(2, device='cuda')", RuntimeError, "no device 'cuda'"),
    ("full(2, 3)", TypeError, "argument 'size'.* must be tuple of ints, not int"),
    ("full((2,), tensor(1.0, requires_grad=True))", TypeError, "argument 'fill_value'.* must be Number, not Tensor"),
    ("full((2,), tensor([3.0, 4.0]))", TypeError, "argument 'fill_value'.* must be Number, not Tensor"),
    ("full((2,), 1j, dtype=float64)", RuntimeError, "value cannot be converted to type double without overflow"),
    ("eye(-1)", RuntimeError, "n must be greater or equal to 0, got -1"),
    ("arange(5, 1)", RuntimeError, "upper bound and lower bound inconsistent with step sign"),
    ("arange(1, 5, 0)", RuntimeError, "step must be nonzero"),
    ("arange(np.inf)", RuntimeError, "unsupported range: 0 -> inf"),
    ("linspace(0, 1, -1)", RuntimeError, "number of steps must be non-negative"),
    ("ones_like([1])", TypeError, "must be Tensor, not list"),
    ("rand(2, dtype=int64)", NotImplementedError, "not implemented for dtype int64"),
    ("randn_like(tensor([1]))", NotImplementedError, "not implemented for dtype int64"),
    ("randint(5, 5, (2,))", RuntimeError, "expects 'from' to be less than 'to', but got from=5 >= to=5"),
    ("randint(300, (2,), dtype=uint8)", RuntimeError, "out of bounds"),
    ("normal(0.0, -1.0, (2,))", RuntimeError, "normal expects std >= 0.0, but found std -1"),
    ("normal(0.0, 1.0)", TypeError, "size"),
    ("normal(zeros(2), ones(3))", ValueError, "cannot be broadcast"),
    ("bernoulli(tensor([0.0, 2.0]))", RuntimeError, "to be in .0, 1."),
    ("randperm(-1)", RuntimeError, "negative dimension -1"),
    ("multinomial(tensor([0.0, 1.0]), 3)", RuntimeError, "cannot sample n_sample > prob_dist.size.-1. samples withou"),
    ("multinomial(tensor([0.0, -1.0]), 1)", RuntimeError, "contains either `inf`, `nan` or element < 0"),
    ("multinomial(tensor([0.0, 0.0]), 1)", RuntimeError, "sum of probabilities <= 0"),
    ("multinomial(tensor([1.0]), 0)", RuntimeError, "cannot sample n_sample <= 0 samples"),
    ("multinomial(tensor([1, 2]), 1)", TypeError, "only supports floating-point dtypes"),
    ("manual_seed(2**64)", ValueError, "more than 64 bits"),
    ("Generator('cuda')", RuntimeError, "no generator for device 'cuda'"),
]


@pytest.mark.parametrize(("expression", "error", "text"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_cannot_be_made_is_refused_in_pytorch_words(expression: str, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        made(expression)


def test_tensor_copies_and_the_others_share_memory() -> None:
    x = np.zeros(2)
    copied = [factories.tensor(x), factories.asarray(x, copy=True), factories.as_tensor(x, dtype=np.float32)]
    shared = [factories.from_numpy(x), factories.as_tensor(x), factories.asarray(x), factories.from_dlpack(x)]
    x[0] = 1.0
    assert [float(t.array[0]) for t in copied] == [0.0] * 3
    assert [float(t.array[0]) for t in shared] == [1.0] * 4
    assert all(t.array is not x for t in shared)


def test_tensor_of_tensors_has_no_history_and_as_tensor_keeps_it() -> None:
    x = factories.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    with pytest.warns(UserWarning, match="To copy construct from a tensor"):
        made_anew = factories.tensor(y)
    assert made_anew.grad_fn is None
    assert not made_anew.requires_grad
    assert factories.as_tensor(y) is y
    assert factories.asarray(y).grad_fn is not None
    assert factories.asarray(y, requires_grad=False).grad_fn is None
    assert factories.asarray(x, requires_grad=True) is x
    assert factories.as_tensor(y, dtype=np.float32).grad_fn is not None


def test_the_default_dtype_is_that_of_python_floats_only() -> None:
    dtypes.set_default_dtype(np.float32)
    single = [
        "tensor(1.0)",
        "tensor([1, 2.5])",
        "tensor([])",
        "zeros(2)",
        "full((), 2.0)",
        "arange(0.5, 3)",
        "rand(2)",
        "linspace(0, 1, 3)",
        "eye(2)",
        "randn(2)",
        "tensor([tensor(1.0), tensor(2.0)])",
        "full((), np.float64(2.0))",
    ]
    double = ["tensor(np.ones(2))", "tensor(np.float64(1.0))", "tensor([np.float64(1.0)])", "zeros(2, dtype=float64)"]
    assert {made(each).dtype.name for each in single} == {"float32"}
    assert {made(each).dtype.name for each in double} == {"float64"}
    assert made("tensor([1, 2])").dtype == np.int64
    assert made("full((), True)").dtype == np.bool_
    for wrong in (np.int64, np.complex128, "longdouble"):
        with pytest.raises(TypeError, match="only floating-point types are supported as the default type"):
            dtypes.set_default_dtype(wrong)


def test_arrays_made_in_a_trace_are_nodes_of_its_graph() -> None:
    def program(x: Any) -> Any:
        made_here = [factories.zeros(3), factories.full((3,), 2.0), ranges.arange(3.0), ranges.linspace(0, 1, 3)]
        return sum((t.array for t in made_here), x)

    result = trace(program)(np.ones(3))
    np.testing.assert_array_equal(result, [3.0, 4.5, 6.0])
    graph = str(trace(program).graph(np.ones(3)))
    assert "full(" in graph
    assert "arange(" in graph


# -- dtypes ------------------------------------------------------------------------------------------------------------
def test_dtypes_are_numpys_under_pytorchs_names() -> None:
    widths = {
        "float": "float32",
        "double": "float64",
        "int": "int32",
        "long": "int64",
        "short": "int16",
        "cfloat": "complex64",
        "cdouble": "complex128",
        "bool": "bool",
        "uint8": "uint8",
    }
    assert {name: dtypes.DTYPES[name].name for name in widths} == widths
    assert all(isinstance(dtype, np.dtype) for dtype in dtypes.DTYPES.values())
    assert factories.ones(2).dtype == dtypes.DTYPES["float64"]
    assert not hasattr(dtypes, "float")


@pytest.mark.parametrize(
    ("from_", "to", "allowed"),
    [
        ("int64", "uint8", True),
        ("int64", "bool", False),
        ("bool", "uint8", True),
        ("float64", "int64", False),
        ("complex64", "float64", False),
        ("float64", "float32", True),
        ("float32", "complex64", True),
    ],
)
def test_can_cast_follows_the_kinds_of_numbers(from_: str, to: str, allowed: bool) -> None:
    assert dtypes.can_cast(np.dtype(from_), np.dtype(to)) is allowed


def test_promotion_is_pytorchs() -> None:
    assert dtypes.promote_types(np.int32, np.float32) == np.float32
    assert dtypes.promote_types(np.int64, np.complex64) == np.complex64
    assert dtypes.promote_types(np.float64, np.complex64) == np.complex128
    assert dtypes.result_type(factories.ones(2, dtype=np.float32), 1.5) == np.float32
    assert dtypes.result_type(factories.ones(2, dtype=np.float32), factories.tensor(2.0)) == np.float32
    assert dtypes.result_type(factories.ones(2, dtype=np.int8), 1.5) == np.float64
    assert dtypes.result_type(np.ones(2, np.float32), 1j) == np.complex64
    assert (dtypes.result_type(1, 2), dtypes.result_type(1, 2.0)) == (np.int64, np.float64)


def test_questions_about_dtypes() -> None:
    x = factories.tensor([1.0])
    assert (dtypes.is_floating_point(x), dtypes.is_complex(x)) == (True, False)
    assert (factories.is_tensor(x), factories.is_tensor(x.array)) == (True, False)
    assert dtypes.finfo().dtype == np.float64
    assert dtypes.iinfo(np.uint8).max == 255
    with pytest.raises(TypeError, match="must be Tensor, not float"):
        dtypes.is_floating_point(1.0)
    with pytest.raises(TypeError, match="floating point"):
        dtypes.finfo(np.int32)
    with pytest.raises(TypeError, match="integer"):
        dtypes.iinfo(np.float32)


# -- random numbers ----------------------------------------------------------------------------------------------------
DRAWS = [
    "rand(5)",
    "randn(5)",
    "randint(100, (5,))",
    "normal(0.0, 1.0, (5,))",
    "bernoulli(full((64,), 0.5))",
    "randperm(20)",
    "multinomial(ones(20), 5)",
    "rand_like(ones(5))",
    "randn(5, dtype=float32)",
]


@pytest.mark.parametrize("draw", DRAWS)
def test_a_seed_determines_what_is_drawn(draw: str) -> None:
    first = [(default_rng.manual_seed(seed), made(draw).array)[1] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(first[0], first[1])
    assert (first[0] != first[2]).any()


def test_a_state_restores_the_place_in_the_sequence() -> None:
    generator = default_rng.Generator().manual_seed(-3)
    assert generator.initial_seed() == 2**64 - 3
    random.randint(7, (3,), generator=generator, dtype=np.int32)
    state = generator.get_state()
    wanted = random.randn(4, generator=generator).array
    other = default_rng.Generator().set_state(state)
    np.testing.assert_array_equal(random.randn(4, generator=other).array, wanted)
    assert other.initial_seed() == 2**64 - 3
    default_rng.set_rng_state(factories.tensor(state))
    np.testing.assert_array_equal(random.randn(4).array, wanted)
    with pytest.raises(RuntimeError, match="not a state"):
        generator.set_state(np.zeros(3, np.uint8))


def test_a_generator_of_its_own_leaves_the_default_one_alone() -> None:
    default_rng.manual_seed(4)
    wanted = random.rand(3).array
    default_rng.manual_seed(4)
    assert default_rng.initial_seed() == 4
    random.rand(3, generator=default_rng.Generator())
    np.testing.assert_array_equal(random.rand(3).array, wanted)
    assert default_rng.Generator().initial_seed() == default_rng.Generator().initial_seed()
    assert default_rng.seed() == default_rng.initial_seed() != 4


def test_moments_of_what_is_drawn() -> None:
    # Bounds of six standard errors for 40,000 draws.
    default_rng.manual_seed(0)
    n = 40_000
    uniform, gaussian = random.rand(n).array, random.normal(3.0, factories.full((n,), 2.0)).array
    assert abs(uniform.mean() - 0.5) < 6 * (1 / 12 / n) ** 0.5
    assert abs(gaussian.mean() - 3.0) < 6 * 2 / n**0.5
    assert abs(gaussian.std() - 2.0) < 6 * 2 / (2 * n) ** 0.5
    assert abs(random.bernoulli(factories.full((n,), 0.2)).array.mean() - 0.2) < 6 * (0.16 / n) ** 0.5
    drawn = random.randint(-2, 3, (n,)).array
    assert set(drawn.tolist()) == {-2, -1, 0, 1, 2}


@pytest.mark.parametrize("replacement", [False, True])
def test_the_first_sample_of_a_multinomial_has_the_given_frequencies(replacement: bool) -> None:
    default_rng.manual_seed(1)
    weights = np.array([1.0, 0.0, 3.0, 6.0])
    drawn = random.multinomial(factories.tensor(np.tile(weights, (20_000, 1))), 3, replacement).array
    assert drawn.shape == (20_000, 3)
    frequencies = np.bincount(drawn[:, 0], minlength=4) / 20_000
    assert (abs(frequencies - weights / 10) < 6 * (0.25 / 20_000) ** 0.5).all()
    if not replacement:
        assert (np.sort(drawn, axis=1) == [0, 2, 3]).all()


def test_a_permutation_has_every_index_once() -> None:
    np.testing.assert_array_equal(np.sort(random.randperm(100).array), np.arange(100))
    assert random.randperm(3, dtype=np.float64).dtype == np.float64


def test_threads_draw_disjoint_parts_of_one_sequence() -> None:
    default_rng.manual_seed(9)
    alone = {float(random.rand(()).array) for _ in range(400)}
    default_rng.manual_seed(9)
    seen: list[float] = []
    threads = [
        threading.Thread(target=lambda: seen.extend([float(random.rand(()).array) for _ in range(100)]))
        for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert set(seen) == alone


@pytest.mark.parametrize("draw", DRAWS)
def test_a_trace_draws_at_each_call(draw: str) -> None:
    compiled = trace(lambda x: x + made(draw))
    default_rng.manual_seed(4)
    eager = [made(draw).tolist() for _ in range(3)]
    default_rng.manual_seed(4)
    assert [compiled(np.zeros(1)).tolist() for _ in range(3)] == eager


def normal_of(x: Any) -> Any:
    return random.normal(x, x + 1)


def bernoulli_of(x: Any) -> Any:
    return random.bernoulli(x)


def rows_of(x: Any) -> Any:
    return random.multinomial(x, 2)


def rows_with_replacement_of(x: Any) -> Any:
    return random.multinomial(x, 7, replacement=True)


def filled_by_chances(x: Any) -> Any:
    return tg.empty_like(x).bernoulli_(x)


def filled(x: Any) -> Any:
    parts = [tg.empty_like(x).uniform_(-1, 2), tg.empty_like(x).normal_(1, 2), x.clone().exponential_(3.0)]
    parts += [tg.empty_like(x).cauchy_(1, 2), tg.empty_like(x).log_normal_(0, 1), tg.empty_like(x).geometric_(0.3)]
    return tg.stack([*parts, tg.empty_like(x).random_(5), tg.empty_like(x).bernoulli_(0.3)])


def layer_of(x: Any) -> Any:
    return tg.nn.Linear(3, 2)(x).detach()


@pytest.mark.parametrize(
    "draw",
    [normal_of, bernoulli_of, rows_of, rows_with_replacement_of, filled_by_chances, filled, layer_of],
    ids=lambda f: f.__name__,
)
def test_a_trace_draws_with_parameters_of_its_own(draw: Any) -> None:
    x, compiled = tg.linspace(0.1, 0.9, 12).reshape(4, 3), trace(draw)
    default_rng.manual_seed(4)
    eager = [draw(x).numpy() for _ in range(3)]
    default_rng.manual_seed(4)
    for expected in eager:
        np.testing.assert_allclose(compiled(x).numpy(), expected, rtol=1e-12, atol=1e-15)
    assert compiled.cache_info().traces == 1


FILLS = [
    ("uniform_(2.0, 3.0)", 2.0, 3.0),
    ("normal_(5.0, 0.0)", 5.0, 5.0),
    ("bernoulli_(1.0)", 1.0, 1.0),
    ("exponential_(1e9)", 0.0, 1e-6),
    ("cauchy_(5.0, 1e-300)", 5.0, 5.0),
    ("log_normal_(0.0, 1e-300)", 1.0, 1.0),
    ("geometric_(0.999999999)", 1.0, 3.0),
    ("random_(3)", 0.0, 2.0),
    ("random_(4, 6)", 4.0, 5.0),
    ("random_()", 0.0, 2.0**53),
]


@pytest.mark.parametrize(("call", "low", "high"), FILLS, ids=[row[0] for row in FILLS])
def test_a_tensor_is_filled_with_random_numbers_in_place(call: str, low: float, high: float) -> None:
    x = factories.full((50,), -7.0)
    assert eval(f"x.{call}", {"x": x}) is x
    assert ((x.array >= low) & (x.array <= high)).all()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("uniform_()", "UniformBackward0"),
        ("normal_()", "NormalBackward0"),
        ("bernoulli_()", "BernoulliBackward2"),
        ("bernoulli_(p)", "BernoulliBackward1"),
        ("exponential_()", "ExponentialBackward0"),
        ("cauchy_()", "CauchyBackward0"),
        ("log_normal_()", "LogNormalBackward0"),
        ("geometric_(0.5)", "GeometricBackward0"),
        ("random_()", "RandomBackward2"),
        ("random_(3)", "RandomBackward1"),
        ("random_(3, 5)", "RandomBackward0"),
    ],
)
def test_what_is_filled_with_random_numbers_depends_on_nothing(call: str, name: str) -> None:
    x = factories.ones(2, requires_grad=True)
    y = x * 2
    eval(f"y.{call}", {"y": y, "p": factories.full((2,), 0.5)})
    assert y.grad_fn.name() == name
    y.sum().backward()
    assert x.grad is None or (x.grad.array == 0).all()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("uniform_(2, 1)", "found from=2 > to=1"),
        ("normal_(0, -1)", "std >= 0.0"),
        ("bernoulli_(2)", "to be in"),
        ("exponential_(-1)", "lambda > 0.0, but found lambda=-1"),
        ("cauchy_(0, 0)", "sigma > 0.0, but found sigma=0"),
        ("log_normal_(0, -1)", "std > 0.0, but found std=-1"),
        ("geometric_(1)", "p to be in .0, 1., but got p=1"),
        ("long().cauchy_()", "Cauchy distribution is a continuous probability distribution"),
        ("long().exponential_()", "Exponential distribution is a continuous probability distribution"),
        ("random_(3, 3)", "less than 'to'"),
    ],
)
def test_a_distribution_that_does_not_exist_is_refused(call: str, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        eval(f"x.{call}", {"x": factories.zeros(2)})


def test_numbers_of_a_distribution_have_its_quantiles() -> None:
    tg.manual_seed(11)
    x, quantiles = factories.empty(20000), [0.1, 0.25, 0.5, 0.75, 0.9]
    for drawn, law in [
        (x.clone().cauchy_(1.0, 2.0), scipy.stats.cauchy(1.0, 2.0)),
        (x.clone().log_normal_(0.5, 0.75), scipy.stats.lognorm(0.75, scale=math.exp(0.5))),
        (x.clone().exponential_(3.0), scipy.stats.expon(scale=1 / 3)),
        (x.long().geometric_(0.02), scipy.stats.geom(0.02)),
    ]:
        below = [(drawn.array <= law.ppf(q)).mean() for q in quantiles]
        np.testing.assert_allclose(below, law.cdf(law.ppf(quantiles)), atol=0.015)


def test_the_default_generator_is_restored_after_a_block() -> None:
    tg.manual_seed(5)
    expected = tg.rand(2).tolist()
    tg.manual_seed(5)
    with tg.random.fork_rng():
        tg.random.manual_seed(6)
    assert tg.rand(2).tolist() == expected
    with tg.random.fork_rng(devices=[], enabled=False):
        tg.manual_seed(5)
    assert tg.rand(2).tolist() == expected
    with pytest.raises(RuntimeError, match="cuda"), tg.random.fork_rng(devices=["cuda:0"]):
        pass
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        tg.random.missing  # noqa: B018


def test_filling_a_leaf_that_requires_grad_is_refused() -> None:
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        factories.zeros(2, requires_grad=True).uniform_()


# -- conversions -------------------------------------------------------------------------------------------------------
def test_a_conversion_that_changes_nothing_returns_the_tensor_itself() -> None:
    x = factories.ones(2, requires_grad=True) * 2
    same = [x.to(np.float64), x.to("cpu"), x.double(), x.cpu(), x.type_as(factories.ones(1)), x.to(), x.to(x)]
    assert all(each is x for each in same)
    copied = x.to(np.float64, copy=True)
    assert copied is not x
    assert copied.grad_fn.name() == "ToCopyBackward0"


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        ("to(dt['float32'])", "float32"),
        ("to('cpu', dt['int64'])", "int64"),
        ("to(device='cpu', dtype='bool')", "bool"),
        ("to(like)", "uint8"),
        ("to(other=like)", "uint8"),
        ("float()", "float32"),
        ("int()", "int32"),
        ("long()", "int64"),
        ("short()", "int16"),
        ("bool()", "bool"),
        ("byte()", "uint8"),
        ("char()", "int8"),
        ("astype('float32')", "float32"),
        ("type('FloatTensor')", "float32"),
        ("type(dt['int8'])", "int8"),
        ("type_as(like)", "uint8"),
    ],
)
def test_conversions(call: str, dtype: str) -> None:
    x = factories.tensor([0.0, 2.0])
    out = eval(f"x.{call}", {"x": x, "dt": dtypes.DTYPES, "like": factories.ones(1, dtype=np.uint8)})
    assert out.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(out.array, np.array([0.0, 2.0]).astype(dtype))


def test_a_conversion_is_one_node_that_converts_the_gradient_back() -> None:
    x = factories.ones(2, requires_grad=True)
    y = x.float()
    assert y.grad_fn.name() == "ToCopyBackward0"
    (y * y).sum().backward()
    assert x.grad.dtype == np.float64
    np.testing.assert_array_equal(x.grad.array, [2.0, 2.0])
    assert not x.long().requires_grad


def test_the_kind_of_tensor_has_a_name() -> None:
    assert [factories.zeros(1, dtype=name).type() for name in ("float32", "int64", "bool")] == [
        "tracegrad.FloatTensor",
        "tracegrad.LongTensor",
        "tracegrad.BoolTensor",
    ]


@pytest.mark.parametrize(
    ("call", "error"),
    [("to('cuda')", RuntimeError), ("cuda()", RuntimeError), ("bfloat16()", DTypeError)],
)
def test_what_there_is_not_is_refused(call: str, error: type) -> None:
    with pytest.raises(error):
        eval(f"x.{call}", {"x": factories.ones(2)})


def test_pickling_keeps_the_value_and_requires_grad() -> None:
    x = factories.tensor([1.0, 2.0], requires_grad=True)
    for args in (x, x * 2, factories.tensor([1, 2])):
        back = pickle.loads(pickle.dumps(args))
        assert isinstance(back, Tensor)
        assert (back.requires_grad, back.grad_fn, back.dtype) == (args.requires_grad, None, args.dtype)
        np.testing.assert_array_equal(back.array, args.array)


def test_what_the_user_added_to_a_tensor_is_copied_with_it() -> None:
    class Named(Tensor):
        pass

    x = Named(np.ones(2), True)
    x.label = ["weights"]
    shallow, deep = copy.copy(x), copy.deepcopy(x)
    assert (type(shallow), type(deep)) == (Named, Named)
    assert shallow.label is x.label
    assert deep.label == x.label
    assert deep.label is not x.label


def test_copy_shares_memory_and_deepcopy_does_not() -> None:
    x = factories.tensor([1.0, 2.0], requires_grad=True)
    shallow, deep = copy.copy(x), copy.deepcopy(x)
    assert np.shares_memory(shallow.array, x.array)
    assert not np.shares_memory(deep.array, x.array)
    assert (shallow.requires_grad, deep.requires_grad) == (True, True)
    assert shallow is not x


def test_deepcopy_takes_the_gradient_along_and_copies_a_shared_leaf_once() -> None:
    x = factories.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    first, second = copy.deepcopy([x, x])
    assert first is second
    np.testing.assert_array_equal(first.grad.array, x.grad.array)
    assert not np.shares_memory(first.grad.array, x.grad.array)


def test_deepcopy_of_a_result_is_refused() -> None:
    x = factories.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(
        RuntimeError, match=r"Only Tensors created explicitly by the user .graph leaves. support the deep"
    ):
        copy.deepcopy(x * 2)
    assert copy.deepcopy((x * 2).detach()).grad_fn is None


def test_dlpack_shares_memory_but_not_what_requires_grad() -> None:
    x = factories.tensor([1.0, 2.0])
    assert x.__dlpack_device__() == (1, 0)
    assert np.shares_memory(np.from_dlpack(x), x.array)
    back = factories.from_dlpack(x)
    assert np.shares_memory(back.array, x.array)
    with pytest.raises(BufferError, match=r"Can't export tensors that require gradient, use tensor.detach"):
        x.requires_grad_().__dlpack__()


def test_the_class_makes_tensors_of_data_and_of_sizes_as_pytorchs_does() -> None:
    assert tg.Tensor([1, 2]).tolist() == [1.0, 2.0]
    assert tg.Tensor([1, 2]).dtype == tg.get_default_dtype()
    assert tg.Tensor(2, 3).shape == (2, 3)
    assert tg.Tensor(3).shape == (3,)
    assert tg.Tensor().shape == (0,)
    assert tg.ones(2).device == "cpu"
    assert (tg.cuda.is_available(), tg.cuda.device_count()) == (False, 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: tg.tensor([1.0, 2.0]),
        lambda x: tg.tensor(np.array([1.0, 2.0])),
        lambda x: tg.as_tensor([1.0, 2.0]),
        lambda x: x.new_tensor([1.0, 2.0]),
    ],
)
def test_a_traced_function_updates_a_tensor_of_numbers_in_place(make: Any) -> None:
    def f(x: Any) -> Any:
        y = make(x)
        y[0] = x[1]
        y += x
        return y.mul_(2)

    compiled = trace(f)
    for n in range(3):
        x = tg.tensor([1.0, 5.0 + n])
        assert compiled(x).tolist() == f(x).tolist() == [12.0 + 2 * n, 14.0 + 2 * n]
    assert compiled.cache_info().traces == 1


MIXED = [
    (lambda x: [x[0], 1.0], "float32"),
    (lambda x: [x[0].double(), 1.0], "float64"),
    (lambda x: [x[0].long(), 1.5], "float32"),
    (lambda x: [x[0].half(), 2], "float16"),
    (lambda x: [np.float16(1), 2.0], "float32"),
    (lambda x: [np.float64(1), 2], "float64"),
    (lambda x: [x[1].item(), 1.0], "float32"),
    (lambda x: [v * 2 for v in x.tolist()], "float32"),
    (lambda x: x.sum().item(), "float32"),
    (lambda x: x.double().sum().item(), "float32"),
    (lambda x: [x.long()[1].item(), True], "int64"),
    (lambda x: [], "float32"),
]


@pytest.mark.parametrize(("make", "dtype"), MIXED)
def test_elements_of_a_list_promote_and_pythons_floats_have_the_default_dtype(make: Any, dtype: str) -> None:
    before = tg.get_default_dtype()
    tg.set_default_dtype(tg.float32)
    try:
        x = tg.arange(3.0)
        assert tg.tensor(make(x)).dtype == dtype
        assert trace(lambda x: tg.tensor(make(x)))(x).dtype == dtype
    finally:
        tg.set_default_dtype(before)
