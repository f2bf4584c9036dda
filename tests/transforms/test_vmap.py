"""`vmap` against a loop over the examples, in every place where it can stand, and what it refuses."""

from __future__ import annotations

import contextlib
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import DTypeError, ShapeError, TraceError, UnsupportedError

rng = np.random.default_rng(0)
X, Y, W = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
Pair = namedtuple("Pair", "first second")


def energy(x: Any) -> Any:
    return np.sum(np.tanh(x @ W) ** 2) + np.prod(x)


# -- programs, with the batch along axis 0 of every argument ---------------------------------------------------------
def steps(x: Any, y: Any) -> Any:
    out = np.zeros((3, 3))
    for i in range(3):
        out[i] = x * y[i]
        out[i, 1:] += x[:2]
    view = out[1:]
    view *= 2.0
    return out


def _double() -> Any:
    @tg.custom_vjp
    def double(x: Any) -> Any:
        return x * 2.0

    double.defvjp(lambda x: (x * 2.0, x), lambda x, ct: (ct * 3.0 * x,))
    return double


def _sine() -> Any:
    @tg.custom_jvp
    def sine(x: Any) -> Any:
        return np.sin(x)

    @sine.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return sine(x), 5.0 * np.cos(x) * t

    return sine


double, sine = _double(), _sine()


def _pairwise() -> Any:
    @tg.custom_vjp
    def pairwise(t: Any) -> Any:
        return t["a"] * t["b"][0], np.sum(t["a"]) * t["b"][1]

    def fwd(t: Any) -> Any:
        return pairwise(t), (t["a"], np.exp(t["b"][0]))

    def bwd(residuals: Any, ct: Any) -> Any:
        a, powers = residuals
        return ({"a": ct[0] * powers + 10.0 * ct[1], "b": (ct[0] * a, None)},)

    pairwise.defvjp(fwd, bwd)
    return pairwise


pairwise = _pairwise()


def local_rule(x: Any, y: Any) -> Any:
    """A rule that reads values of the function around it."""
    scale = np.sum(y)

    @tg.custom_vjp
    def scaled(v: Any) -> Any:
        return v * scale

    scaled.defvjp(lambda v: (v * scale, None), lambda _, ct: (ct * scale * 7.0,))
    return tg.grad(lambda v: np.sum(scaled(v) * v))(x)


class Cubed(tg.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x, x * x)
        ctx.factor = 3.0
        return x * x * x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        _, square = ctx.saved_tensors
        return ct * ctx.factor * square


PROGRAMS: dict[str, Any] = {
    "elementwise": lambda x, y: np.exp(x) * y + np.maximum(x, 0.5),
    "numbers": lambda x, y: 2.0 * x + y[0] * 3,
    "reductions": lambda x, y: np.sum(x) * np.max(y) + np.mean(x * y) + np.std(x),
    "products": lambda x, y: W @ x + x @ W * (x @ y) + np.outer(x, y) @ y,
    "einsum": lambda x, y: np.einsum("i,ij,j->", x, W, y),
    "indexing": lambda x, y: x[np.array([2, 0, 0])] + y[::-1] + x[np.argmax(y)],
    "sorting": lambda x, y: np.sort(x) + y[np.argsort(x)],
    "where": lambda x, y: np.where(x > 0, np.log(np.abs(x)), y),
    "concatenate": lambda x, y: np.concatenate([x, y, np.ones(2)]),
    "linalg": lambda x, y: np.linalg.solve(W + 5 * np.eye(3), x) + np.linalg.inv(np.outer(x, y) + 5 * np.eye(3)) @ y,
    "factorizations": lambda x, y: np.linalg.eigh(np.outer(x, x) + np.diag(y * y + [1.0, 2.0, 3.0]))[0],
    "cumulative": lambda x, y: np.cumsum(x) * np.cumsum(y[::-1]),
    "updates": steps,
    "grad": lambda x, y: tg.grad(energy)(x * y),
    "hessian_row": lambda x, y: tg.grad(lambda v: np.sum(tg.grad(energy)(v) * y))(x),
    "vjp": lambda x, y: tg.vjp(lambda v: np.sin(v) * v, x)[1](y)[0],
    "custom_vjp": lambda x, y: tg.grad(lambda v: np.sum(double(v) * y))(x),
    "custom_jvp": lambda x, y: tg.grad(lambda v: np.sum(sine(v) * y))(x),
    "local_rule": local_rule,
    "function": lambda x, y: tg.grad(lambda v: np.sum(Cubed.apply(v) * y))(x),
    "rule": lambda x, y: double(x) * y + sine(y) * sine(x),
    "rule_of_pytree": lambda x, y: np.sum(pairwise({"a": x, "b": (y, 2.0)})[1]),
    "inner": lambda x, y: tg.vmap(lambda a, b: a * y + b, in_axes=(0, None))(x, y),
    "inner_twice": lambda x, y: tg.vmap(tg.vmap(lambda a, b: a * b, in_axes=(0, None)), in_axes=(None, 0))(x, y),
    "scan": lambda x, y: tg.scan(lambda c, v: (c * v + x, np.sum(c)), y, x)[0],
    "while": lambda x, y: tg.while_loop(lambda v: np.sum(v * v) < 10.0, lambda v: v * 1.5 + 0.1 * y, x),
    "cond": lambda x, y: tg.cond(np.sum(x) > 0, lambda a: np.sin(a), lambda a: a * y, x),
    "fori": lambda x, y: tg.fori_loop(0, 4, lambda i, v: v * y + x[i % 3], x),
}
named = pytest.mark.parametrize("name", PROGRAMS)


def loop(f: Any, *args: Any) -> Any:
    return np.stack([np.asarray(f(*row)) for row in zip(*args)])


@named
def test_vmap_is_the_loop(name: str) -> None:
    f = PROGRAMS[name]
    np.testing.assert_allclose(tg.vmap(f)(X, Y), loop(f, X, Y), rtol=1e-10, atol=1e-12)


@named
def test_vmap_is_the_loop_without_compilation(name: str) -> None:
    f = PROGRAMS[name]
    with tg.disable_jit():
        result = tg.vmap(f)(X, Y)
    np.testing.assert_allclose(result, loop(f, X, Y), rtol=1e-10, atol=1e-12)


@named
@pytest.mark.parametrize("shared", [0, 1])
def test_an_argument_can_be_the_same_for_all(name: str, shared: int) -> None:
    f = PROGRAMS[name]
    axes, args = [0, 0], [X, Y]
    axes[shared], args[shared] = None, args[shared][0]
    rows = [np.asarray(f(*[x if a is None else x[i] for x, a in zip(args, axes)])) for i in range(4)]
    np.testing.assert_allclose(tg.vmap(f, in_axes=tuple(axes))(*args), np.stack(rows), rtol=1e-10, atol=1e-12)


DIFFERENTIABLE = [name for name in PROGRAMS if name != "sorting"]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_go_through_vmap(name: str) -> None:
    f = PROGRAMS[name]
    weight = rng.normal(size=np.shape(loop(f, X, Y)))
    result = tg.grad(lambda x, y: np.sum(tg.vmap(f)(x, y) * weight), argnums=(0, 1))(X, Y)
    rows = [tg.grad(lambda x, y, w=w: np.sum(f(x, y) * w), argnums=(0, 1))(*r) for *r, w in zip(X, Y, weight)]
    for got, want in zip(result, zip(*rows)):
        np.testing.assert_allclose(got, np.stack(want), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["products", "grad", "linalg", "where", "indexing"])
def test_tensors_give_tensors_on_the_tape(name: str) -> None:
    f = PROGRAMS[name]
    weight = rng.normal(size=np.shape(loop(f, X, Y)))
    x, y = tg.tensor(X, requires_grad=True), tg.tensor(Y)
    total = (tg.vmap(f)(x, y) * tg.tensor(weight)).sum()
    total.backward()
    want = tg.grad(lambda v: np.sum(tg.vmap(f)(v, Y) * weight))(X)
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-10, atol=1e-12)


class Slanted(tg.autograd.Function):
    """A derivative of its own, so that it can be told from that of the code."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: Any) -> Any:
        ctx.save_for_backward(x, x.exp())
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        _, powers = ctx.saved_tensors
        return ct * powers * ctx.scale, None


@pytest.mark.parametrize("loop", [False, True])
def test_rules_of_functions_of_tensors_hold(loop: bool) -> None:
    def run(x: Any) -> Any:
        if loop:
            return tg.scan(lambda c, v: (c + Slanted.apply(v, 2.0), None), x[0] * 0.0, x)[0]
        return tg.vmap(lambda v: Slanted.apply(v, 2.0).sum())(x)

    for compiled in (True, False):
        x = tg.tensor(X, requires_grad=True)
        with contextlib.nullcontext() if compiled else tg.disable_jit():
            (tg.trace(run)(x) ** 2).sum().backward()
        result = Slanted.apply(tg.tensor(X), 2.0)
        ct = 2.0 * (result.sum(0) if loop else result.sum(1, keepdim=True))
        np.testing.assert_allclose(x.grad.numpy(), (ct * tg.tensor(X).exp() * 2.0).numpy(), rtol=1e-12)


def test_parameters_that_are_read_get_gradients() -> None:
    layer = tg.tensor(W, requires_grad=True)
    tg.vmap(lambda x: (x @ layer).tanh().sum())(tg.tensor(X)).sum().backward()
    result, layer.grad = layer.grad.numpy(), None
    (tg.tensor(X) @ layer).tanh().sum().backward()
    np.testing.assert_allclose(result, layer.grad.numpy())


# -- axes and structures -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_any_axis_can_be_mapped_and_come_out(axis: int) -> None:
    x = rng.normal(size=(2, 3, 4))
    result = tg.vmap(lambda v: np.sin(v) * v.shape[0], in_axes=axis, out_axes=axis)(x)
    rest = x.shape[0] if axis % 3 else x.shape[1]
    np.testing.assert_allclose(result, np.sin(x) * rest)


def test_structures_of_axes_are_prefixes() -> None:
    tree = {"a": X, "b": (Y.T, 2.0)}
    f = tg.vmap(
        lambda t, k: {"sum": t["a"] + t["b"][0] * t["b"][1], "n": (k, t["b"][1])},
        in_axes=({"a": 0, "b": (1, None)}, None),
        out_axes={"sum": 1, "n": None},
    )
    result = f(tree, W)
    np.testing.assert_allclose(result["sum"], (X + 2 * Y).T)
    np.testing.assert_array_equal(result["n"][0], W)
    assert result["n"][1] == 2.0
    assert type(result["n"][1]) is float
    pair = tg.vmap(lambda p: Pair(p.second, p.first))(Pair(X, Y))
    assert isinstance(pair, Pair)
    np.testing.assert_array_equal(pair.first, Y)


def test_keyword_arguments_are_mapped_along_axis_0() -> None:
    result = tg.vmap(lambda x, scale: x * scale, in_axes=1)(X.T, scale=np.arange(4.0))
    np.testing.assert_allclose(result, X * np.arange(4.0)[:, None])


def test_outputs_that_are_the_same_for_all_are_repeated_or_left() -> None:
    result = tg.vmap(lambda x: (x, W, 3.0), out_axes=(0, None, 0))(X)
    np.testing.assert_array_equal(result[1], W)
    np.testing.assert_array_equal(result[2], np.full(4, 3.0))


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", ["products", "grad", "linalg", "scan", "indexing", "inner"])
def test_batches_can_be_of_any_size(name: str, size: int) -> None:
    f = PROGRAMS[name]
    result = tg.vmap(f)(X[:size], Y[:size])
    assert result.shape == (size, *np.shape(f(X[0], Y[0])))
    if size:
        np.testing.assert_allclose(result, loop(f, X[:1], Y[:1]), rtol=1e-10)


def test_an_empty_batch_has_the_shape_of_one_without_compilation() -> None:
    with tg.disable_jit():
        assert tg.vmap(lambda x: np.outer(x, x))(np.zeros((0, 3))).shape == (0, 3, 3)


def test_axis_size_says_how_many_where_nothing_is_mapped() -> None:
    assert tg.vmap(lambda x: x * 2.0, in_axes=None, axis_size=5)(X[0]).shape == (5, 3)


def test_dtypes_are_those_of_one_example() -> None:
    single = X.astype(np.float32)
    assert tg.vmap(lambda x: x * 2.0)(single).dtype == np.float32
    assert tg.vmap(lambda x, k: x * k, in_axes=(0, None))(single, 2.0).dtype == np.float32
    assert tg.vmap(lambda x, k: x * k)(single, np.ones(4)).dtype == np.float64
    assert tg.vmap(lambda i: i + 1)(np.arange(3)).dtype == np.int64


# -- programs -------------------------------------------------------------------------------------------------------
def test_what_does_not_depend_on_the_batch_is_computed_once() -> None:
    graph = tg.vmap(lambda x, w: x @ np.tanh(w), in_axes=(0, None)).graph(X, W)
    assert [str(n.aval) for n in graph.nodes if n.name == "tanh"] == ["f64[3,3]"]
    assert [n.name for n in graph.nodes] == ["tanh", "matmul"] or "matvec" not in str(graph)


def test_products_with_one_matrix_are_one_product() -> None:
    for f in (lambda x: x @ W, lambda x: W @ x, lambda x: np.sum(x[:, None] * W), lambda x: W @ np.outer(x, x)):
        graph = tg.vmap(f).graph(X)
        assert all(len(n.aval.shape) == 2 for n in graph.nodes if n.name == "matmul"), graph
        assert len([n for n in graph.nodes if n.name in ("matmul", "matvec")]) <= 1


def test_a_batch_is_one_program_for_every_size() -> None:
    from tracegrad.runtime.execution.program import machine_code_count

    f = tg.vmap(tg.grad(energy))
    f(rng.normal(size=(40, 3)))
    before = machine_code_count()
    f(rng.normal(size=(500, 3)))
    assert machine_code_count() == before


def test_it_is_remembered_and_traced_once() -> None:
    assert tg.vmap(energy) is tg.vmap(energy)
    assert tg.vmap(energy, in_axes=(0,)) is not tg.vmap(energy)
    f = tg.vmap(energy)
    f.clear()
    f(X)
    f(Y)
    assert f.cache_info().traces == 1


def test_it_works_in_traced_functions_and_on_them() -> None:
    traced = tg.trace(energy)
    want = loop(energy, X)
    np.testing.assert_allclose(tg.vmap(traced)(X), want)
    np.testing.assert_allclose(tg.trace(lambda x: tg.vmap(energy)(x * 1.0))(X), want)
    np.testing.assert_allclose(tg.trace(tg.vmap(traced))(X), want)


def test_static_arguments_stay_as_they_are() -> None:
    traced = tg.trace(lambda x, mode: x * 2.0 if mode == "double" else x, static_argnums=1)
    np.testing.assert_allclose(tg.vmap(traced, in_axes=(0, None))(X, "double"), 2 * X)
    np.testing.assert_allclose(tg.vmap(traced)(X, mode="double"), 2 * X)


def test_captured_arrays_are_read_at_each_call() -> None:
    weights = np.ones(3)
    f = tg.vmap(lambda x: x @ weights)
    np.testing.assert_allclose(f(X), X.sum(1))
    weights *= 2.0
    np.testing.assert_allclose(f(X), 2 * X.sum(1))


# -- questions and errors ----------------------------------------------------------------------------------------------
def test_a_question_for_a_value_names_the_line_and_what_to_use_instead() -> None:
    with pytest.raises(TraceError, match=r"bool\(\) of a value inside vmap of .*tg.where.*tg.cond.*test_vmap.py"):
        tg.vmap(lambda x: x if x[0] > 0 else -x)(X)


def test_questions_for_what_is_the_same_for_all_are_answered() -> None:
    f = tg.vmap(lambda x, n: sum(x[i] for i in range(int(n))) if n > 1 else x[0], in_axes=(0, None))
    np.testing.assert_allclose(f(X, 3), X.sum(1))
    np.testing.assert_allclose(f(X, 1), X[:, 0])


def test_without_compilation_a_question_is_answered() -> None:
    with tg.disable_jit():
        np.testing.assert_allclose(tg.vmap(lambda x: x if x[0] > 0 else -x)(X), X * np.sign(X[:, :1]))


def test_arguments_cannot_be_updated_in_place() -> None:
    def f(x: Any) -> Any:
        x += 1.0
        return x

    with pytest.raises(UnsupportedError, match="in-place update of an argument of vmap of"):
        tg.vmap(f)(X)


def pair_of(x: Any, y: Any) -> Any:
    return x, y


ERRORS: dict[str, Any] = {
    "sizes": (
        lambda: tg.vmap(pair_of)(X, Y[:2]),
        ValueError,
        r"inconsistent sizes for array axes to be mapped: axis 0 of x has size 4; axis 0 of y has size 2",
    ),
    "sizes_inside": (lambda: tg.vmap(lambda t: t)({"a": X, "b": [W]}), ValueError, r"t\['b'\]\[0\] has size 3"),
    "rank": (lambda: tg.vmap(pair_of)(X, 2.0), ValueError, r"y is to be mapped along axis 0, but its shape is \(\)"),
    "axis": (lambda: tg.vmap(pair_of, in_axes=(0, -3))(X, Y), ValueError, r"y is to be mapped along axis -3"),
    "nothing": (lambda: tg.vmap(pair_of, in_axes=None)(X, Y), ValueError, "at least one argument must have an axis"),
    "count": (lambda: tg.vmap(pair_of, in_axes=(0,))(X, Y), ValueError, "got 1 entries for 2 arguments"),
    "prefix": (lambda: tg.vmap(pair_of, in_axes=((0, 0), 0))(X, Y), ValueError, "must be a prefix"),
    "kind": (lambda: tg.vmap(pair_of, in_axes=0.5), TypeError, "vmap in_axes must be an int"),
    "out_kind": (lambda: tg.vmap(pair_of, out_axes="0"), TypeError, "vmap out_axes must be an int"),
    "out_none": (lambda: tg.vmap(pair_of, out_axes=None)(X, Y), ValueError, r"out_axes is None for the result\[0\]"),
    "out_axis": (lambda: tg.vmap(pair_of, out_axes=2)(X, Y), ValueError, r"out_axes is 2 for the result\[0\]"),
    "out_prefix": (lambda: tg.vmap(pair_of, out_axes=[0, 0])(X, Y), ValueError, "must be a prefix"),
    "axis_size": (lambda: tg.vmap(np.sum, axis_size=3)(X), ValueError, "axis_size is 3, but the mapped axis"),
    "result": (lambda: tg.vmap(lambda x: "text")(X), TraceError, "must return arrays, but the result is a str"),
    "function": (lambda: tg.vmap(3), TypeError, "vmap takes a function, got a int"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_the_argument(name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call()


def test_errors_are_of_the_kinds_of_tracegrad_too() -> None:
    with pytest.raises(ShapeError):
        tg.vmap(pair_of)(X, Y[:2])
    with pytest.raises(DTypeError):
        tg.vmap(tg.grad(lambda i: i * 1.0))(np.arange(3))


def test_an_error_of_an_op_names_the_line_of_one_example() -> None:
    with pytest.raises(ShapeError, match=r"test_vmap\.py"):
        tg.vmap(lambda x: x + np.ones(2))(X)


def scaled_in_place(x: Any) -> Any:
    return x.mul_(2.0)


def partly_in_place(x: Any) -> Any:
    x[0] = 5.0
    x[1:].sub_(x[:-1])
    return x.sum()


def in_a_dict(x: Any) -> Any:
    table = {"x": x}
    table["x"] += 1.0
    return table


def set_to_a_number(x: Any) -> Any:
    x.fill_(3.0)
    return x.sum()


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("f", [scaled_in_place, partly_in_place, in_a_dict, set_to_a_number])
@pytest.mark.parametrize("chunk", [None, 2])
def test_tensors_are_updated_in_place_as_by_a_loop(f: Any, axis: int, chunk: int | None) -> None:
    mapped, looped = (tg.arange(12.0).reshape(3, 4) for _ in range(2))
    plain = tg.arange(12.0).reshape(3, 4)
    for _ in range(3):
        result = tg.tree.leaves(tg.func.vmap(f, in_dims=axis, chunk_size=chunk)(mapped))[0]
        rows = [tg.tree.leaves(f(row))[0].clone() for row in looped.unbind(axis)]
        with tg.disable_jit():
            tg.func.vmap(f, in_dims=axis)(plain)
        np.testing.assert_array_equal(result, tg.stack(rows))
        np.testing.assert_array_equal(mapped, looped)
        np.testing.assert_array_equal(plain, looped)


def test_a_result_that_is_the_updated_argument_shares_its_memory() -> None:
    x = tg.ones(2, 3)
    result = tg.func.vmap(scaled_in_place)(x)
    x.add_(1.0)
    np.testing.assert_array_equal(result, np.full((2, 3), 3.0))


def test_updates_in_place_have_derivatives() -> None:
    def run(scaled: Any) -> list[Any]:
        x = tg.arange(4.0).reshape(2, 2).requires_grad_()
        w = tg.tensor([2.0, 3.0], requires_grad=True)
        result, z = scaled(x * 1.0, w)
        (result.sum() + z.sum()).backward()
        return [result.detach(), z.detach(), x.grad, w.grad]

    in_place = run(lambda z, w: (tg.func.vmap(lambda row: (row.mul_(w) ** 2).sum())(z), z))
    for a, b in zip(in_place, run(lambda z, w: (((z * w) ** 2).sum(1), z * w))):
        np.testing.assert_array_equal(a, b)


def test_updates_in_place_go_through_nested_vmaps() -> None:
    x = tg.arange(16.0).reshape(2, 2, 2, 2)
    tg.func.vmap(tg.func.vmap(scaled_in_place), in_dims=1)(x)
    np.testing.assert_array_equal(x, 2.0 * np.arange(16.0).reshape(2, 2, 2, 2))


def test_what_vmap_cannot_update_is_refused_by_name() -> None:
    y = tg.ones(2)
    with pytest.raises(RuntimeError, match=r"vmap: inplace arithmetic.*use an operation that is not in place"):
        tg.func.vmap(lambda x: y.add_(x))(tg.ones(3, 2))
    z = np.ones(2)
    with pytest.raises(UnsupportedError, match=r"array from outside of .*test_vmap.py:\d+.*x = x.clone\(\)"):
        tg.func.vmap(lambda x: z.__iadd__(1.0) + x)(tg.ones(3, 2))
    with pytest.raises(UnsupportedError, match=r"an argument a view of itself; say x = x.unsqueeze\(0\)"):
        tg.func.vmap(lambda x: x.unsqueeze_(0))(tg.ones(3, 2))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        tg.func.vmap(scaled_in_place)(tg.ones(3, 2, requires_grad=True))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        tg.func.vmap(scaled_in_place)(tg.ones(3, 1).expand(3, 2))


def test_tensors_that_are_not_mapped_are_updated_once() -> None:
    def run(vmap: Any) -> list[Any]:
        y, z, w = tg.zeros(2), tg.arange(4.0).reshape(2, 2), tg.tensor([2.0, 3.0], requires_grad=True)

        def step(x: Any, shared: Any) -> Any:
            y.add_(1.0)
            y[0] = 5.0
            z[1].mul_(y)
            shared.copy_(tg.ones(2) + 1)
            scaled = w * w
            (slope,) = tg.autograd.grad(scaled.sum(), w, retain_graph=True)
            y.mul_(slope)
            return x * y + z.sum() * shared + scaled

        shared = tg.zeros(2)
        result = vmap(step, in_dims=(0, None))(tg.arange(6.0).reshape(3, 2), shared)
        result.sum().backward()
        return [result.detach(), y, z, shared, w.grad]

    expected = [[[32.0, 43], [72, 55], [112, 67]], [20.0, 6.0], [[0.0, 1.0], [10.0, 3.0]], [2.0, 2.0], [12, 18]]
    traced = run(lambda step, in_dims: tg.trace(tg.func.vmap(step, in_dims)))
    nested = run(lambda step, in_dims: lambda x, y: tg.func.vmap(tg.func.vmap(step, in_dims), in_dims)(x[None], y)[0])
    for result in (run(tg.func.vmap), traced, nested):
        for x, y in zip(result, expected, strict=True):
            np.testing.assert_array_equal(x, y)


# -- containers among the arguments --------------------------------------------------------------------------------
@pytest.mark.parametrize("wrapped", [False, True], ids=["itself", "traced"])
def test_a_container_without_a_mapped_leaf_is_the_same_for_all(wrapped: bool) -> None:
    def scaled(x: Any, notes: dict[str, Any]) -> Any:
        notes["scale"] = 3.0
        notes["log"].append("scaled")
        return x * notes["scale"]

    def call(x: Any, notes: dict[str, Any]) -> Any:
        return tg.vmap(scaled, in_axes=(0, None))(x, notes)

    call = tg.trace(call) if wrapped else call
    notes: dict[str, Any] = {"scale": 1.0, "log": []}
    for n in range(1, 4):
        np.testing.assert_array_equal(call(X, notes), X * 3)
        assert notes == {"scale": 3.0, "log": ["scaled"] * n}


@pytest.mark.parametrize("wrapped", [False, True], ids=["itself", "traced"])
def test_a_value_of_an_example_in_a_container_of_all_is_an_error(wrapped: bool) -> None:
    def noted(x: Any, log: list[Any]) -> Any:
        log.append(np.sum(x))
        return x * 2

    def call(x: Any, log: list[Any]) -> Any:
        return tg.vmap(noted, in_axes=(0, None))(x, log)

    call = tg.trace(call) if wrapped else call
    with pytest.raises(tg.TraceError, match="escaped"):
        call(X, [])


def test_a_container_with_a_mapped_leaf_belongs_to_the_example() -> None:
    def doubled(d: dict[str, Any]) -> Any:
        d["x"] = d["x"] * 2
        return np.sum(d["x"])

    options = {"x": X}
    np.testing.assert_array_equal(tg.vmap(doubled)(options), 2 * X.sum(axis=1))
    assert options["x"] is X
