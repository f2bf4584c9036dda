"""How fast are whole programs that are loops, and what does their first call cost?

The programs are filters, fixed points, a simulation of particles, and training. Each is written once, as an iteration
and a Python loop; JAX runs the iteration in `lax.scan`. Complex steps of the same NumPy code check the derivatives.

An integrator with adaptive steps is a `while` for Python, tracegrad and HIPS autograd. JAX has no reverse mode of
`while_loop`, so it gets a scan over the maximum number of steps; steps after the end change nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import Case, Factory, Run, Settings
from benchmarks.namespaces import drawn, repeated
from benchmarks.peers import jitted, need

PACKAGES = ("tracegrad", "numba", "jax", "autograd")


class Program(NamedTuple):
    """A function of `xp` and of one number or array, which is differentiated by it."""

    name: str
    fun: Callable[..., Any]
    argument: Any


# -- filters ---------------------------------------------------------------------------------------------
POSITIONS = np.cumsum(drawn(0, 1000)) * 0.1
CHANGE, SIGHT = drawn(1, 8, 8), np.exp(drawn(2, 8, 5))
SHOWN = (SIGHT / SIGHT.sum(1)[:, None]).T[np.random.default_rng(3).integers(0, 5, 1000)]


def kalman(xp: Any, noise: Any) -> Any:
    """The log likelihood of 1,000 positions of something that moves, by a Kalman filter; noise: of motion and sight."""
    seen = xp.asarray(POSITIONS)
    move, see = xp.asarray([[1.0, 0.1], [0.0, 1.0]]), xp.asarray([[1.0, 0.0]])
    spread = noise[0] * xp.asarray([[0.25e-4, 0.5e-3], [0.5e-3, 1e-2]])
    one = xp.eye(2)

    def turn(state: Any, z: Any) -> Any:
        x, p, total = state
        x, p = move @ x, move @ p @ move.T + spread
        off = z - (see @ x)[0]
        s = (see @ p @ see.T)[0, 0] + noise[1]
        gain = (p @ see.T / s)[:, 0]
        x, p = x + gain * off, (one - xp.outer(gain, see[0])) @ p
        return x, p, total - 0.5 * (xp.log(2 * np.pi * s) + off**2 / s)

    return repeated(xp, turn, (0.0 * spread[0], 0.0 * spread + one, 0.0 * noise[0]), seen)[2]


def hidden_markov(xp: Any, stay: Any) -> Any:
    """The log likelihood of 1,000 symbols by the forward algorithm; 8 states, each of which stays with a probability
    that grows with `stay`."""
    change = xp.asarray(CHANGE) + stay * xp.eye(8)
    change = xp.exp(change) / xp.sum(xp.exp(change), axis=1)[:, None]

    def turn(state: Any, row: Any) -> Any:
        p, total = state
        p = (p @ change) * row
        c = xp.sum(p)
        return p / c, total + xp.log(c)

    return repeated(xp, turn, (0.0 * change[0] + 0.125, 0.0 * stay), xp.asarray(SHOWN))[1]


# -- fixed points ----------------------------------------------------------------------------------------
COST = np.random.default_rng(4).random((50, 60))


def sinkhorn(xp: Any, blur: Any) -> Any:
    """The cost of entropic transport between distributions on 50 and 60 points, after 100 iterations of Sinkhorn's."""
    cost = xp.asarray(COST)
    kernel = xp.exp(-cost / blur)

    def turn(state: Any, _: Any) -> Any:
        u, v = state
        u = 0.02 / (kernel @ v)
        return u, (1 / 60) / (kernel.T @ u)

    u, v = repeated(xp, turn, (0.0 * kernel[:, 0] + 1.0, 0.0 * kernel[0] + 1.0), np.zeros(100))
    return xp.sum(u[:, None] * kernel * cost * v)


# -- simulations -----------------------------------------------------------------------------------------
GRID = np.stack(np.meshgrid(*[np.arange(4.0)] * 3), -1).reshape(-1, 3)
SPEED = drawn(5, 64, 3) * 0.1


def particles(xp: Any, depth: Any) -> Any:
    """The kinetic energy of 64 particles under Lennard-Jones forces of this depth, after 500 leapfrog steps."""
    place, speed, h = xp.asarray(GRID * 1.2), xp.asarray(SPEED), 1e-3
    own, other = xp.asarray(np.eye(64)), xp.asarray(1 - np.eye(64))

    def pull(x: Any) -> Any:
        d = x[:, None, :] - x[None, :, :]
        r2 = xp.sum(d**2, -1) + own
        near = other / r2**3
        return xp.sum((24 * depth * (2 * near**2 - near) / r2)[:, :, None] * d, axis=1)

    def turn(state: Any, _: Any) -> Any:
        x, v, f = state
        v = v + 0.5 * h * f
        x = x + h * v
        f = pull(x)
        return x, v + 0.5 * h * f, f

    start = place + 0.0 * depth
    return 0.5 * xp.sum(repeated(xp, turn, (start, speed + 0.0 * depth, pull(start)), np.zeros(500))[1] ** 2)


def predators(xp: Any, rates: Any) -> Any:
    """The end of 1,000 classical Runge-Kutta steps of Lotka and Volterra's equations."""
    h = 0.01

    def slope(y: Any) -> Any:
        a, b = y
        return rates[0] * a - rates[1] * a * b, rates[3] * a * b - rates[2] * b

    def moved(y: Any, k: Any, by: float) -> Any:
        return y[0] + by * k[0], y[1] + by * k[1]

    def turn(y: Any, _: Any) -> Any:
        k1 = slope(y)
        k2 = slope(moved(y, k1, h / 2))
        k3 = slope(moved(y, k2, h / 2))
        k4 = slope(moved(y, k3, h))
        return tuple(z + h / 6 * (a + 2 * b + 2 * c + d) for z, a, b, c, d in zip(y, k1, k2, k3, k4))

    return sum(repeated(xp, turn, (1.0 + 0.0 * rates[0], 1.0 + 0.0 * rates[0]), np.zeros(1000)))


# -- training --------------------------------------------------------------------------------------------
EXAMPLES, LABELS = drawn(6, 64, 5), np.random.default_rng(7).integers(0, 2, 64) * 1.0


def training(xp: Any, rate: Any) -> Any:
    """The loss after 200 steps of Adam with this rate: logistic regression, 64 examples of 5 features."""
    x, y = xp.asarray(EXAMPLES), xp.asarray(LABELS)

    def guess(w: Any) -> Any:
        return 1 / (1 + xp.exp(-(x @ w)))

    def turn(state: Any, t: Any) -> Any:
        w, m, s = state
        g = x.T @ (guess(w) - y) / 64
        m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
        return w - rate * (m / (1 - 0.9**t)) / (xp.sqrt(s / (1 - 0.999**t)) + 1e-8), m, s

    start = rate * xp.zeros(5)
    w, *_ = repeated(xp, turn, (start, start, start), np.arange(1.0, 201.0))
    p = guess(w)
    return -xp.mean(y * xp.log(p) + (1 - y) * xp.log(1 - p))


PROGRAMS = (
    Program("Kalman filter, 1,000 observations", kalman, np.array([0.5, 0.2])),
    Program("hidden Markov model, 8 states, 1,000 symbols", hidden_markov, 1.5),
    Program("Sinkhorn, 50 by 60 points, 100 iterations", sinkhorn, 0.1),
    Program("64 particles, 500 leapfrog steps", particles, 1.0),
    Program("Lotka-Volterra, 1,000 Runge-Kutta steps", predators, np.array([1.5, 1.0, 3.0, 1.0])),
    Program("200 steps of Adam, by the rate", training, 0.003),
)


def by_complex_steps(program: Program) -> Any:
    """Value and gradient of a program: one call for each number of the argument."""
    x = np.asarray(program.argument, complex)
    steps = 1e-30j * np.eye(x.size).reshape(x.size, *x.shape)
    results = [program.fun(np, x + step) for step in steps]
    gradient = np.array([y.imag / 1e-30 for y in results]).reshape(x.shape)
    return results[0].real, gradient


def program_case(program: Program) -> Case:
    def tracegrad() -> Run:
        fun = functools.partial(program.fun, np)
        return functools.partial(need("tracegrad").value_and_grad(fun), program.argument)

    def jax() -> Run:
        module = need("jax")

        return jitted(module.value_and_grad(functools.partial(program.fun, module.numpy)), program.argument)

    peers: dict[str, Factory] = {"tracegrad": tracegrad, "jax": jax}
    name = f"{program.name}: value and gradient"
    return Case(name, peers, lambda: by_complex_steps(program), tolerance=1e-8)


# -- steps that are chosen -----------------------------------------------------------------------------------
STATES, HIDDEN, SPAN, ALLOWED, MOST_STEPS = 4, 16, 20.0, 1e-5, 64
WEIGHTS = [drawn(9, STATES, HIDDEN), 0.1 * drawn(10, HIDDEN), drawn(11, HIDDEN, STATES) / 4, 0.1 * drawn(12, STATES)]
HERE, THERE = drawn(13, STATES), drawn(14, STATES)


def dormand_prince(xp: Any, weights: Any, y: Any, h: Any) -> Any:
    """Where Dormand and Prince's step of a network's slopes leads, and how far off that is, of what is allowed."""
    inner, shift, outer, drift = weights

    def slope(y: Any) -> Any:
        return xp.tanh(y @ inner + shift) @ outer + drift

    k1 = slope(y)
    k2 = slope(y + h * k1 / 5)
    k3 = slope(y + h * (3 / 40 * k1 + 9 / 40 * k2))
    k4 = slope(y + h * (44 / 45 * k1 - 56 / 15 * k2 + 32 / 9 * k3))
    k5 = slope(y + h * (19372 / 6561 * k1 - 25360 / 2187 * k2 + 64448 / 6561 * k3 - 212 / 729 * k4))
    k6 = slope(y + h * (9017 / 3168 * k1 - 355 / 33 * k2 + 46732 / 5247 * k3 + 49 / 176 * k4 - 5103 / 18656 * k5))
    new = y + h * (35 / 384 * k1 + 500 / 1113 * k3 + 125 / 192 * k4 - 2187 / 6784 * k5 + 11 / 84 * k6)
    off = 71 / 57600 * k1 - 71 / 16695 * k3 + 71 / 1920 * k4 - 17253 / 339200 * k5 + 22 / 525 * k6 - slope(new) / 40
    allowed = ALLOWED * (1 + xp.maximum(xp.abs(y), xp.abs(new)))
    return new, xp.sqrt(xp.mean((h * off / allowed) ** 2))


def neural_ode(weights: Any, xp: Any = np) -> Any:
    """How far from a state a neural differential equation leads, along steps of its own choice."""
    y, t, h = HERE, 0.0, 0.5
    while t < SPAN:
        h = min(h, SPAN - t)
        new, error = dormand_prince(xp, weights, y, h)
        if error <= 1:
            t, y = t + h, new
        h = h * min(5.0, max(0.2, 0.9 * max(error, 1e-10) ** -0.2))
    return xp.sum((y - THERE) ** 2)


def neural_ode_by_differences() -> Any:
    """Value and gradient."""
    derivatives = [np.empty(w.shape) for w in WEIGHTS]
    for k, w in enumerate(WEIGHTS):
        for at in np.ndindex(w.shape):
            near = [[*WEIGHTS[:k], w + step, *WEIGHTS[k + 1 :]] for step in _steps(w, at)]
            low, high = map(neural_ode, near)
            derivatives[k][at] = (high - low) / 2e-6
    return neural_ode(WEIGHTS), derivatives


def _steps(w: Any, at: tuple[int, ...]) -> tuple[Any, Any]:
    step = np.zeros_like(w)
    step[at] = 1e-6
    return -step, step


def neural_ode_case() -> Case:
    def jax() -> Run:
        module = need("jax")
        xp = module.numpy

        def loss(weights: Any) -> Any:
            def turn(state: Any, _: Any) -> Any:
                y, t, h = state
                h = xp.minimum(h, SPAN - t)
                # A step of no length would have no derivative of its error.
                new, error = dormand_prince(xp, weights, y, xp.where(t < SPAN, h, 0.1))
                longer = h * xp.minimum(5.0, xp.maximum(0.2, 0.9 * xp.maximum(error, 1e-10) ** -0.2))
                goes, is_good = t < SPAN, error <= 1
                y, t = xp.where(goes & is_good, new, y), xp.where(goes & is_good, t + h, t)
                return (y, t, xp.where(goes, longer, h)), None

            y, *_ = module.lax.scan(turn, (xp.asarray(HERE), 0.0, 0.5), None, MOST_STEPS)[0]
            return xp.sum((y - THERE) ** 2)

        return jitted(module.value_and_grad(loss), WEIGHTS)

    def autograd() -> Run:
        module = need("autograd")
        loss = functools.partial(neural_ode, xp=module.numpy)
        return functools.partial(module.value_and_grad(loss), WEIGHTS)

    peers: dict[str, Factory] = {
        "tracegrad": lambda: functools.partial(need("tracegrad").value_and_grad(neural_ode), WEIGHTS),
        "jax": jax,
        "autograd": autograd,
    }
    name = f"neural ODE, {STATES} states, {HIDDEN} hidden, adaptive steps: value and gradient"
    return Case(name, peers, neural_ode_by_differences, tolerance=1e-6)


def cases(settings: Settings) -> Iterator[Case]:
    yield from map(program_case, PROGRAMS)
    yield neural_ode_case()
