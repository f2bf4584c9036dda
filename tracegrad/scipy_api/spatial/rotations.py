"""Rotations of `scipy.spatial.transform` as unit quaternions, scalar last, and their interpolation.

Rotations from traced code and from outside have one class, whose results equal SciPy's. Near the identity, functions
of the angle are power series in its square, so derivatives of all orders are right there too. A matrix is replaced by
the nearest rotation, as in SciPy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.scipy_api.registry import replaces_objects, shadow
from tracegrad.typing import Array, ArrayLike, NDArray

# Angles in radians. Below the first, power series are exact. Within the second of a pole, two of the three Euler angles
# have the same axis (gimbal lock).
_SMALL, _LOCKED = 1e-3, 1e-7
# Number of iterations that average a matrix with the transpose of its inverse. A rotation with rounding errors needs
# two for the nearest rotation and its first and second derivatives; other matrices need more.
_POLISH_STEPS, _POLAR_STEPS = 2, 20
_AXES = "xyz"


def _numbers(x: ArrayLike, last: int, name: str) -> Array:
    (x,) = arrays(x)
    if not x.ndim or x.shape[-1] != last:
        raise ValueError(f"Expected `{name}` to have shape (..., {last}), got {x.shape}.")
    return to_float(x)


def _dot(x: Array, y: Array) -> Array:
    result: Array = np.sum(x * y, axis=-1, keepdims=True)
    return result


def _unit(x: Array) -> Array:
    return x / np.sqrt(_dot(x, x))


def _composed(p: Array, q: Array) -> Array:
    """Multiply two quaternions: the rotation `q`, and then `p`."""
    u, v, a, b = p[..., :3], q[..., :3], p[..., 3:], q[..., 3:]
    return np.concatenate([a * v + b * u + np.cross(u, v), a * b - _dot(u, v)], axis=-1)


def _upright(q: Array) -> Array:
    """Return the quaternion of a rotation whose scalar is not negative."""
    return np.where(q[..., 3:] < 0, -q, q)


def _orthogonal(m: Array) -> Array:
    """Return the nearest rotation."""
    near = np.allclose(m @ np.swapaxes(m, -1, -2), np.eye(3), rtol=0.0, atol=1e-6)
    for _ in range(_POLISH_STEPS if near else _POLAR_STEPS):
        m = (m + np.swapaxes(np.linalg.inv(m), -1, -2)) / 2
    return m


def _about(axis: int, angle: Array) -> Array:
    half, zero = angle / 2, np.zeros_like(angle)
    parts = [zero, zero, zero, np.cos(half)]
    parts[axis] = np.sin(half)
    return np.stack(parts, axis=-1)


def _axes(seq: str) -> tuple[list[int], bool]:
    """Return the axes of a sequence, and whether they are intrinsic."""
    turning = seq.isupper()
    if not 1 <= len(seq) <= 3 or not set(seq.lower()) <= set(_AXES) or seq not in (seq.upper(), seq.lower()):
        raise ValueError(f"Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], got {seq}")
    axes = [_AXES.index(c) for c in seq.lower()]
    if any(i == j for i, j in itertools.pairwise(axes)):
        raise ValueError(f"Expected consecutive axes to be different, got {seq}")
    return axes, turning


@shadow("scipy.spatial.transform.Rotation")
class Rotation:
    """`scipy.spatial.transform.Rotation`."""

    def __init__(self, quat: ArrayLike, normalize: bool = True, copy: bool = True, scalar_first: bool = False):
        q = _numbers(quat, 4, "quat")
        q = np.roll(q, -1, axis=-1) if scalar_first else q
        self._q = _unit(q) if normalize else q

    @staticmethod
    def _of(q: Array) -> Rotation:
        return Rotation(q, normalize=False)

    # -- constructors --------------------------------------------------------------------------------------
    @staticmethod
    def from_quat(quat: ArrayLike, *, scalar_first: bool = False) -> Rotation:
        return Rotation(quat, scalar_first=scalar_first)

    @staticmethod
    def from_rotvec(rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        v = _numbers(rotvec, 3, "rotvec")
        v = np.deg2rad(v) if degrees else v
        square = _dot(v, v)
        small = square <= _SMALL**2
        angle = np.sqrt(np.where(small, 1.0, square))
        scale = np.where(small, 0.5 - square / 48 + square**2 / 3840, np.sin(angle / 2) / angle)
        scalar = np.where(small, 1 - square / 8 + square**2 / 384, np.cos(angle / 2))
        return Rotation._of(np.concatenate([scale * v, scalar], axis=-1))

    @staticmethod
    def from_matrix(matrix: ArrayLike, *, assume_valid: bool = False) -> Rotation:
        m = _numbers(matrix, 3, "matrix")
        m = m if assume_valid else _orthogonal(m)
        (a, b, c), (d, e, f), (g, h, i) = [[m[..., j, k] for k in range(3)] for j in range(3)]
        trace = a + e + i
        # Four times the outer product of the quaternion with itself: each row is a multiple of the quaternion.
        rows = [
            [1 - trace + 2 * a, b + d, c + g, h - f],
            [b + d, 1 - trace + 2 * e, f + h, c - g],
            [c + g, f + h, 1 - trace + 2 * i, d - b],
            [h - f, c - g, d - b, 1 + trace],
        ]
        longest = np.argmax(np.stack([a, e, i, trace], axis=-1), axis=-1)[..., None]
        result = np.stack(rows[3], axis=-1)
        for k in range(3):
            result = np.where(longest == k, np.stack(rows[k], axis=-1), result)
        return Rotation._of(_unit(result))

    @staticmethod
    def from_euler(seq: str, angles: ArrayLike, degrees: bool = False) -> Rotation:
        axes, turning = _axes(seq)
        x = to_float(arrays(angles)[0])
        x = x if x.ndim else x[None]
        if x.shape[-1] != len(axes):
            raise ValueError(f"Expected last dimension of `angles` to match number of axes {len(axes)}, got {x.shape}.")
        x = np.deg2rad(x) if degrees else x
        result = _about(axes[0], x[..., 0])
        for k, axis in enumerate(axes[1:], 1):
            other = _about(axis, x[..., k])
            result = _composed(result, other) if turning else _composed(other, result)
        return Rotation._of(result)

    @staticmethod
    def from_mrp(mrp: ArrayLike) -> Rotation:
        v = _numbers(mrp, 3, "mrp")
        square = _dot(v, v)
        return Rotation._of(np.concatenate([2 * v, 1 - square], axis=-1) / (1 + square))

    @staticmethod
    def identity(num: int | None = None, *, shape: int | Sequence[int] | None = None) -> Rotation:
        size = shape if num is None else num
        axes = () if size is None else (size,) if isinstance(size, int) else tuple(size)
        return Rotation._of(np.broadcast_to(np.array([0.0, 0.0, 0.0, 1.0]), (*axes, 4)))

    @staticmethod
    def concatenate(rotations: Rotation | Iterable[Rotation]) -> Rotation:
        parts = [rotations] if isinstance(rotations, Rotation) else list(rotations)
        return Rotation._of(np.concatenate([x._q if x._q.ndim > 1 else x._q[None] for x in parts]))

    @staticmethod
    def align_vectors(
        a: ArrayLike, b: ArrayLike, weights: ArrayLike | None = None, return_sensitivity: bool = False
    ) -> tuple[Rotation, Array]:
        x, y = _numbers(a, 3, "a"), _numbers(b, 3, "b")
        if return_sensitivity or x.ndim < 2 or x.shape[0] < 2:
            raise refuse("scipy.spatial.transform.Rotation.align_vectors of one vector, or with its sensitivity")
        w = np.ones(x.shape[0]) if weights is None else arrays(weights)[0]
        u, s, vh = np.linalg.svd(np.swapaxes(w[:, None] * x, 0, 1) @ y)
        signs = np.where(np.linalg.det(u @ vh) < 0, np.array([1.0, 1.0, -1.0]), 1.0)
        residual = np.sum(w * np.sum(x**2 + y**2, axis=-1)) - 2 * np.sum(s * signs)
        result = Rotation.from_matrix((u * signs) @ vh, assume_valid=True)
        return result, np.sqrt(np.maximum(residual, 0.0))

    # -- properties and conversions ------------------------------------------------------------------------
    @property
    def single(self) -> bool:
        return bool(self._q.ndim == 1)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._q.shape[:-1])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return int(self._q.shape[0])

    def __getitem__(self, key: int | slice | Sequence[int] | NDArray) -> Rotation:
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation._of(self._q[key])

    def __iter__(self) -> Iterator[Rotation]:
        return (self[k] for k in range(len(self)))

    def as_quat(self, canonical: bool = False, *, scalar_first: bool = False) -> Array:
        q = _upright(self._q) if canonical else self._q
        return np.roll(q, 1, axis=-1) if scalar_first else q

    def as_matrix(self) -> Array:
        x, y, z, w = (self._q[..., k] for k in range(4))
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w],
        ]
        return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)

    def as_rotvec(self, degrees: bool = False) -> Array:
        q = _upright(self._q)
        v, square = q[..., :3], _dot(q[..., :3], q[..., :3])
        small = square <= _SMALL**2 / 4
        sine = np.sqrt(np.where(small, 1.0, square))
        series = 2 + square / 3 + 3 * square**2 / 20 + 5 * square**3 / 56
        result = np.where(small, series, 2 * np.arctan2(sine, q[..., 3:]) / sine) * v
        return np.rad2deg(result) if degrees else result

    def as_mrp(self) -> Array:
        q = _upright(self._q)
        return q[..., :3] / (1 + q[..., 3:])

    def as_euler(self, seq: str, degrees: bool = False, *, suppress_warnings: bool = False) -> Array:
        # Bernardes and Viollet, "Quaternion to Euler angles conversion", PLoS ONE 17(11), 2022.
        axes, turning = _axes(seq)
        if len(axes) != 3:
            raise ValueError(f"Expected 3 axes, got {seq}.")
        i, j, k = axes[::-1] if turning else axes
        proper = i == k
        k = 3 - i - j if proper else k
        sign = (i - j) * (j - k) * (k - i) // 2
        p, q, r, w = self._q[..., i], self._q[..., j], self._q[..., k] * sign, self._q[..., 3]
        a, b, c, d = (w, p, q, r) if proper else (w - q, p + r, q + w, r - p)
        middle = 2 * np.arctan2(np.hypot(c, d), np.hypot(a, b))
        total, difference = np.arctan2(b, a), np.arctan2(d, c)
        low, high = np.abs(middle) <= _LOCKED, np.abs(middle - math.pi) <= _LOCKED
        first, third = total - difference, total + difference
        saved = np.where(low, 2 * total, 2 * difference * (1 if turning else -1))
        locked, zero = low | high, np.zeros_like(first)
        result = [third, middle, first] if turning else [first, middle, third]
        result[0], result[2] = np.where(locked, saved, result[0]), np.where(locked, zero, result[2])
        if not proper:
            last = 0 if turning else 2
            result[last], result[1] = result[last] * sign, middle - math.pi / 2
        iterations = [x - 2 * math.pi * (x > math.pi) + 2 * math.pi * (x < -math.pi) for x in result]
        output = np.stack(iterations, axis=-1)
        return np.rad2deg(output) if degrees else output

    def magnitude(self) -> Array:
        result: Array = 2 * np.arctan2(np.linalg.norm(self._q[..., :3], axis=-1), np.abs(self._q[..., 3]))
        return result

    def approx_equal(self, other: Rotation, atol: float | None = None, degrees: bool = False) -> Array:
        max_angle = 1e-8 if atol is None else np.deg2rad(atol) if degrees else atol
        return (other * self.inv()).magnitude() < max_angle

    # -- operations ----------------------------------------------------------------------------------------
    def apply(self, vectors: ArrayLike, inverse: bool = False) -> Array:
        v, m = _numbers(vectors, 3, "vectors"), self.as_matrix()
        result: Array = np.matmul(np.swapaxes(m, -1, -2) if inverse else m, v[..., None])[..., 0]
        return result

    def inv(self) -> Rotation:
        return Rotation._of(self._q * np.array([-1.0, -1.0, -1.0, 1.0]))

    def __mul__(self, other: object) -> Rotation:
        return Rotation._of(_unit(_composed(self._q, other._q))) if isinstance(other, Rotation) else NotImplemented

    def __pow__(self, n: float, modulus: object = None) -> Rotation:
        if modulus is not None:
            raise NotImplementedError("modulus not supported")
        return Rotation.from_rotvec(n * self.as_rotvec())

    def mean(self, weights: ArrayLike | None = None, axis: int | None = None) -> Rotation:
        if axis is not None or self._q.ndim > 2:
            raise refuse("scipy.spatial.transform.Rotation.mean along an axis")
        q = self._q if self._q.ndim > 1 else self._q[None]
        w = np.ones(q.shape[0]) if weights is None else arrays(weights)[0]
        return Rotation._of(np.linalg.eigh(np.swapaxes(w[:, None] * q, 0, 1) @ q)[1][:, -1])

    def __getattr__(self, name: str) -> Any:
        from scipy.spatial import transform

        if not name.startswith("_") and hasattr(transform.Rotation, name):
            raise refuse(f"scipy.spatial.transform.Rotation.{name}")
        raise AttributeError(f"'Rotation' object has no attribute {name!r}")


@shadow("scipy.spatial.transform.Slerp")
class Slerp:
    """`scipy.spatial.transform.Slerp`: interpolation of rotations along the shortest path."""

    def __init__(self, times: ArrayLike, rotations: Rotation):
        if not isinstance(rotations, Rotation) or rotations.single or len(rotations) < 2:
            raise ValueError("`rotations` must be a sequence of at least 2 rotations.")
        (self.times,) = arrays(times)
        if self.times.shape != (len(rotations),):
            raise ValueError("Expected number of rotations to be equal to number of timestamps given.")
        self.rotations = rotations[:-1]
        self.rotvecs = (self.rotations.inv() * rotations[1:]).as_rotvec()

    def __call__(self, times: ArrayLike) -> Rotation:
        (t,) = arrays(times)
        knots = self.times
        if np.any((t < knots[0]) | (t > knots[-1])):
            raise ValueError(f"Interpolation times must be within the range [{knots[0]}, {knots[-1]}], both inclusive.")
        at = np.maximum(np.searchsorted(knots, t) - 1, 0)
        begin, end, first, iteration = (
            np.take(arrays(x, i)[0], i, axis=0)
            for x, i in ((knots, at), (knots, at + 1), (self.rotations.as_quat(), at), (self.rotvecs, at))
        )
        return Rotation._of(first) * Rotation.from_rotvec(iteration * ((t - begin) / (end - begin))[..., None])


@replaces_objects("scipy.spatial.transform")
def _of_transform(value: Any, read: Any) -> Any:
    cls = type(value).__name__
    if cls not in ("Rotation", "Slerp"):
        return None
    if read is not None:
        read.whole()
    if cls == "Rotation":
        return Rotation._of(value.as_quat())
    result = Slerp.__new__(Slerp)
    result.times, result.rotations, result.rotvecs = value.times, _of_transform(value.rotations, None), value.rotvecs
    return result
