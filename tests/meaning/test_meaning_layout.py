"""What is a view and what a copy, and how results lie in memory: in traced code and on the tape as in NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from meaning import program
from random_programs import interpreted

import tracegrad as tg
from tracegrad.torch.tape import eager_vjp

Array = Any


# -- layouts ---------------------------------------------------------------------------------------------------------
def _strided(x: Array) -> Array:
    for axis in range(x.ndim):
        x = np.repeat(x, 2, axis)
    return x[tuple(slice(None, None, 2) for _ in x.shape)]


def _backwards(x: Array) -> Array:
    transposed = np.copy(x)[tuple(slice(None, None, -1) for _ in x.shape)]
    transposed[...] = x
    return transposed


def _permuted(x: Array) -> Array:
    axes = (1, 2, 0) if x.ndim == 3 else (1, 0)
    return x.transpose(axes).copy().transpose((2, 0, 1) if x.ndim == 3 else (1, 0))


# Ways to lay out an array in memory; each makes a new one.
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C": lambda x: x.copy(),
    "F": lambda x: x.copy("F"),
    "permuted": _permuted,
    "strided": _strided,
    "backwards": _backwards,
    "backwards F": lambda x: _backwards(x.T.copy()).T,
    "rows": lambda x: np.concatenate([x, x], axis=-1)[..., : x.shape[-1]],
}

# Of `x`, of positive numbers with shape (3, 4) or (2, 3, 4).
CALLS = """
np.broadcast_to(x, (2, *x.shape))[..., [0, 1]]; np.copy(np.broadcast_to(x, (2, *x.shape)))
np.broadcast_to(x, (2, *x.shape)).ravel("K"); np.conj(np.broadcast_to(x, (2, *x.shape)))
np.exp(x); -x; x + x; x + x[0]; x[0] + x; np.where(x > 2, x, 0.0); np.where(x > 2, x, x.copy()); x.copy() + x
x.astype(np.float32); x.astype(float); x.astype(float, copy=False); x.astype(float, order="F"); x.astype(float, "C")
x.astype(float, "F", copy=False); x.astype(float, "A", copy=False); x.astype(np.float32, order="C"); np.copy(x)
np.copy(x, "C"); np.copy(x, "F"); np.copy(x, "A"); x.copy(); x.copy("F"); x.copy("K"); x.copy("A"); x.sum(0)
x.sum(-1); x.sum(1, keepdims=True); x.max(1); x.mean(0); x.var(0); x.std(0); np.prod(x, axis=-1); np.cumsum(x, 0)
np.cumsum(x, -1); np.cumsum(x); np.sort(x); np.sort(x, 0); np.sort(x, None); np.argsort(x, 0); np.argmax(x, 0)
np.concatenate([x, x], 0); np.concatenate([x, x.copy()], 1); np.stack([x, x]); np.stack([x, x], 1)
np.stack([x, x], -1); np.vstack([x, x]); np.hstack([x, x]); np.append(x, x); np.append(x, x, 0); np.block([[x, x]])
np.pad(x, 1); np.pad(x, 0); np.pad(x, 1, mode="edge"); np.pad(x, 0, mode="edge"); np.take(x, [0, 1], 0)
np.take(x, [0, 1], 1); np.take(x, [0, 1]); x.take([1], 1); x[[0, 1]]; x[:, [0, 1]]; x[..., [0, 1]]; x[[0, 1], [0, 1]]
x[np.array([[0, 1], [1, 0]])]; x[1:, [0, 2]]; x[[1], 1:]; x[np.array([True, False, True, False])[: x.shape[0]]]
x[:, np.array([[0, 1], [1, 0]])]; x[..., 1, [0]]; np.take_along_axis(x, np.argsort(x, 0), 0); np.roll(x, 1, 0)
np.roll(x, 0, 0); np.roll(x, 1); np.roll(x, (1, 1), (0, 1)); np.tile(x, 1); np.tile(x, 2); np.tile(x, (2, 1))
np.repeat(x, 1, 0); np.repeat(x, 2, 0); np.repeat(x, 2); x @ x.swapaxes(-1, -2); x.swapaxes(-1, -2) @ x
np.outer(x, x); np.kron(x, np.ones((2,) * x.ndim)); np.tensordot(x, x, ([0], [0])); np.clip(x, 0, 3); np.round(x)
np.round(x, 2); np.round(x, -1); np.zeros_like(x); np.ones_like(x); np.full_like(x, 2.0); np.empty_like(x)
np.zeros_like(x, order="C"); np.ones_like(x, order="F"); np.full_like(x, x[..., :1])
np.zeros_like(x, shape=(4, 3) + x.shape[2:]); np.zeros_like(x, shape=(5,)); np.diff(x, axis=0); np.tril(x); np.triu(x)
np.nan_to_num(x); np.sign(x); np.linalg.norm(x, axis=0); np.average(x, 0); np.ptp(x, 0); np.count_nonzero(x, axis=0)
np.isclose(x, x); np.fmax(x, x); np.hypot(x, x); np.modf(x)[0]; np.divmod(x, 2.0)[1]; x**2; np.diagflat(x)
np.heaviside(x, 0.5); x > 2; np.logical_not(x > 2); np.positive(x); np.einsum("...i,...j->...ij", x, x)
np.einsum("...ij->...ji", x); np.einsum("...ij->...j", x); np.einsum("...ij->...ij", x)
np.einsum("...ij,...kj->...ki", x, x); np.einsum("...ii->...i", x[..., :3, :3]); np.einsum("...ij,...ij->...i", x, x)
np.trapezoid(x, axis=0); np.meshgrid(x[0].ravel(), x[0].ravel())[0]
np.meshgrid(x[0].ravel(), x[0].ravel(), sparse=True)[0]; np.select([x > 1], [x], 0.0); np.exp(x, order="C")
np.add(x, x, order="F"); np.reshape(x, (-1, 2)); np.reshape(x, (2, -1)); x.reshape(-1); x.reshape(4, -1)
x.reshape(3, -1); np.reshape(x, (-1, 2), order="F"); np.reshape(x, (-1, 2), order="A"); x.reshape(4, -1, order="F")
x.reshape(x.shape); np.reshape(x, -1, copy=True); np.ravel(x); np.ravel(x, "F"); np.ravel(x, "K"); np.ravel(x, "A")
x.ravel(); x.flatten(); x.flatten("F"); x.flatten("K"); x.T.ravel(); x.T.reshape(-1, 2); x[..., ::2].reshape(-1)
x[1:].ravel(); x[..., 1:3].ravel(); x[:, ::-1].ravel(); np.transpose(x); x.T; x.mT; np.swapaxes(x, 0, 1)
np.swapaxes(x, 0, 0); np.moveaxis(x, 0, -1); np.rollaxis(x, 1); x.swapaxes(0, -1); np.squeeze(x); x[None].squeeze()
x[:1].squeeze(0); np.squeeze(x[:, :1], 1); np.expand_dims(x, 1); x[:, None]; np.atleast_2d(x); np.atleast_3d(x)
np.atleast_1d(x[0]); np.flip(x); np.flip(x, 0); np.fliplr(x); np.flipud(x); x[::-1]; np.rot90(x); np.rot90(x, 0)
np.rot90(x, 2); np.rot90(x, 3); np.rot90(x, axes=(1, 0)); np.broadcast_to(x, (2, *x.shape))
np.broadcast_to(x, x.shape); np.broadcast_to(x[0], x.shape); np.broadcast_arrays(x, x)[0]; np.diagonal(x)
np.diagonal(x, 1); np.diagonal(x, -1, -1, -2); np.diagonal(x, 9); x.diagonal()
np.diag(x[..., 0]) if x.ndim == 3 else np.diag(x); np.linalg.diagonal(x); x.real; np.real(x); x.imag; np.imag(x)
x.conj(); np.conj(x); np.asarray(x); np.asarray(x, order="F"); np.asarray(x, order="C"); np.array(x)
np.array(x, copy=None); np.array(x, order="F"); np.array(x, order="C", copy=None); np.array(x, ndmin=4)
np.array(x, np.float32); np.asanyarray(x); np.ascontiguousarray(x); np.asfortranarray(x)
np.require(x, requirements="F"); np.require(x, requirements=["C", "O"]); x.view(); x[...]; x[1]; x[1:]; x[:, 1]
x[..., 1]; x[1, ...]; x[::2, ::-1]; np.split(x, [1], 1)[1]; np.array_split(x, 2, -1)[0]
np.unstack(x, axis=1)[1]; np.hsplit(x, [2])[0]; np.vsplit(x, [1])[0]
np.sum(x, 0).reshape(2, -1); np.zeros((3, 4), order="F"); np.ones((3, 4), order="F")
np.full((2, 3), x[0, 0], order="F"); np.full((2, 3), 1.5); np.eye(3, order="F"); np.array([x, x])
np.array([x[0], x[0]]); np.logaddexp(x, 0); np.float_power(x, 2); np.deg2rad(x)
np.linalg.inv(x[..., :3, :3] @ x[..., :3, :3].mT + np.eye(3)); np.cross(x[..., :3], x[..., 1:]); np.vecdot(x, x)
np.linalg.svd(x)[0]; np.linalg.qr(x)[0]; np.column_stack([x, x]) if x.ndim == 2 else np.dstack([x, x])
np.dstack([x, x]); np.maximum(x, x.T.copy().T); np.partition(x, 1, 0); np.sinc(x); np.clip(x, 0, None)
np.concatenate([np.broadcast_to(x[0], x.shape)] * 2); np.concatenate([np.broadcast_to(x[..., :1], x.shape)] * 2, -1)
np.concatenate([np.broadcast_to(x[0], x.shape), x]); np.stack([np.broadcast_to(x[0], x.shape)] * 2, -1)
np.concatenate([np.broadcast_to(x[0], x.shape).T, x.T]); np.broadcast_to(x[0], x.shape).astype(np.float32)
np.insert(x, 0, 1.0, 0); np.insert(x, [0, 2], 1.0, -1); np.insert(x, slice(0, 2), 1.0, 1); np.delete(x, 0, 0)
np.delete(x, [0, 1], 1); np.delete(x, [0], -1); np.delete(x, slice(None, None, 2), 1); np.delete(x, 1, -1)
np.delete(x, np.array([True, False, True, False])[: x.shape[1]], 1); np.delete(x, [0, 1]); np.insert(x, 3, 1.0)
np.float64(x); np.float32(x); np.complex128(x); np.double(x); np.int64(x); np.bool_(x); np.single(x)
"""

# NumPy makes arrays of these without asking their arguments, so that they cannot be given values of the tape.
MADE_BY_TRACES = re.compile(
    r"np\.(as|array\(|require|full\(\(2, 3\), x|float(32|64)\(|complex128\(|double|int64\(|bool_|single)"
)
EXPRESSIONS = [call.strip() for line in CALLS.strip().splitlines() for call in line.split(";")]


def facts(x: Array, found: Array) -> tuple[Any, ...]:
    """What can be seen of the memory of `found`, which was made of `x`."""
    flags = found.flags
    strides = tuple([s for n, s in zip(found.shape, found.strides) if n > 1])
    return (
        strides,
        flags.c_contiguous,
        flags.f_contiguous,
        flags["C"],
        flags.writeable,
        np.isfortran(found),
        found.base is (x if x.base is None else x.base),
        np.shares_memory(x, found),
        np.may_share_memory(found, x),
    )


def of_call(expression: str, layout: str) -> Callable[[Array], Any]:
    space = {"np": np, "facts": facts, "laid": LAYOUTS[layout]}
    exec(f"def told(array):\n    x = laid(array)\n    return facts(x, {expression})", space)
    return space["told"]  # type: ignore[return-value]


SHAPES = ((3, 4), (2, 3, 4))


def sample(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(0).uniform(1, 4, shape)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_results_lie_in_memory_as_numpys(expression: str) -> None:
    for shape in SHAPES:
        for layout in LAYOUTS:
            told = of_call(expression, layout)
            try:
                expected = told(sample(shape))
            except (ValueError, IndexError, np.exceptions.AxisError, np.linalg.LinAlgError):
                continue
            assert told_by(tg.trace, told, shape) == expected, (shape, layout, "traced")
            if not MADE_BY_TRACES.match(expression):
                assert told_by(tg.grad, told, shape) == expected, (shape, layout, "on the tape")


def told_by(transform: Any, told: Callable[[Array], Any], shape: tuple[int, ...]) -> Any:
    """What `told` sees of an array of this shape in a trace, or on the tape."""
    if transform is tg.trace:
        with interpreted():
            return tg.trace(told)(sample(shape))
    results = []

    def f(x: Array) -> Array:
        results.append(told(x))
        return np.sum(x)

    with tg.disable_jit():
        transform(f)(sample(shape))
    return results[0]


# -- programs --------------------------------------------------------------------------------------------------------
def grid(*shape: int) -> Array:
    return np.arange(float(np.prod(shape))).reshape(shape)


@program
def test_what_is_not_contiguous_is_copied(trace: Any) -> Any:
    @trace
    def raveled(x: Array) -> Array:
        v = x.copy()
        w = np.ravel(v.T)
        w -= 1
        return v, w

    @trace
    def patch(image: Array) -> Array:
        image = image.copy()
        p = image[1:4, 2:5].ravel()
        p -= p.mean()
        return image, p

    @trace
    def heads(q: Array) -> Array:
        q = q.copy()
        h = q.reshape(6, 2, 3).transpose(1, 0, 2).reshape(2, 18)
        h *= 0.5
        return q, h

    for _ in range(2):
        yield raveled(grid(3, 3))
        yield patch(grid(6, 7))
        yield heads(grid(6, 6))


@program
def test_what_is_contiguous_is_a_view(trace: Any) -> Any:
    @trace
    def f(x: Array) -> Array:
        v = np.exp(x.T)
        w = v.ravel()
        w -= 1.0
        u = v.ravel("F")
        u *= 2.0
        t = np.ravel(v, "K")
        t += 0.5
        return v, w

    @trace
    def ordered(x: Array) -> Array:
        v = np.zeros((3, 4), order="F")
        v += x
        v.ravel()[...] = 7.0
        v.T.ravel()[:5] = 8.0
        w = np.asfortranarray(x)
        np.asfortranarray(w)[0] = 9.0
        np.ascontiguousarray(w)[1] = 10.0
        w.astype(float, copy=False)[:, 0] += 1.0
        w.astype(float)[:, 1] += 1.0
        np.array(w, copy=None)[2, 2] = 1.5
        return v, w

    yield f(grid(3, 4))
    yield ordered(grid(3, 4))


@program
def test_diagonals_by_einsum_are_views(trace: Any) -> Any:
    @trace
    def f(x: Array) -> Array:
        v = x.copy()
        np.einsum("ii->i", v)[:] += 1.0
        w = np.einsum("ij->ji", v)
        w[0] = 5.0
        s = np.einsum("ij->i", v)
        s += 1.0
        d = np.diagonal(v, 1)
        v[0, 1] = 9.0
        return v, d * 1.0, s, np.trace(v)

    yield f(grid(3, 3))


@program
def test_views_of_all_kinds_are_written_through(trace: Any) -> Any:
    @trace
    def f(x: Array) -> Array:
        v = x.copy()
        np.flip(v, 0)[0] = 0.25
        np.rot90(v)[0] += 1.0
        np.rot90(v, 0)[0] += 2.0
        np.rot90(v, 2)[1] += 3.0
        np.swapaxes(v, 0, 1)[2] *= 2.0
        np.squeeze(v[:, None])[1, 1] = -1.0
        np.moveaxis(v, 0, 1)[0, 0] = -2.0
        v.real[0, 1] = -3.0
        np.real(v)[0, 2] = -4.0
        v.conj()[2, 0] = -5.0
        for part in np.split(v, 2, 1):
            part[0] += 0.5
        for row in v:
            row[0] = 6.0
        return v

    @trace
    def copies(x: Array) -> Array:
        v = x.copy()
        for w in (
            np.tile(v, 1),
            np.repeat(v, 1, 0),
            v.flatten(),
            np.conj(v),
            +v,
            np.roll(v, 0),
            np.pad(v, 0),
            np.broadcast_to(v, v.shape).copy(),
            v[[0, 1, 2]],
            np.clip(v, None, None),
            v.imag.copy(),
        ):
            w[...] = 3.0
        return v

    yield f(grid(3, 4))
    yield copies(grid(3, 4))


@program
def test_updates_are_seen_through_read_only_views(trace: Any) -> Any:
    @trace
    def f(x: Array) -> Array:
        v = x.copy()
        wide, diagonal = np.broadcast_to(v[0], (2, 3)), v.diagonal()
        v += 10.0
        return wide * 1.0, diagonal * 1.0, wide.flags.writeable, diagonal.flags.writeable

    yield f(grid(3, 3))


@pytest.mark.parametrize("view", ["np.broadcast_to(v, (2, 3, 3))", "np.diagonal(v)", "v.imag", "np.diag(v)[1:]"])
def test_read_only_views_refuse_updates(view: str) -> None:
    space: dict[str, Any] = {"np": np}
    exec(f"def f(x):\n    v = np.copy(x)\n    w = {view}\n    w[0] = 1.0\n    return np.sum(v)", space)
    with pytest.raises(ValueError, match="read-only"):
        space["f"](grid(3, 3))
    with pytest.raises(ValueError, match="read-only"):
        tg.trace(space["f"])(grid(3, 3))
    with tg.disable_jit(), pytest.raises(ValueError, match="read-only"):
        tg.grad(space["f"])(grid(3, 3))


@program
def test_memory_can_be_asked_about(trace: Any) -> Any:
    @trace
    def f(x: Array) -> Array:
        v = np.copy(x)
        w, u = v[1:, ::2], v.T.ravel()
        return (
            np.shares_memory(v, w),
            np.shares_memory(v, u),
            np.may_share_memory(v[0], v[1]),
            np.shares_memory(x, v),
            np.shares_memory(v[::2], v[1::2]),
            np.may_share_memory(v[:, ::2], v[:, 1::2]),
            w.base is v,
            v.base is None,
            v.strides,
            w.strides,
            v.T.strides,
            v[::-1].strides,
            v.flags.c_contiguous,
            v.T.flags["F_CONTIGUOUS"],
            w.flags.owndata,
            v.flags.owndata,
            v.flags.fnc,
            np.isfortran(v.T),
            v.flags["W"],
            x.flags.c_contiguous,
            np.sum(x),
        )

    for x in (grid(4, 3), np.asfortranarray(grid(4, 3)), grid(8, 6)[::2, ::2], grid(4, 3)):
        yield f(x)


@pytest.mark.parametrize("asked", ["x.base", "x.flags.writeable", "x.flags.owndata", "np.shares_memory(x, y)"])
def test_what_is_not_known_of_arrays_from_outside_is_refused(asked: str) -> None:
    space: dict[str, Any] = {"np": np}
    exec(f"def f(x, y):\n    return x + y, {asked}", space)
    with pytest.raises(tg.errors.UnsupportedError, match=r":2\)"):
        tg.trace(space["f"])(grid(3), grid(3))


@program
def test_arrays_in_another_layout_take_another_path(trace: Any) -> Any:
    @trace
    def f(x: Array) -> Array:
        v = np.copy(x)
        w = v.ravel()
        w += 1.0
        return v, w

    @trace
    def strided(x: Array) -> Array:
        v = x * 2.0
        for k in range(2):
            v.reshape(-1)[k::2] = k
        np.ascontiguousarray(v)[0] = 5.0
        return v

    rows = grid(6, 4)
    layouts = [rows[:3], rows[:3].copy("F"), rows[::2], rows[:3][::-1], rows[:, :3].T[:, :4], rows[:3]]
    for x in layouts * 2:
        yield f(x)
        yield strided(x)


def test_only_what_asks_for_a_layout_is_traced_again_for_another() -> None:
    def count(f: Any) -> int:
        traced = tg.trace(f)
        for x in (grid(3, 4), np.asfortranarray(grid(3, 4)), grid(6, 4)[::2], grid(3, 4)):
            np.testing.assert_allclose(traced(x), f(x))
        return traced.cache_info().traces

    def silent(x: Array) -> Array:
        v = np.copy(x)
        w = np.ascontiguousarray(v).reshape(-1, 2) + x.ravel().reshape(-1, 2)
        v[0] = w[0, 0]
        return v.T @ np.exp(x)

    def asking(x: Array) -> Array:
        v = np.copy(x)
        w = v.ravel()
        w[0] = 5.0
        return v

    assert count(silent) == 1
    assert count(asking) == 3


@program
def test_captured_arrays_have_layouts(trace: Any) -> Any:
    table = grid(3, 4)

    @trace
    def f(x: Array) -> Array:
        v = np.empty_like(table)
        v[...] = x
        v.ravel()[0] = 5.0
        w = table * x
        w.ravel()[1] = 6.0
        return v, w

    for layout in (grid(3, 4), np.asfortranarray(grid(3, 4)), grid(3, 8)[:, ::2], grid(3, 4)):
        table = layout
        yield f(np.ones((3, 4)))


@program
def test_what_is_returned_lies_in_memory_as_numpys(trace: Any) -> Any:
    @trace
    def f(x: Array) -> Array:
        v = np.exp(x.T)
        return x.T, v, v.copy(), x + 1.0, np.zeros((2, 3), order="F") + x[:2, :3], x[:, [0, 1]], {"a": [np.rot90(x), v]}

    for x in (grid(3, 4), np.asfortranarray(grid(3, 4)), grid(6, 4)[::2], grid(3, 4)):
        results = f(x)
        yield results
        yield [np.copy(y).strides for y in tg.tree.leaves(results)]


GRADIENTS = {
    "flip": "w = np.flip(v, 0); w[...] = 0.25",
    "rot90": "w = np.rot90(v); w[1:] = y.T[1:]",
    "rot90 by 0": "w = np.rot90(v, 0); w[0] *= y[0]",
    "tile": "w = np.tile(v, 1); w[...] = 0.25",
    "repeat": "w = np.repeat(v, 1, 0); w *= 2.0",
    "ravel": "w = np.ravel(v.T); w *= y.ravel()",
    "ravel of F": "v = np.exp(v.T); w = v.ravel(); w *= y.ravel()",
    "diagonal": "np.einsum('ii->i', v)[:] *= y[0]",
    "diagonal read": "w = v.diagonal(); v[1] *= y[1]; v = v * w",
    "broadcast": "w = np.broadcast_to(v[0], (3, 3)); v[0] = y[0] * v[1]; v = v * w",
    "squeeze": "w = np.squeeze(v[:, :1]); w *= y[0]",
    "reshape F": "w = v.reshape(-1, order='F'); w *= 2.0; v = v * w.reshape(3, 3)",
    "astype": "w = v.astype(float, copy=False); w[0] = y[1]",
    "swapaxes": "w = np.swapaxes(v, 0, 1)[::-1]; w[0] = w[1] * y[2]",
    "split": "a, b = np.split(v, [1]); a *= y[:1]; b[:, 0] = a[0, 0]",
    "views of views": "w = v[1:].T[::-1].reshape(-1); w *= 3.0; v = v * w.sum()",
    "copy": "w = v.copy('F'); u = w.ravel('K'); u *= y.ravel(); v = v * w",
}


@pytest.mark.parametrize("body", GRADIENTS.values(), ids=GRADIENTS)
def test_derivatives_flow_through_writes_to_views(body: str) -> None:
    space: dict[str, Any] = {"np": np}
    exec(f"def f(x, y):\n    v = np.copy(x)\n    {body}\n    return np.sum(np.sin(v))", space)
    f, rng = space["f"], np.random.default_rng(3)
    x, y, step = rng.normal(size=(3, 3)), rng.normal(size=(3, 3)), 1e-6
    units = np.eye(9).reshape(9, 3, 3) * step
    expected = [
        np.reshape([(f(x + e, y) - f(x - e, y)) / (2 * step) for e in units], (3, 3)),
        np.reshape([(f(x, y + e) - f(x, y - e)) / (2 * step) for e in units], (3, 3)),
    ]
    derivative = tg.value_and_grad(f, argnums=(0, 1))
    value, result = derivative(x, y)
    with tg.disable_jit():
        eager, on_tape = derivative(x, y)
    np.testing.assert_allclose([value, eager], [f(x, y)] * 2, rtol=1e-12)
    for k in range(2):
        np.testing.assert_allclose(result[k], expected[k], atol=1e-7)
        np.testing.assert_allclose(on_tape[k], expected[k], atol=1e-7)


def test_memory_moves_only_if_the_tape_has_saved_it() -> None:
    def f(x: Array) -> Array:
        v = np.zeros_like(x)
        view, before = v[1:], v.array
        v[0] = x[0]
        assert v.array is before
        y = np.sin(v)
        v[1] = x[0] * 2.0
        assert v.array is not before
        assert np.shares_memory(v, view)
        del y
        after = v.array
        view[1] = 3.0
        assert v.array is after
        return np.sum(v * view[0])

    _, pullback = eager_vjp(lambda x: [f(x)], [np.array([0.5, 1.0, 2.0])])
    np.testing.assert_allclose(pullback([1.0])[0], [12.0, 0.0, 0.0])


@program
def test_views_that_leave_the_function(trace: Any) -> Any:
    class Box:
        part: Any = None

    box, held = Box(), np.arange(6.0)

    @trace
    def f(x: Any) -> Any:
        box.part = held[1:4]
        held[2] = x[0, 0]
        y = np.zeros((2, 3)) + x[0, 0]
        return x[1:], x.T[::-1], x.reshape(-1), np.ravel(x.T), y, y[0], np.broadcast_to(x[0], (2, 3)), x[..., 0]

    for x in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.ones((4, 6))[::2, ::2]):
        result = f(x)
        for k, part in enumerate(result):
            yield k, part, np.shares_memory(part, x), part.flags.writeable
            if part.flags.writeable:
                part[...] = k
        yield x, result, held, box.part, np.shares_memory(box.part, held)


@program
def test_a_view_of_an_array_without_axes(trace: Any) -> Any:
    f = trace(lambda x: x[...])
    x = np.array(1.5)
    for _ in range(2):
        view = f(x)
        view[...] = 2.5
        yield view, x


# -- in regions -------------------------------------------------------------------------------------------------------
def _reshaped(c: Any, r: Any) -> Any:
    q = c.T.reshape(-1)
    q *= 2.0
    return c + 0.0, q.sum()


def _of_a_copy_as_it_lies(c: Any, r: Any) -> Any:
    c = c.copy(order="K")
    q = c.T.ravel()
    q *= 2.0
    return c, q.sum()


def _base_of_a_view(c: Any, r: Any) -> Any:
    c = c * 2.0
    q = np.ravel(c)
    c += 1.0
    return c, q.sum()


def _of_a_copy(c: Any, r: Any) -> Any:
    c = np.array(c, order="C")
    c += r
    q = c.reshape(-1)
    q *= 2.0
    p = c.T.ravel()
    p -= 1.0
    return c, q.sum() + p.sum()


def _of_a_method_copy(c: Any, r: Any) -> Any:
    c = c.copy()
    q = np.ravel(c)
    q += r
    return c, c.reshape(-1)[::2].sum()


LAID = {
    "C": np.arange(12.0).reshape(3, 4),
    "F": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "strided": np.arange(48.0).reshape(6, 8)[::2, ::2],
}


@pytest.mark.parametrize("layout", LAID)
@pytest.mark.parametrize("body", [_reshaped, _of_a_copy_as_it_lies, _base_of_a_view])
def test_a_body_does_not_guess_how_its_arguments_lie_in_memory(body: Any, layout: str) -> None:
    f = tg.trace(lambda c: tg.scan(body, c, np.arange(3.0)))
    with pytest.raises(tg.UnsupportedError, match=r"lies in memory.*test_meaning_layout.py"):
        f(LAID[layout].copy(order="K"))


@pytest.mark.parametrize("layout", LAID)
@pytest.mark.parametrize("body", [_of_a_copy, _of_a_method_copy])
def test_a_body_that_copies_updates_its_copy(body: Any, layout: str) -> None:
    def f(c: Any) -> Any:
        return tg.scan(body, c, np.arange(3.0))

    with tg.disable_jit():
        expected = f(LAID[layout].copy(order="K"))
    result = tg.trace(f)(LAID[layout].copy(order="K"))
    for a, b in zip(result, expected):
        np.testing.assert_allclose(a, b)


@pytest.mark.parametrize("layout", LAID)
def test_a_body_knows_how_arrays_from_outside_lie(layout: str) -> None:
    held = LAID[layout]

    def f(x: Any, given: Any) -> Any:
        def body(c: Any, r: Any) -> Any:
            a, b = held.T.reshape(-1), np.ravel(given, order="K")
            return c + a[0] * r, (a * np.arange(12.0)).sum() + (b * np.arange(12.0)).sum()

        return tg.scan(body, x, np.arange(3.0))

    with tg.disable_jit():
        expected = f(1.0, held)
    for a, b in zip(tg.trace(f)(1.0, held), expected):
        np.testing.assert_allclose(a, b)


def test_what_an_index_gives_another_shape_lies_in_row_major_order_without_being_asked() -> None:
    places = []

    def fun(x: Array) -> Array:
        column = x[:, None]
        places.append(column.stand_in)
        assert column.strides == (24, 24, 8)
        assert np.shares_memory(x, column)
        column[0] = 7.0
        return column + x[:, ::-1][:, None]

    x = np.arange(6.0).reshape(2, 3)
    updated = x.copy()
    updated[0] = 7.0
    assert np.array_equal(tg.trace(fun)(x), updated[:, None] + updated[:, None, ::-1])
    assert places == [None]
