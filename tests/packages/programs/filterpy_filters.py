"""Filters of `filterpy`, which is written for NumPy: likelihoods' gradients with respect to models, noise and data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from filterpy.common import Q_discrete_white_noise
from filterpy.kalman import (
    CubatureKalmanFilter,
    ExtendedKalmanFilter,
    FadingKalmanFilter,
    IMMEstimator,
    InformationFilter,
    KalmanFilter,
    MerweScaledSigmaPoints,
    SquareRootKalmanFilter,
    UnscentedKalmanFilter,
)
from filterpy.leastsq import LeastSquaresFilter
from gradients import gradient_by_differences, gradient_of

RNG = np.random.default_rng(0)
DATA = np.cumsum(RNG.normal(size=6))
DT = 0.5


def prepared(kind: Any, p: Any, *args: Any) -> Any:
    """A filter of position and speed; `p` has the noise of the process, that of measurements, and a fading."""
    kf = kind(*args, dim_x=2, dim_z=1)
    kf.x = np.array([[0.0], [1.0]])
    kf.F = np.array([[1.0, DT], [0.0, p[2]]])
    kf.H = np.array([[1.0, 0.0]])
    if kind is not InformationFilter:
        kf.P, kf.R = np.eye(2) * 4.0, np.array([[p[1]]])
    kf.Q = Q_discrete_white_noise(dim=2, dt=DT, var=p[0]) + 0.01 * np.eye(2)
    return kf


def follow(kf: Any) -> None:
    for z in DATA:
        kf.predict()
        kf.update(z)


def likelihood(p: Any) -> Any:
    kf, total = prepared(KalmanFilter, p), 0.0
    for z in DATA:
        kf.predict()
        kf.update(z)
        total = total + kf.log_likelihood
    return total


def smoothed(p: Any) -> Any:
    kf = prepared(KalmanFilter, p)
    means, covariances, _, _ = kf.batch_filter(DATA)
    xs, ps, _, _ = kf.rts_smoother(means, covariances)
    return np.sum(xs**2) + np.sum(ps)


def missing(p: Any) -> Any:
    kf = prepared(KalmanFilter, p)
    for k, z in enumerate(DATA):
        kf.predict()
        kf.update(None if k % 2 else z)
    return np.sum(kf.x) + np.trace(kf.P)


def fading(p: Any) -> Any:
    kf = prepared(FadingKalmanFilter, p, 1.02)
    follow(kf)
    return np.sum(kf.x**2) + np.sum(kf.P)


def information(p: Any) -> Any:
    kf = prepared(InformationFilter, p)
    kf.P_inv = np.eye(2) / 4.0
    kf.R_inv = np.array([[1.0 / p[1]]])
    follow(kf)
    return np.sum(kf.x**2) + np.sum(kf.P_inv)


def square_root(p: Any) -> Any:
    kf = prepared(SquareRootKalmanFilter, p)
    follow(kf)
    return np.sum(kf.x**2) + np.sum(kf.P)


def extended(p: Any) -> Any:
    kf = prepared(ExtendedKalmanFilter, p)
    for z in DATA:
        kf.predict()
        kf.update(
            np.array([[z]]),
            lambda x: np.array([[np.cos(x[0, 0]), 0.0]]),
            lambda x: np.array([[np.sin(x[0, 0])]]),
        )
    return np.sum(kf.x**2) + np.sum(kf.P)


def moved(x: Any, dt: Any) -> Any:
    return np.array([x[0] + dt * x[1], x[1] - 0.1 * np.sin(x[0]) * dt])


def unscented(p: Any) -> Any:
    points = MerweScaledSigmaPoints(2, alpha=0.5, beta=2.0, kappa=1.0)
    kf = UnscentedKalmanFilter(2, 1, DT, hx=lambda x: x[:1] * p[2], fx=moved, points=points)
    kf.x, kf.P = np.array([0.0, 1.0]), np.eye(2)
    kf.R, kf.Q = np.array([[p[1]]]), Q_discrete_white_noise(2, DT, p[0])
    for z in DATA:
        kf.predict()
        kf.update(np.array([z]))
    return np.sum(kf.x**2) + np.sum(kf.P)


def cubature(p: Any) -> Any:
    kf = CubatureKalmanFilter(2, 1, DT, hx=lambda x: np.array([x[0] * p[2]]), fx=moved)
    kf.x, kf.P = np.array([[0.0], [1.0]]), np.eye(2)
    kf.R, kf.Q = np.array([[p[1]]]), Q_discrete_white_noise(2, DT, p[0])
    for z in DATA:
        kf.predict()
        kf.update(np.array([[z]]))
    return np.sum(kf.x**2) + np.sum(kf.P)


def switching(p: Any) -> Any:
    filters = [prepared(KalmanFilter, p), prepared(KalmanFilter, [p[0] * 5, p[1], p[2]])]
    imm = IMMEstimator(filters, np.array([0.5, 0.5]), np.array([[0.95, 0.05], [0.1, 0.9]]))
    for z in DATA:
        imm.predict()
        imm.update(np.array([[z]]))
    return np.sum(imm.x**2) + imm.mu[0]


def least_squares(p: Any) -> Any:
    kf = LeastSquaresFilter(dt=DT, order=1, noise_sigma=p[1])
    total = 0.0
    for z in DATA:
        total = total + kf.update(z * p[2])[0] ** 2
    return total


FUNCTIONS = [
    likelihood,
    smoothed,
    missing,
    fading,
    information,
    square_root,
    extended,
    unscented,
    cubature,
    switching,
    least_squares,
]


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_gradient_is_that_of_differences(f: Any) -> None:
    p = np.array([0.3, 0.8, 0.9])
    numeric = gradient_by_differences(f, p)
    np.testing.assert_allclose(gradient_of(f)(p), numeric, rtol=1e-4, atol=1e-6)
    again = np.array([0.5, 1.1, 1.0])
    np.testing.assert_allclose(gradient_of(f)(again), gradient_by_differences(f, again), rtol=1e-4, atol=1e-6)
