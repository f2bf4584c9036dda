"""Programs as people write them with NumPy, many with classes: values are NumPy's, slopes those of differences."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
import pytest
from along import differences, named, replayed

import tracegrad as tg

rng = np.random.default_rng(5)


class Program(NamedTuple):
    """A function of an array, and the array."""

    fun: Callable[[Any], Any]
    x: Any


PROGRAMS: dict[str, Program] = {}


def program(x: Any) -> Callable[[Any], Any]:
    """Enter a function into the table."""

    def enter(fun: Any) -> Any:
        PROGRAMS[fun.__name__] = Program(fun, x)
        return fun

    return enter


class Dense:
    def __init__(self, weights: Any, bias: Any):
        self.weights, self.bias, self.cache = weights, bias, {}

    def __call__(self, x: Any) -> Any:
        self.cache["x"] = x
        return x @ self.weights + self.bias

    @property
    def norm(self) -> Any:
        return np.sqrt((self.weights**2).sum())


class Leaky:
    def __call__(self, x: Any) -> Any:
        out = x.copy()
        out[out < 0] *= 0.1
        return out


class Network:
    def __init__(self, *layers: Any):
        self.layers = list(layers)

    def __call__(self, x: Any) -> Any:
        return reduce(lambda h, layer: layer(h), self.layers, x)

    def __iter__(self) -> Any:
        return iter(self.layers)

    def __getitem__(self, k: int) -> Any:
        return self.layers[k]


@program(rng.normal(size=(3, 4)))
def network(weights: Any) -> Any:
    net = Network(Dense(weights, np.ones(4)), Leaky(), Dense(weights.T, np.zeros(3)))
    loss = np.mean(net(np.arange(6.0).reshape(2, 3)) ** 2)
    return loss + sum(layer.norm for layer in net if isinstance(layer, Dense)) + net[2].cache["x"].sum()


class Quaternion:
    __slots__ = ("w", "x", "y", "z")

    def __init__(self, w: Any, x: Any, y: Any, z: Any):
        self.w, self.x, self.y, self.z = w, x, y, z

    @classmethod
    def from_axis(cls, axis: Any, angle: Any) -> Any:
        axis = axis / np.linalg.norm(axis)
        return cls(math.cos(angle / 2), *(math.sin(angle / 2) * axis))

    def __mul__(self, other: Any) -> Any:
        p, q = self, other
        return Quaternion(
            p.w * q.w - p.x * q.x - p.y * q.y - p.z * q.z,
            p.w * q.x + p.x * q.w + p.y * q.z - p.z * q.y,
            p.w * q.y - p.x * q.z + p.y * q.w + p.z * q.x,
            p.w * q.z + p.x * q.y - p.y * q.x + p.z * q.w,
        )

    def conjugate(self) -> Any:
        return Quaternion(self.w, -self.x, -self.y, -self.z)

    def rotate(self, v: Any) -> Any:
        q = self * Quaternion(0.0, *v) * self.conjugate()
        return np.array([q.x, q.y, q.z])


@program(np.array([0.3, -0.7, 0.2, 1.1]))
def rotation(x: Any) -> Any:
    transposed = Quaternion.from_axis(x[:3], x[3]).rotate(np.array([1.0, 2.0, -0.5]))
    return transposed @ np.array([1.0, 0.5, 0.25])


@dataclasses.dataclass
class Body:
    place: Any
    speed: Any
    mass: float = 1.0
    trail: list[Any] = dataclasses.field(default_factory=list)

    @property
    def energy(self) -> Any:
        return 0.5 * self.mass * float(self.speed @ self.speed)

    def drift(self, dt: float) -> None:
        self.place += self.speed * dt
        self.trail.append(self.place.copy())


class Bodies:
    strength = 1.5

    def __init__(self, bodies: list[Body]):
        self.bodies = bodies

    def pull(self, i: int) -> Any:
        total = np.zeros(2)
        for j, other in enumerate(self.bodies):
            if i == j:
                continue
            r = other.place - self.bodies[i].place
            total += self.strength * other.mass * r / (np.linalg.norm(r) ** 3 + 1e-3)
        return total

    def step(self, dt: float) -> None:
        for i, body in enumerate(self.bodies):
            body.speed += self.pull(i) * dt
        for body in self.bodies:
            body.drift(dt)

    def energy(self) -> Any:
        total = sum(body.energy for body in self.bodies)
        for p, q in itertools.combinations(self.bodies, 2):
            total -= self.strength * p.mass * q.mass / np.linalg.norm(p.place - q.place)
        return total


@program(rng.normal(size=(3, 2)) * 2)
def gravity(x: Any) -> Any:
    system = Bodies([Body(p.copy(), np.array([0.1, -0.2]) * k, 1.0 + 0.5 * k) for k, p in enumerate(x)])
    for _ in range(2):
        system.step(0.05)
    return system.energy() + system.bodies[0].trail[-1].sum()


class Process:
    """A Gaussian process."""

    def __init__(self, scale: Any, noise: float = 1e-3):
        self.scale, self.noise = scale, noise

    def kernel(self, a: Any, b: Any) -> Any:
        return np.exp(-0.5 * np.subtract.outer(a, b) ** 2 / self.scale**2)

    def fit(self, x: Any, y: Any) -> Any:
        K = self.kernel(x, x)
        K.flat[:: len(x) + 1] += self.noise
        self.factor = np.linalg.cholesky(K)
        self.y, self.weights = y, np.linalg.solve(self.factor.T, np.linalg.solve(self.factor, y))
        return self

    @cached_property
    def evidence(self) -> Any:
        return -0.5 * self.y @ self.weights - np.log(np.diagonal(self.factor)).sum()


@program(np.array([0.8, 0.3, -0.4, 0.9, 0.1]))
def evidence(x: Any) -> Any:
    process = Process(x[0]).fit(np.linspace(-1.0, 1.0, 4), x[1:])
    return process.evidence + process.evidence


class Chain:
    """A hidden Markov model."""

    def __init__(self, moves: Any, shown: Any):
        self.moves, self.shown, self.first = moves, shown, np.ones(len(moves)) / len(moves)

    def forward(self, seen: list[int]) -> Any:
        steps = len(seen)
        alpha, scale = np.zeros((steps, len(self.moves))), np.zeros(steps)
        alpha[0] = self.first * self.shown[:, seen[0]]
        for t in range(steps):
            if t:
                alpha[t] = (alpha[t - 1] @ self.moves) * self.shown[:, seen[t]]
            scale[t] = alpha[t].sum()
            alpha[t] /= scale[t]
        return alpha, scale

    def best(self, seen: list[int]) -> Any:
        score = np.log(self.first) + np.log(self.shown[:, seen[0]])
        for k in seen[1:]:
            score = np.max(score[:, None] + np.log(self.moves), axis=0) + np.log(self.shown[:, k])
        return np.max(score)


@program(rng.normal(size=(3, 7)))
def markov(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    chain = Chain(e[:, :3] / e[:, :3].sum(1, keepdims=True), e[:, 3:] / e[:, 3:].sum(1, keepdims=True))
    alpha, scale = chain.forward([0, 3, 1, 2])
    return np.sum(np.log(scale)) + chain.best([0, 3, 1]) + alpha[-1, 0]


class Dual:
    """A number with a derivative."""

    def __init__(self, value: Any, derivative: Any = 0.0):
        self.value, self.derivative = value, derivative

    def __add__(self, other: Any) -> Any:
        return Dual(self.value + other.value, self.derivative + other.derivative)

    def __mul__(self, other: Any) -> Any:
        other = other if isinstance(other, Dual) else Dual(other)
        return Dual(self.value * other.value, self.value * other.derivative + self.derivative * other.value)

    __rmul__ = __mul__

    def __lt__(self, other: Any) -> Any:
        return self.value < other.value


@program(np.array([0.4, 1.2, -0.7]))
def duals(x: Any) -> Any:
    numbers = [Dual(v, 1.0) for v in x]
    total = sum((2.0 * d * d for d in numbers), Dual(0.0))
    return total.derivative + sorted(numbers)[0].value ** 2 + max(numbers).value


@program(rng.uniform(0.5, 1.5, 9))
def shortest_path(w: Any) -> Any:
    near = defaultdict(list)
    for k, (a, b) in enumerate([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (3, 5), (4, 5)]):
        near[a].append((b, w[k]))
        near[b].append((a, w[k]))
    result, done, waiting = {0: 0.0}, set(), [(0.0, 0)]
    while waiting:
        d, u = heapq.heappop(waiting)
        if u in done:
            continue
        done.add(u)
        for v, c in near[u]:
            if v not in result or d + c < result[v]:
                result[v] = d + c
                heapq.heappush(waiting, (d + c, v))
    return result[5] ** 2


@program(1 + 0.1 * rng.random(6))
def elements(k: Any) -> Any:
    nodes = np.linspace(0, 1, 7) ** 1.5
    ends = np.column_stack([np.arange(6), np.arange(1, 7)])
    matrix, load, u = np.zeros((7, 7)), np.zeros(7), np.zeros(7)
    each = (k / np.diff(nodes))[:, None, None] * np.array([[1, -1], [-1, 1.0]])
    np.add.at(matrix, (ends[:, :, None], ends[:, None, :]), each)
    np.add.at(load, ends, (np.diff(nodes) / 2)[:, None])
    free = np.setdiff1d(np.arange(7), [0, 6])
    u[free] = np.linalg.solve(matrix[np.ix_(free, free)], load[free])
    return u @ load


@program(np.concatenate([rng.normal(size=(6, 2)), rng.normal(size=(7, 2)) + 4]))
def means_of_clusters(x: Any) -> Any:
    centers, labels = x[[0, 8]].copy(), None
    for _ in range(20):
        distance = ((x[:, None] - centers[None]) ** 2).sum(-1)
        new = distance.argmin(1)
        if labels is not None and np.array_equal(new, labels):
            break
        labels = new
        for k in range(2):
            if np.any(labels == k):
                centers[k] = x[labels == k].mean(axis=0)
    return distance.min(1).sum() + centers[0, 0]


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_numpy_and_derivatives_those_of_differences(name: str, eager: bool) -> None:
    f, x = PROGRAMS[name]
    v = np.random.default_rng(1).normal(size=x.shape) / np.sqrt(x.size)
    wanted = pytest.approx(differences(f, x, v), rel=1e-7)
    with tg.disable_jit() if eager else nullcontext(), replayed():
        assert tg.trace(named(f, name))(x.copy()) == pytest.approx(f(x.copy()), rel=1e-12)
        value, derivatives = tg.value_and_grad(named(f, name))(x.copy())
        assert value == pytest.approx(f(x.copy()), rel=1e-12)
        assert np.vdot(derivatives, v) == wanted
        assert tg.jvp(named(f, name), (x.copy(),), (v,))[1] == wanted
