"""Full waveform inversion: find the layers of the ground from a record of a bang at the surface.

The wave equation in one dimension is computed by slices, with arrays that are swapped. The unknowns are the speeds of
sound in two layers and the depth of their boundary; the record is noisy. The exit code is 1 unless the three values are
recovered, and the gradient matches finite differences. It prints the times and saves `wave.png`.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from matplotlib.figure import Figure

import tracegrad as tg

N, H = 201, 5.0  # points, and metres between them
STEPS, DT = 900, 1e-3
TRUE = np.array([1.8, 2.6, 0.45])  # km/s above, km/s below, km down to the boundary
DEPTH = H * np.arange(N)
BANG = 0.06  # s, the peak of the source


def recorded(theta):
    """Pressure at 20 m depth in each step; the bottom reflects."""
    above, below, boundary = 1000 * theta
    speed = above + (below - above) / (1 + np.exp(-(DEPTH - boundary) / 20))
    courant = (speed[1:-1] * DT / H) ** 2
    u, before = np.zeros(N), np.zeros(N)
    trace = np.zeros(STEPS)
    for i in range(STEPS):
        after = np.zeros(N)
        after[1:-1] = 2 * u[1:-1] - before[1:-1] + courant * (u[2:] - 2 * u[1:-1] + u[:-2])
        s = (np.pi * 15 * (i * DT - BANG)) ** 2
        after[4] += (1 - 2 * s) * np.exp(-s)
        u, before = after, u
        trace[i] = u[4]
    return trace


def misfit(theta, record):
    return np.sum((recorded(theta) - record) ** 2)


def main():
    rng = np.random.default_rng(0)
    record = recorded(TRUE)
    record += 0.02 * np.max(np.abs(record)) * rng.standard_normal(STEPS)
    theta = np.array([1.75, 2.4, 0.43])
    value_and_grad = tg.value_and_grad(misfit)
    clock = time.perf_counter()
    _, gradient = value_and_grad(theta, record)
    first = time.perf_counter() - clock
    near = 1e-6 * np.eye(3)
    differences = np.array([(misfit(theta + d, record) - misfit(theta - d, record)) / 2e-6 for d in near])
    wrong = np.max(np.abs(gradient / differences - 1))

    clock = time.perf_counter()
    fit = tg.scipy.minimize(value_and_grad, theta, args=(record,), jac=True, method="L-BFGS-B", disp=True)
    elapsed = time.perf_counter() - clock
    print(f"first call (traces, compiles or loads)  {first:6.2f} s")
    print(f"L-BFGS-B, gradient from tracegrad       {elapsed:6.2f} s, {fit.nit} iterations")
    print(f"gradient from that by differences       {wrong:.1e}")
    print("found (km/s, km/s, km)                 ", *np.round(fit.x, 4))
    print("true                                   ", *TRUE)
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    times = DT * np.arange(STEPS)
    axes.plot(times, record, color="lightgray", label="heard")
    axes.plot(times, recorded(theta), label="at the start", lw=1)
    axes.plot(times, recorded(fit.x), label="found", lw=1)
    axes.set(title="Pressure at 20 m of depth: the echo after the bang", xlabel="s", ylim=(-2, 2))
    axes.legend()
    figure.savefig("wave.png", dpi=120)
    return 0 if wrong < 1e-4 and np.all(np.abs(fit.x / TRUE - 1) < 0.01) else 1


if __name__ == "__main__":
    sys.exit(main())
