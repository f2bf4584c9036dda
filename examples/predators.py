"""Fit the Lotka-Volterra equations to pelts of hares and lynxes, through an integrator with adaptive steps.

The data are the Hudson Bay Company's, in thousands of pelts a year. The integrator is Dormand and Prince's 5(4) with a
`while` and rejected steps. The exit code is 1 unless the integrator agrees with SciPy's, the gradient with finite
differences, and the fit with the known rates: 0.55, 0.028, 0.80, 0.024. It prints the times and saves `predators.png`.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp

import tracegrad as tg

HARES = "30 47.2 70.2 77.4 36.3 20.6 18.1 21.4 22 25.4 27.1 40.3 57 76.6 52.3 19.5 11.2 7.6 14.6 16.2 24.7"
LYNXES = "4 6.1 9.8 35.2 59.4 41.7 19 13 8.3 9.1 7.4 8 12.3 19.5 45.7 51.1 29.7 15.8 9.7 10.1 8.6"
PELTS = np.log(np.array([HARES.split(), LYNXES.split()], float).T)
KNOWN = np.array([0.55, 0.028, 0.80, 0.024])
TOLERANCE = 1e-6


def rates(p, y):
    hares, lynxes = y
    return np.array([(p[0] - p[1] * lynxes) * hares, (p[3] * hares - p[2]) * lynxes])


def step(p, y, h):
    """One Dormand-Prince step: the new state, and its difference from the embedded method of order 4."""
    k1 = rates(p, y)
    k2 = rates(p, y + h * k1 / 5)
    k3 = rates(p, y + h * (3 / 40 * k1 + 9 / 40 * k2))
    k4 = rates(p, y + h * (44 / 45 * k1 - 56 / 15 * k2 + 32 / 9 * k3))
    k5 = rates(p, y + h * (19372 / 6561 * k1 - 25360 / 2187 * k2 + 64448 / 6561 * k3 - 212 / 729 * k4))
    k6 = rates(p, y + h * (9017 / 3168 * k1 - 355 / 33 * k2 + 46732 / 5247 * k3 + 49 / 176 * k4 - 5103 / 18656 * k5))
    new = y + h * (35 / 384 * k1 + 500 / 1113 * k3 + 125 / 192 * k4 - 2187 / 6784 * k5 + 11 / 84 * k6)
    k7 = rates(p, new)
    off = 71 / 57600 * k1 - 71 / 16695 * k3 + 71 / 1920 * k4 - 17253 / 339200 * k5 + 22 / 525 * k6 - k7 / 40
    return new, h * off


def populations(p, years=21):
    """Hares and lynxes in each year."""
    y = p[4:]
    states = np.empty((years, 2))
    states[0] = y
    h = 0.1
    for year in range(1, years):
        t, end = year - 1.0, float(year)
        while t < end:
            h = min(h, end - t)
            new, off = step(p, y, h)
            error = np.sqrt(np.mean((off / (TOLERANCE * (1 + np.maximum(np.abs(y), np.abs(new))))) ** 2))
            if error <= 1:
                t, y = t + h, new
            h *= min(5.0, max(0.2, 0.9 * max(error, 1e-10) ** -0.2))
        states[year] = y
    return states


def misfit(theta):
    """Sum of squares; theta has the logarithms of the four rates and of the initial populations."""
    return np.sum((np.log(populations(np.exp(theta))) - PELTS) ** 2)


def main():
    theta = np.log([0.5, 0.03, 0.7, 0.02, 30.0, 4.0])
    value_and_grad = tg.value_and_grad(misfit)
    clock = time.perf_counter()
    _, gradient = value_and_grad(theta)
    first = time.perf_counter() - clock
    near = 1e-4 * np.eye(6)
    differences = np.array([(misfit(theta + d) - misfit(theta - d)) / 2e-4 for d in near])
    wrong = np.max(np.abs(gradient - differences)) / np.max(np.abs(differences))

    clock = time.perf_counter()
    fit = tg.scipy.minimize(value_and_grad, theta, jac=True, method="BFGS", options={"gtol": 1e-4}, disp=True)
    elapsed = time.perf_counter() - clock
    p = np.exp(fit.x)
    accuracy = {"method": "DOP853", "rtol": 1e-10, "atol": 1e-10, "dense_output": True}
    exact = solve_ivp(lambda _, y: rates(p, y), (0, 20), p[4:], **accuracy).sol
    apart = np.max(np.abs(populations(p) - exact(np.arange(21)).T))

    print(f"first call (traces, compiles or loads)  {first:6.2f} s")
    print(f"BFGS, gradient from tracegrad           {elapsed:6.2f} s, {fit.nit} iterations, {fit.nfev} calls")
    print(f"gradient from that by differences       {wrong:.1e} of the largest")
    print(f"integrator from SciPy's                 {apart:.1e} thousand pelts")
    print("rates                                  ", *np.round(p[:4], 4))
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes, times = figure.subplots(), np.linspace(0, 20, 201)
    for k, name in enumerate(["hares", "lynxes"]):
        (points,) = axes.plot(range(1900, 1921), np.exp(PELTS[:, k]), "o", label=name)
        axes.plot(1900 + times, exact(times)[k], color=points.get_color())
    axes.set(title="Pelts of the Hudson Bay Company, thousands", xticks=range(1900, 1921, 5))
    axes.legend()
    figure.savefig("predators.png", dpi=120)
    return 0 if fit.success and wrong < 1e-4 and apart < 1e-2 and np.all(np.abs(p[:4] / KNOWN - 1) < 0.1) else 1


if __name__ == "__main__":
    sys.exit(main())
