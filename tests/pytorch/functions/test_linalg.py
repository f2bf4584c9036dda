"""Functions of matrices and of order give PyTorch's values, derivatives of both orders and nodes, compiled or not."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch_linalg
from torch_linalg import CALLS, INPUTS, OTHER_NODES, call, inputs_of, weights

import tracegrad as tg
from tracegrad.torch import tape
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.linalg import matrices
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.tensor import of_array

RECORDED = json.loads(torch_linalg.DATA.read_text(encoding="utf-8"))
F = SimpleNamespace(**FUNCTIONS)

each_call = pytest.mark.parametrize("text", CALLS)
DIFFERENTIABLE = [text for text in CALLS if RECORDED[text]["gradients"] is not None]


def array_of(entry: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.array(entry["values"], entry["dtype"]).reshape(entry["shape"])


def assert_recorded(found: Any, entries: list[dict[str, Any]], tolerance: float = 1e-11) -> None:
    wanted = [array_of(entry) for entry in entries]
    assert [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in wanted]
    for x, y in zip(found, wanted):
        scale = max(1.0, float(np.abs(y[np.isfinite(y)]).max(initial=0))) if y.dtype.kind == "f" else 1
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * scale)


def tensors(text: str) -> dict[str, Tensor]:
    return {name: of_array(INPUTS[name].copy(), INPUTS[name].dtype.kind == "f") for name in inputs_of(text)}


def plain(xs: Any) -> list[np.ndarray[Any, Any]]:
    return [x.detach().numpy() if isinstance(x, Tensor) else np.asarray(x) for x in xs]


def weighted(xs: Any, on_tape: bool = False) -> Any:
    """The weighted sum of the outputs that are floats (that are on the tape)."""
    chosen = [(k, x) for k, x in enumerate(xs) if (x.requires_grad if on_tape else x.dtype.kind == "f")]
    return sum(((x * weights(x.shape, k)).sum() for k, x in chosen), 0.0)


# -- against PyTorch -----------------------------------------------------------------------------------------
@each_call
def test_tensors_give_the_values_and_nodes_of_pytorch(text: str) -> None:
    outputs = call(text, F, matrices, tensors(text))
    assert_recorded(plain(outputs), RECORDED[text]["outputs"])
    if text not in OTHER_NODES:
        nodes = [[x.grad_fn.name(), x.output_nr] if x.grad_fn else None for x in outputs]
        assert nodes == RECORDED[text]["nodes"]


@each_call
def test_arrays_give_the_values_of_pytorch(text: str) -> None:
    outputs = call(text, F, matrices, {name: INPUTS[name] for name in inputs_of(text)})
    assert all(isinstance(x, np.ndarray | np.generic) for x in outputs)
    assert_recorded(outputs, RECORDED[text]["outputs"])


@pytest.mark.parametrize("text", DIFFERENTIABLE)
def test_derivatives_of_both_orders_are_those_of_pytorch(text: str) -> None:
    inputs = tensors(text)
    wanted = [x for x in inputs.values() if x.requires_grad]
    outputs = call(text, F, matrices, inputs)
    first = tape.grad(weighted(outputs, on_tape=True), wanted, create_graph=True, allow_unused=True)
    first = [x * 0.0 if g is None else g for g, x in zip(first, wanted)]
    assert_recorded(plain(first), RECORDED[text]["gradients"], 1e-9)
    if RECORDED[text]["second"] is not None:
        total, second = weighted(first, on_tape=True), [None] * len(wanted)
        if isinstance(total, Tensor):
            second = tape.grad(total, wanted, allow_unused=True)
        second = [x * 0.0 if g is None else g for g, x in zip(second, wanted)]
        assert_recorded(plain(second), RECORDED[text]["second"], 1e-8)


SHAPED = [text for text in CALLS if not text.startswith("f.unique")]
# What compiled derivatives of each op are is tested with the table of ops; these are whole calls.
COMPILED_TWICE = """
L.solve(b, y)
L.det(a)
L.slogdet(b)
L.cholesky(S)
sq(L.eigh(S))
sq(L.svd(w, full_matrices=False))
f.matrix_exp(a)
f.sort(ties, descending=True)
f.topk(w, 2)
""".splitlines()[1:]


@pytest.mark.parametrize("start", range(0, len(SHAPED), 12))
def test_traced_calls_give_the_values_of_pytorch(start: int) -> None:
    chunk = SHAPED[start : start + 12]
    names = sorted({name for text in chunk for name in inputs_of(text)})
    traced = tg.trace(lambda *xs: [call(text, F, matrices, dict(zip(names, xs))) for text in chunk])
    for text, result in zip(chunk, traced(*(INPUTS[name] for name in names))):
        assert_recorded(result, RECORDED[text]["outputs"])


@pytest.mark.parametrize("text", COMPILED_TWICE)
def test_traced_derivatives_of_both_orders_are_those_of_pytorch(text: str) -> None:
    names = inputs_of(text)
    every = tuple(range(len(names)))

    def first(*xs: Any) -> Any:
        return tg.grad(lambda *ys: weighted(call(text, F, matrices, dict(zip(names, ys)))), argnums=every)(*xs)

    arrays = [INPUTS[name] for name in names]
    assert_recorded(tg.trace(first)(*arrays), RECORDED[text]["gradients"], 1e-9)
    if RECORDED[text]["second"] is not None:
        second = tg.trace(tg.grad(lambda *xs: weighted(first(*xs)), argnums=every))
        assert_recorded(second(*arrays), RECORDED[text]["second"], 1e-8)


# -- against definitions ---------------------------------------------------------------------------------------
def difference(fn: Any, x: Any, direction: Any, step: float = 1e-5) -> float:
    """The derivative of `fn` at `x` along `direction`, from values alone."""
    return float((fn(x + step * direction) - fn(x - step * direction)) / (2 * step))


RNG = np.random.default_rng(3)
SPD = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: np.sum(np.linalg.cholesky(x) * SPD),
        lambda x: np.sum(np.linalg.cholesky(x, upper=True) * SPD),
        lambda x: np.sum(scipy.linalg.solve(x, SPD, assume_a="pos") * SPD),
    ],
)
def test_functions_of_symmetric_matrices_have_symmetric_gradients(fn: Any) -> None:
    gradient = tg.grad(fn)(SPD)
    np.testing.assert_array_equal(gradient, gradient.T)
    direction = RNG.normal(size=(3, 3))
    direction += direction.T
    assert float(np.vdot(gradient, direction)) == pytest.approx(difference(fn, SPD, direction), rel=1e-7)


OF_TRIANGLES = {
    "eigh": lambda x: np.sum(np.linalg.eigh(x).eigenvectors ** 2 * SPD),
    "eigh, U": lambda x: np.sum(np.linalg.eigh(x, "U").eigenvectors ** 2 * SPD),
    "eigvalsh": lambda x: np.sum(np.linalg.eigvalsh(x) ** 3),
    "eigvalsh, U": lambda x: np.sum(np.linalg.eigvalsh(x, "U") * SPD[0]),
    "svd": lambda x: np.sum(np.linalg.svd(x, hermitian=True)[1] ** 3),
    "pinv": lambda x: np.sum(np.linalg.pinv(x, hermitian=True) * SPD),
    "scipy": lambda x: np.sum(scipy.linalg.eigh(x, lower=False)[0] ** 3),
    "scipy, of two": lambda x: np.sum(scipy.linalg.eigh(x, SPD + np.diag([1.0, 2.0, 3.0]))[0] ** 3),
}


@pytest.mark.parametrize("name", OF_TRIANGLES)
def test_gradients_are_of_the_triangle_that_numpy_reads(name: str) -> None:
    fn = OF_TRIANGLES[name]
    for x in (SPD, SPD + np.triu(RNG.normal(size=(3, 3)), 1), SPD + np.tril(RNG.normal(size=(3, 3)), -1)):
        wanted = [[difference(fn, x, np.outer(i, j)) for j in np.eye(3)] for i in np.eye(3)]
        gradients = (tg.grad(fn)(x), tg.trace(tg.grad(fn))(x), tg.jacfwd(fn)(x), tg.vmap(tg.grad(fn))(x[None])[0])
        for gradient in gradients:
            np.testing.assert_allclose(gradient, wanted, rtol=1e-6, atol=1e-7)
        curved = tg.jacfwd(tg.grad(fn))(x)
        np.testing.assert_allclose(tg.jacrev(tg.grad(fn))(x), curved, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("uplo", ["L", "U"])
def test_the_derivative_for_complex_matrices_is_of_the_triangle_that_is_read(uplo: str) -> None:
    x = RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3))
    direction = RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3))
    values = lambda x: np.sum(np.linalg.eigvalsh(x, uplo) ** 3)  # noqa: E731
    wanted = pytest.approx(difference(values, x, direction), rel=1e-6)
    assert tg.jvp(values, (x,), (direction,))[1] == wanted
    assert np.vdot(tg.grad(values)(x), direction).real == wanted


def test_gradients_of_tensors_are_symmetric_whatever_is_read() -> None:
    def loss(x: Any) -> Any:
        return (tg.linalg.eigvalsh(x) ** 3).sum() + (np.linalg.eigh(x)[0] ** 2).sum()

    x = SPD + np.triu(RNG.normal(size=(3, 3)), 1)
    gradients = [tg.func.grad(loss)(tg.tensor(x)), tg.trace(tg.func.grad(loss))(tg.tensor(x))]
    for f in (loss, tg.trace(loss)):
        leaf = tg.tensor(x, requires_grad=True)
        f(leaf).backward()
        gradients.append(leaf.grad)
    for gradient in gradients:
        np.testing.assert_allclose(gradient, gradient.numpy().T, rtol=1e-12)
        np.testing.assert_allclose(gradient, gradients[0], rtol=1e-12)


def test_only_the_triangle_asked_for_is_read() -> None:
    garbage = np.where(np.tri(3, k=-1).T > 0, np.nan, SPD)
    for fn, x in ((matrices.cholesky, garbage), (matrices.eigvalsh, garbage)):
        for run in (fn, tg.trace(fn)):
            np.testing.assert_allclose(run(x), fn(SPD), rtol=1e-14)
    np.testing.assert_array_equal(matrices.cholesky(garbage.T, upper=True), matrices.cholesky(SPD, upper=True))


def test_eigenvalues_that_are_equal_have_derivatives_and_their_vectors_have_none() -> None:
    x = Tensor(np.diag([2.0, 2.0, 5.0]), True)
    values, vectors = matrices.eigh(x)
    (gradient,) = tape.grad(values.sum(), [x], retain_graph=True)
    np.testing.assert_array_equal(gradient.numpy(), np.eye(3))
    (gradient,) = tape.grad((vectors * np.arange(9.0).reshape(3, 3)).sum(), [x])
    assert not np.isfinite(gradient.numpy()).all()
    y = Tensor(np.eye(2), True)
    (gradient,) = tape.grad(matrices.svd(y).S.sum(), [y])
    np.testing.assert_array_equal(gradient.numpy(), np.eye(2))


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_the_derivative_of_det_is_the_matrix_of_cofactors_at_every_rank(rank: int) -> None:
    x = RNG.integers(-3, 4, (3, rank)) @ RNG.integers(-3, 4, (rank, 3)) + 0.0
    minors = [[np.delete(np.delete(x, i, 0), j, 1) for j in range(3)] for i in range(3)]
    wanted = [
        [(-1) ** (i + j) * (m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]) for j, m in enumerate(row)]
        for i, row in enumerate(minors)
    ]
    for gradient in (tg.grad(np.linalg.det), tg.trace(tg.grad(np.linalg.det))):
        np.testing.assert_allclose(gradient(x), wanted, atol=1e-12)


def _second_of_det(x: Any, t: Any) -> float:
    """Of the polynomial that the determinant is along a line, by points on it."""
    points = np.linspace(-1.0, 1.0, len(x) + 1)
    polynomial = np.polynomial.Polynomial.fit(points, [np.linalg.det(x + p * t) for p in points], len(x))
    return float(polynomial.deriv(2)(0.0))


@pytest.mark.parametrize(("n", "rank"), [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (4, 1), (4, 2), (4, 3), (4, 4)])
def test_det_has_its_second_derivative_at_every_rank(n: int, rank: int) -> None:
    rng = np.random.default_rng(n + 10 * rank)
    x = rng.integers(-3, 4, (n, rank)) @ rng.integers(-3, 4, (rank, n)) + 0.0
    near = x + 1e-12 * rng.normal(size=x.shape)
    t = rng.normal(size=x.shape)

    def slope(x: Any) -> Any:
        return np.sum(tg.grad(np.linalg.det)(x) * t)

    for at in (x, near, np.stack([x, near])[0]):
        results = [np.sum(tg.grad(slope)(at) * t), tg.jvp(slope, (at,), (t,))[1]]
        with tg.disable_jit():
            results.append(np.sum(tg.grad(slope)(at) * t))
        np.testing.assert_allclose(results, _second_of_det(x, t), rtol=1e-8, atol=1e-8)


def test_det_of_complex_matrices_has_its_second_derivative_where_they_are_singular() -> None:
    rng = np.random.default_rng(3)
    x = np.outer(*(rng.normal(size=(2, 3)) + 1j * rng.normal(size=(2, 3))))
    t = rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3))
    for part, along in ((np.real, t), (np.imag, t), (np.real, 1j * t)):
        derivative = tg.grad(lambda x, part=part: part(np.linalg.det(x)))
        result = tg.jvp(lambda x, derivative=derivative: derivative(x), (x,), (along,))[1]
        h = 1e-4
        np.testing.assert_allclose(result, (derivative(x + h * along) - derivative(x - h * along)) / (2 * h), atol=1e-6)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: matrices.cholesky(x),
        lambda x: matrices.eigh(x).eigenvectors,
        lambda x: matrices.pinv(x[:, :2]).mT,
    ],
)
def test_third_derivatives_agree_with_differences_of_second_ones(fn: Any) -> None:
    first = tg.grad(lambda x: np.sum(fn(x) ** 3 * SPD[:, :1]))
    second = tg.grad(lambda x: np.sum(first(x) * SPD**2))
    contracted = tg.trace(lambda x: np.sum(second(x) * SPD))
    direction = RNG.normal(size=(3, 3))
    direction += direction.T
    wanted = difference(contracted, SPD, direction)
    assert float(np.vdot(tg.grad(contracted)(SPD), direction)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_the_vectors_that_complete_a_basis_are_orthonormal_and_constant(shape: tuple[int, int]) -> None:
    x = Tensor(RNG.normal(size=(2, *shape)), True)
    u, s, vh = matrices.svd(x)
    for basis in (u, vh):
        q = basis.detach().numpy()
        np.testing.assert_allclose(q @ q.mT, np.broadcast_to(np.eye(q.shape[-1]), q.shape), atol=1e-14)
    (full,) = tape.grad((u[..., :3] ** 2).sum() + (vh[..., :3, :] ** 3).sum() + s.sum(), [x])
    u, s, vh = matrices.svd(x, full_matrices=False)
    (reduced,) = tape.grad((u**2).sum() + (vh**3).sum() + s.sum(), [x])
    np.testing.assert_allclose(full.numpy(), reduced.numpy(), atol=1e-12)


@pytest.mark.parametrize("n", [0, 1])
def test_matrices_of_no_elements_and_of_one(n: int) -> None:
    x = np.full((2, n, n), 2.0)

    def every(x: Any) -> Any:
        values, vectors = np.linalg.eigh(x)
        u, s, vh = np.linalg.svd(x)
        q, r = np.linalg.qr(x)
        return (
            np.linalg.inv(x),
            np.linalg.det(x),
            *np.linalg.slogdet(x),
            np.linalg.cholesky(x),
            values,
            vectors**2,
            u * vh,
            s,
            q * r,
            np.linalg.pinv(x),
            np.linalg.solve(x, x),
            np.linalg.matrix_rank(x),
            matrices.matrix_exp(x),
            matrices.solve_triangular(x, x, upper=True),
        )

    for result, wanted in zip(tg.trace(every)(x), every(x)):
        np.testing.assert_allclose(result, wanted, strict=True)
    gradient = tg.trace(tg.grad(lambda x: sum(np.sum(v) for v in every(x) if v.dtype.kind == "f")))(x)
    assert gradient.shape == x.shape
    assert np.isfinite(gradient).all()


# -- errors ----------------------------------------------------------------------------------------------------
SINGULAR = {
    "inv": np.linalg.inv,
    "solve": lambda x: np.linalg.solve(x, np.ones(2)),
    "cholesky": np.linalg.cholesky,
}


@pytest.mark.parametrize("name", SINGULAR)
def test_a_singular_matrix_raises_as_in_numpy_and_compiled_code_shows_the_line(name: str) -> None:
    fn, bad = SINGULAR[name], np.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]])
    message = "not positive definite" if name == "cholesky" else "Singular matrix"
    with pytest.raises(np.linalg.LinAlgError, match=message):
        fn(Tensor(bad))

    @tg.trace
    def program(x: Any) -> Any:
        return fn(x * 1.0) + 1.0

    good = bad + 3 * np.eye(2)
    np.testing.assert_allclose(program(good), fn(good) + 1.0)
    with pytest.raises(np.linalg.LinAlgError, match=message) as caught:
        program(bad)
    assert any(step.name == "program" for step in caught.traceback)
    np.testing.assert_allclose(program(good), fn(good) + 1.0)


@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "cholesky", "eigh", "eigvalsh", "matrix_exp"])
def test_matrices_that_are_not_square_are_refused_by_shape(name: str) -> None:
    fn = getattr(matrices, name)
    for x in (np.ones((2, 3)), Tensor(np.ones((2, 3)))):
        with pytest.raises(RuntimeError, match=rf"linalg.{name}: A must be batches of square matrices.* 2 by 3 "):
            fn(x)
    with pytest.raises(np.linalg.LinAlgError, match="square matrices"):
        tg.trace(fn)(np.ones((2, 3)))
    with pytest.raises(RuntimeError, match="must have at least 2 dimensions"):
        fn(np.ones(3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: matrices.solve(np.eye(2), np.ones(3)), r"Incompatible shapes of A and B .*\(2x2 and 3x1\)"),
        (lambda: matrices.solve(np.eye(2), np.ones(2), left=False), "not supported for left=False"),
        (lambda: matrices.solve_triangular(np.eye(2), np.ones(2), upper=True), "B must have at least 2 dimensions"),
        (lambda: matrices.solve_triangular(np.eye(2), np.ones((3, 1)), upper=True), "AX = B"),
        (lambda: matrices.norm(np.ones((2, 2, 2)), 1), "must be 1D or 2D"),
        (lambda: matrices.matrix_norm(np.eye(2), 3), "Order 3 not supported"),
        (lambda: matrices.cross(np.ones(2), np.ones(2)), "must have length 3"),
        (lambda: matrices.qr(np.eye(2), mode="raw"), "unrecognized mode"),
        (lambda: matrices.lstsq(np.eye(2), np.eye(2), driver="x"), "driver"),
    ],
)
def test_what_does_not_fit_says_so_as_pytorch_does(call: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call()


def test_products_of_several_matrices_take_the_fewest_multiplications() -> None:
    shapes = [(30, 35), (35, 15), (15, 5), (5, 10), (10, 20), (20, 25)]
    arrays = [RNG.normal(size=shape) for shape in shapes]
    graph = tg.trace(lambda *xs: np.linalg.multi_dot(xs)).graph(*arrays)
    sizes = [n.inputs[0].aval.size * n.aval.shape[1] for n in graph.nodes if n.name == "matmul"]
    assert sum(sizes) == 15125  # Cormen et al., "Introduction to Algorithms", figure 15.5
    np.testing.assert_allclose(np.linalg.multi_dot([Tensor(x) for x in arrays]).numpy(), np.linalg.multi_dot(arrays))


def test_an_unused_factor_costs_no_call_and_parts_share_one() -> None:
    def both(x: Any) -> Any:
        values, vectors = np.linalg.eigh(x)
        return values, vectors

    assert [n.name for n in tg.trace(both).graph(SPD).nodes].count("eigh") == 1
    graph = tg.trace(lambda x: np.linalg.eigh(x).eigenvalues * 2.0).explain(SPD).optimized
    assert [n.name for n in graph.nodes if n.name.startswith("eig")] == ["eigvalsh"]
    graph = tg.trace(lambda x: np.linalg.svd(x)[1]).explain(SPD).optimized
    assert [n.name for n in graph.nodes if n.name.startswith("svd")] == ["svdvals"]
    graph = tg.grad(lambda x: np.linalg.eigh(x).eigenvalues[0]).explain(SPD).optimized
    assert [n.name for n in graph.nodes if n.name.startswith("eig")] == ["eigh"]


@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (5, 2), (2, 5), (2, 4, 3), (2, 3, 4), (3, 3)])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_full_factorizations_are_numpys_and_what_depends_on_spaces_has_their_derivatives(
    shape: tuple[int, ...], dtype: str
) -> None:
    draws = np.random.default_rng(3)

    def drawn() -> Any:
        real = draws.normal(size=shape)
        return real + 1j * draws.normal(size=shape) if dtype == "complex128" else real

    x, d, k = drawn(), drawn(), min(shape[-2:])

    def spaces(x: Any) -> Any:
        u, _, vh = np.linalg.svd(x)
        q, r = np.linalg.qr(x, "complete")
        parts = u[..., k:], np.swapaxes(vh[..., k:, :], -1, -2).conj(), q[..., k:]
        return *(part @ np.swapaxes(part, -1, -2).conj() for part in parts), r

    for result, wanted in zip(tg.trace(np.linalg.svd)(x), np.linalg.svd(x)):
        np.testing.assert_allclose(result, wanted, atol=1e-14)
    for result, wanted in zip(tg.trace(lambda x: tuple(np.linalg.qr(x, "complete")))(x), np.linalg.qr(x, "complete")):
        np.testing.assert_allclose(result, wanted, atol=1e-13)
    with tg.settings.override(first_call="replay"):
        tangents = tg.jvp(spaces, (x,), (d,))[1]
        for tangent, ahead, behind in zip(tangents, spaces(x + 1e-6 * d), spaces(x - 1e-6 * d), strict=True):
            np.testing.assert_allclose(tangent, (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-7)
        weights = [np.cos(np.arange(np.size(t))).reshape(np.shape(t)) for t in tangents]

        def loss(x: Any) -> Any:
            return sum(np.sum(w * np.real(part)) for w, part in zip(weights, spaces(x)))

        derivative = tg.grad(loss)(x)
        assert np.sum(np.real(np.conj(derivative) * d)) == pytest.approx(tg.jvp(loss, (x,), (d,))[1], rel=1e-9)


def test_a_vector_that_is_added_alone_has_the_derivatives_of_numpys_to_second_order() -> None:
    x, d = np.random.default_rng(1).normal(size=(2, 4, 3))

    def added(x: Any) -> Any:
        return np.linalg.svd(x)[0][:, 3], np.linalg.qr(x, "complete")[0][:, 3]

    for k in range(2):
        of = lambda x, k=k: np.sum(added(x)[k] ** 3)  # noqa: E731
        derivative = tg.grad(of)
        with tg.settings.override(first_call="replay"):
            differences = (of(x + 1e-6 * d) - of(x - 1e-6 * d)) / 2e-6
            assert np.sum(derivative(x) * d) == pytest.approx(differences, rel=1e-6)
            twice = (derivative(x + 1e-6 * d) - derivative(x - 1e-6 * d)) / 2e-6
            np.testing.assert_allclose(tg.jvp(derivative, (x,), (d,))[1], twice, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["pinv", "matrix_rank"])
def test_of_a_matrix_that_is_said_to_be_hermitian_the_lower_triangle_is_read(name: str) -> None:
    function = getattr(np.linalg, name)
    x = np.random.default_rng(0).standard_normal((3, 3)) + 4 * np.eye(3)
    ranks = np.array([[1.0, 9.0], [1.0, 1.0]])
    for a in (x, ranks, x + 1j * np.tril(x, -1)):
        traced = tg.trace(lambda a: function(a, hermitian=True))
        for _ in range(2):
            np.testing.assert_allclose(traced(a), function(a, hermitian=True), rtol=1e-12, atol=1e-12)
    with pytest.raises(np.linalg.LinAlgError):
        tg.trace(lambda a: function(a, hermitian=True))(np.ones((2, 3)))


FACTORED: dict[str, Any] = {
    "inv": lambda x: tg.linalg.inv(x),
    "inverse": lambda x: x.inverse(),
    "cholesky": lambda x: tg.linalg.cholesky(x),
    "solve": lambda x: tg.linalg.solve(x, tg.ones(2)),
    "matrix_power": lambda x: tg.linalg.matrix_power(x, -1),
    "tensorinv": lambda x: tg.linalg.tensorinv(x, ind=1),
    "old_cholesky": lambda x: x.cholesky(),
}


@pytest.mark.parametrize("name", FACTORED)
def test_matrices_that_cannot_be_factored_raise_the_error_of_pytorch(name: str) -> None:
    factored = FACTORED[name]

    def or_twice(x: Any) -> Any:
        try:
            return factored(x)
        except RuntimeError:
            return x * 2.0

    good, bad = tg.eye(2) * 2.0, -tg.eye(2) if "cholesky" in name else tg.zeros(2, 2)
    for run in (factored, tg.trace(factored), tg.trace(factored, tiered=True)):
        for x in (good, good, bad, good, good, bad):
            if x is good:
                assert bool(run(x).isfinite().all())
                continue
            with pytest.raises(tg.linalg.LinAlgError, match="linalg") as caught:
                run(x)
            assert isinstance(caught.value, RuntimeError)
            assert isinstance(caught.value, np.linalg.LinAlgError)
    for run in (or_twice, tg.trace(or_twice)):
        for x in (good, good, bad, good, bad, bad):
            np.testing.assert_array_equal(run(x), factored(x) if x is good else x * 2.0)
    with pytest.raises(np.linalg.LinAlgError) as caught:
        tg.trace(np.linalg.inv)(np.zeros((2, 2)))
    assert type(caught.value) is np.linalg.LinAlgError


@pytest.mark.parametrize("lower", [True, False])
def test_the_imaginary_parts_on_the_diagonal_of_a_hermitian_matrix_are_not_read(lower: bool) -> None:
    # As LAPACK does it not, so do functions that are no calls of LAPACK's of such matrices.
    generator = np.random.default_rng(4)
    x = generator.standard_normal((3, 3)) + 1j * generator.standard_normal((3, 3)) + 4 * np.eye(3)
    functions: list[Any] = [
        lambda a: scipy.linalg.pinvh(a, lower=lower),
        lambda a: scipy.linalg.solve(a, np.ones(3), assume_a="her", lower=lower),
        lambda a: np.linalg.eigh(a, "L" if lower else "U")[0],
    ]
    if lower:
        functions.append(lambda a: np.linalg.pinv(a, hermitian=True))
    for function in functions:
        traced = tg.trace(function)
        for _ in range(2):
            np.testing.assert_allclose(traced(x), function(x), rtol=1e-9, atol=1e-12)
        derivative = tg.jvp(lambda t, f=function: np.sum(np.real(f(x + 1j * t * np.eye(3)))), (0.0,), (1.0,))[1]
        np.testing.assert_allclose(derivative, 0.0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("p", [None, 2, -2])
def test_the_condition_of_a_matrix_of_zeros_is_infinite_as_numpy_has_it(p: Any) -> None:
    traced = tg.trace(lambda x: np.linalg.cond(x, p))
    for x in (np.zeros((2, 2)), np.stack([np.zeros((2, 2)), np.eye(2)]), np.ones((1, 1)), np.diag([0.0, 2.0])):
        for _ in range(2):
            np.testing.assert_allclose(traced(x), np.linalg.cond(x, p))
    assert not np.isfinite(tg.grad(lambda x: np.linalg.cond(x, p))(np.zeros((2, 2)))).any()
    assert np.isnan(tg.linalg.cond(tg.zeros(2, 2), p))
