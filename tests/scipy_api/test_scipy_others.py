"""`spatial.distance`, `integrate`, `signal`, `interpolate` and `ndimage` of SciPy in traced code: values and slopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import differences, named, replayed, weighted
from scipy import integrate, interpolate, ndimage, signal
from scipy.spatial import distance

import tracegrad as tg
from tracegrad.errors import UnsupportedError

M = np.array([[0.3, 1.2, -0.4], [0.9, 0.1, 0.7], [-1.1, 0.5, 0.2], [0.6, -0.8, 1.5], [0.05, 0.33, -0.6]])
V = np.array([0.3, 1.2, -0.4, 0.9, 0.1, 0.7, 2.0])
KNOTS = np.array([0.0, 0.5, 1.2, 2.0, 3.1])
POINTS = np.array([-0.3, 0.2, 0.9, 1.7, 2.9, 3.6])
VALUES = np.array([0.3, 1.1, -0.4, 0.8, 0.2])
CUBIC = interpolate.CubicSpline(KNOTS, np.sin(KNOTS))
LIKE = interpolate.CubicSpline(KNOTS, VALUES)
PCHIP = interpolate.PchipInterpolator(KNOTS, VALUES, extrapolate=False)
ALONG_AXIS = interpolate.CubicSpline(KNOTS, np.stack([VALUES, VALUES**2]), axis=1)
SPLINE = interpolate.make_interp_spline(KNOTS, VALUES, k=3)
BREAKS = SPLINE.t.copy()
LINEAR = interpolate.interp1d(KNOTS, VALUES)
TABLES = [interpolate.interp1d(KNOTS, VALUES, kind) for kind in ("nearest", "previous", "cubic")]
FILLED = interpolate.interp1d(KNOTS, VALUES, bounds_error=False, fill_value=(7.0, 8.0))
ALONG = interpolate.interp1d(KNOTS, VALUES, fill_value="extrapolate")
GRID = interpolate.RegularGridInterpolator((KNOTS, np.arange(3.0)), M, bounds_error=False, fill_value=None)
SOS = signal.butter(4, 0.3, output="sos")
B, A = signal.butter(3, 0.3)

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    **{f"cdist, {m}": (lambda x, m=m: distance.cdist(x, x[:3] * 1.3 + 0.05, m), M) for m in (
        "euclidean", "sqeuclidean", "cityblock", "chebyshev", "canberra", "braycurtis", "cosine", "correlation")},
    "cdist, minkowski": (lambda x: distance.cdist(x, x + 0.3, "minkowski", p=4), M),
    "pdist": (distance.pdist, M),
    "squareform": (lambda x: distance.squareform(distance.pdist(x)), M),
    "squareform of a matrix": (lambda x: distance.squareform(x, checks=False), M[:3]),
    "euclidean": (lambda x: distance.euclidean(x[0], x[1]) + distance.cosine(x[0], x[2]), M),
    "trapezoid": (lambda x: integrate.trapezoid(x, axis=0) + integrate.trapezoid(x, KNOTS + x[0, 0], axis=0), M),
    "simpson": (lambda x: integrate.simpson(x, axis=0) + integrate.simpson(x, x=KNOTS, axis=0), M),
    "simpson of an even number": (lambda x: integrate.simpson(x[:4], axis=0), M),
    "simpson at traced places": (lambda x: integrate.simpson(x[:4].T, x=np.cumsum(x[:4, 0] ** 2)), M),
    "romb": (lambda x: integrate.romb(x, axis=0, dx=0.3) + integrate.romb(x.T[:, :3], x[0, 1]), M[:, [0, 1, 2, 0, 1]]),
    "cumulative_simpson": (lambda x: integrate.cumulative_simpson(x, axis=0, dx=0.2, initial=1.5), M),
    "cumulative_simpson at places": (lambda x: integrate.cumulative_simpson(x[:4], x=KNOTS[:4], axis=0), M),
    "cumulative_simpson at traced places": (
        lambda x: integrate.cumulative_simpson(x.T, x=np.cumsum(x.T**2 + 0.1, axis=1), initial=x[:3, :1]), M),
    "cumulative_simpson of two": (lambda x: integrate.cumulative_simpson(x[:2], axis=0, initial=0), M),
    "cumulative_trapezoid": (lambda x: integrate.cumulative_trapezoid(x, KNOTS, axis=0, initial=0), M),
    "convolve": (lambda x: signal.convolve(x, x[:3] + 1.0), V),
    "convolve, same": (lambda x: signal.convolve(x, [1.0, 2.0, -1.0, 0.5], mode="same"), V),
    "convolve, valid": (lambda x: signal.convolve(x[:3], x, mode="valid"), V),
    "convolve, two axes": (lambda x: signal.convolve(x, x[:2, :2], mode="same"), M),
    "convolve, long": (lambda x: signal.convolve(np.concatenate([x] * 12), np.concatenate([x] * 7)), V),
    "fftconvolve": (lambda x: signal.fftconvolve(x, x[:3]), V),
    "correlate": (lambda x: signal.correlate(x, x[:3], mode="same"), V),
    "lfilter": (lambda x: signal.lfilter(B, A, x), V),
    "lfilter, coefficients": (lambda x: signal.lfilter(x[:2], [x[2] + 2.0, x[3], 0.2], x), V),
    "lfilter, along an axis": (lambda x: signal.lfilter(B, A, x, axis=0), M),
    "sosfilt": (lambda x: signal.sosfilt(SOS, x), V),
    "CubicSpline": (lambda x: CUBIC(x) + CUBIC(x, 1), POINTS),
    "CubicSpline, derivative": (lambda x: CUBIC.derivative()(x), POINTS),
    "CubicSpline, values": (lambda y: interpolate.CubicSpline(KNOTS, y)(POINTS), VALUES),
    "CubicSpline, natural": (lambda y: interpolate.CubicSpline(KNOTS, y, bc_type="natural")(y), VALUES),
    "CubicSpline, made inside": (lambda x: interpolate.CubicSpline(KNOTS, VALUES)(x), POINTS),
    "PchipInterpolator": (lambda x: np.nan_to_num(PCHIP(x)), POINTS),
    "PchipInterpolator, values": (lambda y: interpolate.PchipInterpolator(KNOTS, y)(POINTS), VALUES),
    "PchipInterpolator, knots": (lambda x: interpolate.PchipInterpolator(x, np.sqrt(x))(POINTS[1:]), KNOTS + 0.1),
    "PchipInterpolator, monotone": (
        lambda y: interpolate.PchipInterpolator(KNOTS, np.cumsum(y**2))(POINTS, 1), VALUES),
    "pchip_interpolate": (lambda y: interpolate.pchip_interpolate(KNOTS, y, 0.7, 1), VALUES),
    "Akima1DInterpolator, values": (lambda y: interpolate.Akima1DInterpolator(KNOTS, y)(POINTS[1:5]), VALUES),
    "Akima1DInterpolator, modified": (
        lambda y: interpolate.Akima1DInterpolator(KNOTS, y, method="makima", extrapolate=True)(POINTS), VALUES),
    "CubicHermiteSpline": (lambda y: interpolate.CubicHermiteSpline(KNOTS, y, np.sin(y))(POINTS), VALUES),
    "PPoly": (lambda c: interpolate.PPoly(c[:, None] * np.ones(4), KNOTS)(POINTS), VALUES),
    "CubicSpline, along an axis": (lambda y: interpolate.CubicSpline(np.arange(3.0), y, axis=1)(POINTS[1:4]), M),
    "CubicSpline, made along an axis": (lambda x: ALONG_AXIS(x), POINTS),
    **{f"interp1d, {kind}": (lambda y, kind=kind: interpolate.interp1d(
        KNOTS, y, kind, bounds_error=False, fill_value=2.0)(np.append(POINTS, KNOTS)), VALUES) for kind in (
        "nearest", "nearest-up", "previous", "next", "slinear", "quadratic", "cubic", 3)},
    **{f"interp1d, {f._kind}, outside": (lambda x, f=f: f(x), POINTS[1:5]) for f in TABLES},
    "interp1d, along an axis": (lambda y: interpolate.interp1d(np.arange(3.0), y)([[0.3, 1.2], [0.1, 1.9]]), M),
    "BSpline": (lambda x: SPLINE(x), POINTS),
    "BSpline, coefficients": (lambda c: interpolate.BSpline(BREAKS, c, 3)(POINTS), VALUES),
    "make_interp_spline": (lambda y: interpolate.make_interp_spline(KNOTS, y, k=2)(POINTS), VALUES),
    "interp1d": (lambda x: LINEAR(x), POINTS[1:5]),
    "interp1d, filled": (lambda x: FILLED(x), POINTS),
    "interp1d, extrapolated": (lambda x: ALONG(x), POINTS),
    "interp1d, values": (lambda y: interpolate.interp1d(KNOTS, y)(POINTS[1:5]), VALUES),
    "RegularGridInterpolator": (lambda x: GRID(x[:, :2]), np.abs(M) + 0.07),
    "RegularGridInterpolator, values": (
        lambda v: interpolate.RegularGridInterpolator((KNOTS, np.arange(3.0)), v)([[0.3, 0.4], [2.2, 1.7]]), M),
    "RegularGridInterpolator, nearest": (
        lambda v: interpolate.RegularGridInterpolator((KNOTS, np.arange(3.0)), v, "nearest")(M[2:3, 1:] + 0.2), M),
    "gaussian_filter": (lambda x: ndimage.gaussian_filter(x, 0.8), M),
    "gaussian_filter, two widths": (lambda x: ndimage.gaussian_filter(x, (0.8, 1.5), mode="constant", cval=2.0), M),
    "gaussian_filter1d": (lambda x: ndimage.gaussian_filter1d(x, 1.1, mode="wrap", order=1), V),
    "convolve1d": (lambda x: ndimage.convolve1d(x, [1.0, 2.0, -1.0], axis=0, mode="mirror"), M),
    "uniform_filter1d": (lambda x: ndimage.uniform_filter1d(x, 3), V),
    "ndimage.convolve": (lambda x: ndimage.convolve(x, x[:3, :2], mode="nearest"), M),
    "ndimage.correlate": (lambda x: ndimage.correlate(x, [[1.0, 2.0], [0.5, -1.0]], mode="constant", cval=1.0), M),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    f, x = CASES[name]
    np.testing.assert_allclose(tg.trace(f)(x), f(x), rtol=1e-10, atol=1e-12)
    of, v = weighted(f, name), np.sin(1.0 + np.arange(x.size)).reshape(x.shape)
    derivative = tg.grad(of)
    assert np.sum(derivative(x) * v) == pytest.approx(differences(of, x, v), rel=1e-7, abs=1e-8)
    with replayed():
        assert tg.jvp(of, (x,), (v,))[1] == pytest.approx(differences(of, x, v), rel=1e-7, abs=1e-8)
        second = tg.grad(named(lambda x: np.sum(derivative(x) * v), name))(x)
    want = differences(lambda x: np.sum(derivative(x) * v), x, v)
    assert np.sum(second * v) == pytest.approx(want, rel=1e-6, abs=1e-6)


def test_the_distance_of_two_points_is_a_number() -> None:
    assert type(tg.trace(lambda x: distance.euclidean(x[0], x[1]))(M)) is np.float64


def test_the_distance_of_a_point_from_itself_has_the_derivative_zero() -> None:
    derivative = tg.grad(lambda x: np.sum(distance.cdist(x, x)))(M)
    assert np.all(np.isfinite(derivative))


def test_a_spline_has_no_derivative_in_its_knots() -> None:
    np.testing.assert_allclose(tg.trace(lambda x: interpolate.CubicSpline(x, VALUES)(0.7))(KNOTS), LIKE(0.7))
    with pytest.raises(UnsupportedError, match=r"scipy\.interpolate\.CubicSpline has no derivative in the places"):
        tg.grad(lambda x: interpolate.CubicSpline(x, VALUES)(0.7))(KNOTS)


def test_another_spline_is_noticed() -> None:
    held = {"spline": SPLINE, "linear": LINEAR}
    f = tg.trace(lambda x: held["spline"](x) + held["linear"](x))
    assert f(0.7) == pytest.approx(SPLINE(0.7) + LINEAR(0.7))
    held["spline"] = interpolate.make_interp_spline(KNOTS, 2 * VALUES)
    held["linear"] = interpolate.interp1d(KNOTS, 3 * VALUES)
    assert f(0.7) == pytest.approx(2 * SPLINE(0.7) + 3 * LINEAR(0.7))


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (
            lambda x: interpolate.interp1d(KNOTS, x, "next", fill_value="extrapolate"),
            r"interpolate\.interp1d with kind=",
        ),
        (lambda x: distance.pdist(x[:, None], "jaccard"), r"scipy\.spatial\.distance\.pdist with metric='jaccard'"),
        (lambda x: CUBIC.roots(x), r"scipy\.interpolate\.CubicSpline\.roots"),
        (lambda x: ndimage.gaussian_filter(M, x[0]), r"scipy\.ndimage\.gaussian_filter1d with traced parameters"),
    ],
)
def test_what_is_not_known_is_refused_by_name(f: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        tg.trace(f)(VALUES)
