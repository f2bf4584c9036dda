"""A cart swings its pole up and stops within two seconds, with the least force.

The problem is from Kelly (2017), An Introduction to Trajectory Optimization, section 6. The unknowns are 50 forces of
40 ms each. The motion is a Python loop of Runge-Kutta steps, and its end is a constraint for SLSQP. `tg.scipy.minimize`
compiles the Jacobian through all steps. The exit code is 1 unless SciPy's `solve_ivp` brings the pole up with the same
forces, and the Jacobian matches finite differences. It prints times and saves `cart_pole.png`.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp

import tracegrad as tg

CART, POLE, LENGTH, GRAVITY = 1.0, 0.3, 0.5, 9.81  # kg, kg, m, m/s^2
DURATION, STRONGEST, STEPS, PARTS = 2.0, 20.0, 50, 2  # s, N
H = DURATION / STEPS
END = np.array([1.0, np.pi, 0.0, 0.0])  # 1 m to the right, upright, at rest


def motion(state, force):
    """Derivatives of position, angle from hanging down, and their speeds (equations 6.1, 6.2)."""
    _, angle, speed, turning = state
    sine, cosine = np.sin(angle), np.cos(angle)
    share = CART + POLE * sine**2
    pull = LENGTH * POLE * sine * turning**2 + force
    faster = (pull + POLE * GRAVITY * cosine * sine) / share
    return np.array([speed, turning, faster, -(faster * cosine + GRAVITY * sine) / LENGTH])


def states(forces):
    """The state at each time, from rest, by the Runge-Kutta method with two steps for each force."""
    found = np.zeros((STEPS + 1, 4))
    state, h = np.zeros(4), H / PARTS
    for i in range(STEPS):
        for _ in range(PARTS):
            k1 = motion(state, forces[i])
            k2 = motion(state + h / 2 * k1, forces[i])
            k3 = motion(state + h / 2 * k2, forces[i])
            k4 = motion(state + h * k3, forces[i])
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        found[i + 1] = state
    return found


def effort(forces):
    return H * np.sum(forces**2)


def missed(forces):
    """The end state minus the wanted end state."""
    return states(forces)[-1] - END


def main():
    jacobian = tg.jacrev(missed)
    clock = time.perf_counter()
    plan = tg.scipy.minimize(
        effort,
        np.zeros(STEPS),
        method="SLSQP",
        bounds=[(-STRONGEST, STRONGEST)] * STEPS,
        constraints={"type": "eq", "fun": missed},
        options={"maxiter": 300, "ftol": 1e-7},
        disp=True,
    )
    elapsed = time.perf_counter() - clock
    forces, path = plan.x, states(plan.x)

    near = 1e-6 * np.eye(STEPS)
    differences = np.stack([(missed(forces + d) - missed(forces - d)) / 2e-6 for d in near], axis=1)
    wrong = np.max(np.abs(jacobian(forces) - differences)) / np.max(np.abs(differences))
    state = np.zeros(4)
    for force in forces:
        state = solve_ivp(lambda _, y: motion(y, force), (0, H), state, rtol=1e-10, atol=1e-10).y[:, -1]  # noqa: B023
    apart = np.max(np.abs(state - END))

    print(f"SLSQP, first call and all               {elapsed:6.2f} s, {plan.nit} iterations, {plan.nfev} evaluations")
    print(f"effort                                  {plan.fun:.4f} N^2 s")
    print(f"greatest force                          {np.max(np.abs(forces)):.2f} N")
    print(f"Jacobian from that by differences       {wrong:.1e} of the largest")
    print(f"end of the motion by SciPy's solve_ivp  within {apart:.1e} of upright and at rest")

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for i in range(0, STEPS + 1, 2):
        place, angle = path[i, :2]
        shade = colormaps["viridis"](i / STEPS)
        left.plot([place, place + LENGTH * np.sin(angle)], [0, -LENGTH * np.cos(angle)], "-", color=shade, lw=1)
        left.plot([place + LENGTH * np.sin(angle)], [-LENGTH * np.cos(angle)], "o", color=shade)
        left.plot([place], [0], "s", color=shade, ms=8)
    left.axhline(0, color="black", lw=0.5, zorder=0)
    left.set(title="The pole from hanging (dark) to upright (light)", aspect="equal", xlabel="m")
    right.stairs(forces, np.linspace(0, DURATION, STEPS + 1), baseline=None)
    right.set(xlabel="s", ylabel="force, N", xlim=(0, DURATION))
    figure.savefig("cart_pole.png", dpi=120)
    return 0 if plan.success and wrong < 1e-6 and apart < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
