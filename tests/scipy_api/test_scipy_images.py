"""`map_coordinates` and its kin of `scipy.ndimage` in traced code: values and slopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import differences, named, replayed, weighted
from scipy import ndimage

import tracegrad as tg
from tracegrad.errors import UnsupportedError

IMAGE = np.array(
    [[0.3, 1.2, -0.4, 0.8], [0.9, 0.1, 0.7, -0.2], [-1.1, 0.5, 0.2, 0.4], [0.6, -0.8, 1.5, 0.05], [1.0, 2.0, 0.0, 1.1]]
)
HALVES = np.stack([np.arange(-8.0, 13.0, 0.5), np.roll(np.arange(-8.0, 13.0, 0.5), 17)])
FAR = HALVES[:, ::3] * 0.713 + np.array([[0.123], [0.377]])
INSIDE = np.array([[0.37, 2.21, 1.43, 3.76], [0.61, 1.34, 2.88, 0.19]])
MATRIX = np.array([[0.9, 0.2], [-0.1, 1.1]])
MODES = ("constant", "reflect", "mirror", "nearest", "wrap", "grid-wrap", "grid-constant", "grid-mirror")


@pytest.mark.parametrize("order", range(6))
@pytest.mark.parametrize("mode", MODES)
def test_values_of_every_order_and_mode_are_scipys(order: int, mode: str) -> None:
    for places in (HALVES, FAR):

        def f(image: Any, places: Any = places) -> Any:
            return ndimage.map_coordinates(image, places, order=order, mode=mode, cval=1.5)

        np.testing.assert_allclose(tg.trace(named(f, f"{order} {mode}"))(IMAGE), f(IMAGE), rtol=1e-10, atol=1e-11)


CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    **{
        f"coordinates, {order}": (
            lambda x, order=order: ndimage.map_coordinates(IMAGE, x, order=order, mode="nearest"),
            INSIDE,
        )
        for order in (1, 2, 3)
    },
    "coordinates outside": (lambda x: ndimage.map_coordinates(IMAGE, x * 2.3 - 3.0, order=3, mode="reflect"), INSIDE),
    "coordinates, wrapped": (lambda x: ndimage.map_coordinates(IMAGE, x * 2.3 - 3.0, order=1, mode="wrap"), INSIDE),
    "image and coordinates": (lambda m: ndimage.map_coordinates(m * m, 1.5 + np.sin(m[:2, :2]), order=2), IMAGE),
    "image, nearest": (lambda m: ndimage.map_coordinates(m * m, INSIDE, order=0), IMAGE),
    "shift": (lambda m: ndimage.shift(m, (m[0, 0], -1.2), mode="nearest"), IMAGE),
    "zoom": (lambda m: ndimage.zoom(m**2, (1.7, 2.0), order=1), IMAGE),
    "zoom, of the grid": (lambda m: ndimage.zoom(m**2, 2.0, grid_mode=True, mode="grid-constant"), IMAGE),
    "affine_transform": (lambda a: ndimage.affine_transform(IMAGE, a, (0.13, 0.27), mode="mirror"), MATRIX),
    "affine_transform, a diagonal": (lambda m: ndimage.affine_transform(m**2, MATRIX[0], 0.2, order=2), IMAGE),
    "rotate": (lambda m: ndimage.rotate(m**2, 30.0), IMAGE),
    "rotate by": (lambda a: ndimage.rotate(IMAGE, a[0], reshape=False, mode="nearest"), np.array([25.0])),
    "spline_filter": (lambda m: ndimage.spline_filter(m**2, mode="reflect"), IMAGE),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    f, x = CASES[name]
    np.testing.assert_allclose(tg.trace(f)(x), f(x), rtol=1e-10, atol=1e-12)
    of, v = weighted(f, name), np.sin(1.0 + np.arange(x.size)).reshape(x.shape)
    derivative = tg.grad(of)
    assert np.sum(derivative(x) * v) == pytest.approx(differences(of, x, v), rel=1e-7, abs=1e-8)
    with replayed():
        assert tg.jvp(of, (x,), (v,))[1] == pytest.approx(np.sum(derivative(x) * v), rel=1e-9, abs=1e-11)
        second = tg.grad(named(lambda x: np.sum(derivative(x) * v), name))(x)
    want = differences(lambda x: np.sum(derivative(x) * v), x, v)
    assert np.sum(second * v) == pytest.approx(want, rel=1e-6, abs=1e-6)


def test_an_image_of_float32_stays_one() -> None:
    image = IMAGE.astype(np.float32)
    result = tg.trace(lambda m: ndimage.map_coordinates(m, INSIDE))(image)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, ndimage.map_coordinates(image, INSIDE), rtol=1e-6)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda m: ndimage.zoom(m, m[0, 0]), r"scipy\.ndimage\.zoom by a traced factor"),
        (lambda m: ndimage.rotate(m, m[0, 0]), r"scipy\.ndimage\.rotate of more axes"),
        (lambda m: ndimage.map_coordinates(IMAGE.astype(int), m[:2]), r"scipy\.ndimage\.map_coordinates of integers"),
        (lambda m: ndimage.median_filter(m, 3), r"scipy\.ndimage\.median_filter"),
    ],
)
def test_what_is_not_known_is_refused_by_name(f: Any, what: str) -> None:
    with pytest.raises((UnsupportedError, tg.errors.TraceError), match=what):
        tg.trace(f)(IMAGE)


@pytest.mark.parametrize("mode", ["mirror", "reflect", "grid-wrap"])
@pytest.mark.parametrize("order", [2, 5])
def test_the_filter_of_a_long_axis_is_that_of_all_its_elements(mode: str, order: int) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((300, 4)), rng.standard_normal((300, 4))
    value, derivative = tg.value_and_grad(lambda x: np.sum(w * ndimage.spline_filter(x, order, mode=mode)))(x)
    assert value == pytest.approx(np.sum(w * ndimage.spline_filter(x, order, mode=mode)), rel=1e-12)
    want = w
    for axis, n in enumerate(x.shape):
        matrix = ndimage.spline_filter1d(np.eye(n), order, axis=0, mode=mode)
        want = np.moveaxis(np.tensordot(matrix.T, want, axes=(1, axis)), 0, axis)
    np.testing.assert_allclose(derivative, want, rtol=1e-12, atol=1e-13)


def test_nan_is_carried_along_a_long_axis_as_scipy_does() -> None:
    x = np.ones((300, 4))
    x[17, 2] = np.nan
    np.testing.assert_array_equal(np.isnan(tg.trace(ndimage.spline_filter)(x)), np.isnan(ndimage.spline_filter(x)))


@pytest.mark.parametrize("scale", [1.0, 1e-30])
def test_a_filter_of_a_long_axis_has_all_its_weights(scale: float) -> None:
    x, weights = np.random.default_rng(0).standard_normal((300, 3)), (scale, -3.0 * scale, 1e-6 * scale, 2.0 * scale)
    got = tg.trace(lambda x: ndimage.correlate1d(x, weights, axis=0))(x)
    np.testing.assert_allclose(got, ndimage.correlate1d(x, weights, axis=0), rtol=1e-12, atol=1e-13 * scale)
