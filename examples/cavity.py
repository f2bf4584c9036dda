"""The lid-driven cavity at Reynolds 100, and its derivatives by viscosity and lid speed.

Vorticity and stream function on 41 by 41 points are updated by in-place slices until the flow is steady. The exit code
is 1 unless the velocity on the centre line is that of Ghia, Ghia and Shin (1982), and the derivatives match finite
differences. It prints the times of plain NumPy and of the gradients, and saves `cavity.png`.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from matplotlib.figure import Figure

import tracegrad as tg

N = 41
H = 1 / (N - 1)
DT = 0.005
STEPS, SWEEPS = 2000, 5
GHIA = -0.2109, 0.4531  # the least u on the vertical centre line, and its y


def cavity(viscosity, lid, steps=STEPS):
    """Velocities u and v, x along the second axis; the lid is the last row."""
    psi, w = np.zeros((N, N)), np.zeros((N, N))
    u, v = np.zeros((N, N)), np.zeros((N, N))
    u[-1, 1:-1] = lid
    for _ in range(steps):
        for _ in range(SWEEPS):
            psi[1:-1, 1:-1] = (
                psi[2:, 1:-1] + psi[:-2, 1:-1] + psi[1:-1, 2:] + psi[1:-1, :-2] + H**2 * w[1:-1, 1:-1]
            ) / 4
        w[-1, :] = -2 * (psi[-2, :] / H**2 + lid / H)
        w[0, :] = -2 * psi[1, :] / H**2
        w[:, 0] = -2 * psi[:, 1] / H**2
        w[:, -1] = -2 * psi[:, -2] / H**2
        u[1:-1, 1:-1] = (psi[2:, 1:-1] - psi[:-2, 1:-1]) / (2 * H)
        v[1:-1, 1:-1] = (psi[1:-1, :-2] - psi[1:-1, 2:]) / (2 * H)
        across = (w[1:-1, 2:] - w[1:-1, :-2]) / (2 * H)
        up = (w[2:, 1:-1] - w[:-2, 1:-1]) / (2 * H)
        spread = (w[2:, 1:-1] + w[:-2, 1:-1] + w[1:-1, 2:] + w[1:-1, :-2] - 4 * w[1:-1, 1:-1]) / H**2
        w[1:-1, 1:-1] += DT * (viscosity * spread - u[1:-1, 1:-1] * across - v[1:-1, 1:-1] * up)
    return u, v


def energy(viscosity, lid, steps=STEPS):
    u, v = cavity(viscosity, lid, steps)
    return 0.5 * H**2 * np.sum(u**2 + v**2)


def told(what):
    """Print the stage; each takes a second or more."""
    print(f"\r{what:30}", end="", file=sys.stderr, flush=True)


def main():
    told("gradient, compiling")
    value_and_grad = tg.value_and_grad(energy, argnums=(0, 1))
    clock = time.perf_counter()
    value, gradient = value_and_grad(0.01, 1.0)
    first = time.perf_counter() - clock
    clock = time.perf_counter()
    value_and_grad(0.01, 1.0)
    second = time.perf_counter() - clock
    told("plain NumPy")
    clock = time.perf_counter()
    u, v = cavity(0.01, 1.0)
    plain = time.perf_counter() - clock
    least = np.min(u[:, N // 2]), H * np.argmin(u[:, N // 2])

    told("differences")
    differences = [
        (energy(0.01 + 1e-6, 1.0) - energy(0.01 - 1e-6, 1.0)) / 2e-6,
        (energy(0.01, 1.0 + 1e-4) - energy(0.01, 1.0 - 1e-4)) / 2e-4,
    ]
    wrong = max(abs(a / b - 1) for a, b in zip(gradient, differences, strict=True))
    told("done")
    print(file=sys.stderr)
    print(f"plain NumPy                             {plain:6.2f} s")
    print(f"first gradient (compiles or loads)      {first:6.2f} s")
    print(f"another gradient                        {second:6.2f} s")
    print(f"least u on the centre line              {least[0]:.4f} at {least[1]:.3f}; Ghia: {GHIA[0]} at {GHIA[1]}")
    print(f"kinetic energy                          {value:.5f}")
    print(
        f"its derivatives by viscosity and lid    {gradient[0]:.4f} {gradient[1]:.4f}; by differences "
        f"{differences[0]:.4f} {differences[1]:.4f}"
    )
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    places = H * np.arange(N)
    left.streamplot(places, places, u, v, color=np.hypot(u, v), density=1.5, linewidth=0.8, arrowsize=0.7)
    left.set(title="Streamlines, under a lid that moves right", aspect="equal", xlim=(0, 1), ylim=(0, 1))
    right.plot(u[:, N // 2], places)
    right.plot(*GHIA, "o", label="Ghia, Ghia and Shin")
    right.set(title="Velocity on the centre line", xlabel="u", ylabel="y")
    right.legend()
    figure.savefig("cavity.png", dpi=120)
    return 0 if wrong < 1e-4 and abs(least[0] / GHIA[0] - 1) < 0.05 and abs(least[1] - GHIA[1]) < H else 1


if __name__ == "__main__":
    sys.exit(main())
