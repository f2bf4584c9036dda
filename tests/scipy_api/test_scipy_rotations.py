"""`scipy.spatial.transform` and Procrustes' problem in traced code: SciPy's values, and derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import check_along, replayed
from scipy import linalg, spatial
from scipy.spatial.transform import Rotation, Slerp

import tracegrad as tg
from tracegrad.errors import UnsupportedError

V, E = np.array([0.4, -0.3, 0.8]), np.array([0.3, -0.7, 0.5])
Q = np.array([0.1, 0.5, -0.3, 0.7])
MANY = np.array([[0.13, -0.13, 0.64], [0.1, -0.54, 0.36], [1.3, 0.95, -0.7], [-1.27, -0.62, 0.04]])
OUTSIDE, OTHERS = Rotation.from_rotvec([0.1, 0.2, 0.3]), Rotation.from_rotvec(MANY)
MATRIX = Rotation.from_rotvec(V).as_matrix()
NEAR = MANY @ MATRIX + 0.1 * np.cos(np.arange(12)).reshape(4, 3)
SEQUENCES = ("xyz", "zyx", "zxz", "yxz", "XYZ", "ZYX", "YXY")

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "from_rotvec": (lambda x: Rotation.from_rotvec(x).as_matrix(), V),
    "from_rotvec at the identity": (lambda x: Rotation.from_rotvec(x).as_matrix(), np.zeros(3)),
    "as_rotvec": (lambda x: Rotation.from_quat(x).as_rotvec(), Q),
    "as_rotvec, scalar first": (lambda x: Rotation.from_quat(x, scalar_first=True).as_rotvec(degrees=True), -Q),
    "as_rotvec at the identity": (lambda x: Rotation.from_rotvec(x).as_rotvec(), np.zeros(3)),
    "as_quat": (lambda x: Rotation.from_rotvec(x * 9).as_quat(canonical=True), V),
    "apply of many": (lambda x: Rotation.from_rotvec(x).apply([1.0, 2.0, 3.0]), MANY),
    "apply inverse": (lambda x: Rotation.from_rotvec(x).apply(MANY, inverse=True), V),
    "from_matrix": (lambda x: Rotation.from_matrix(x).as_rotvec(), MATRIX),
    "from_matrix of many": (lambda x: Rotation.from_matrix(x).as_matrix(), OTHERS.as_matrix()),
    "from_matrix of no rotation": (
        lambda x: Rotation.from_matrix(x).as_mrp(),
        MATRIX + 0.1 * np.sin(np.arange(9)).reshape(3, 3),
    ),
    "a product with one from outside": (lambda x: (Rotation.from_rotvec(x) * OUTSIDE).apply(MANY), V),
    "a product of inverses": (
        lambda x: (OUTSIDE * Rotation.from_euler("zyx", 50 * x, degrees=True)).inv().as_quat(),
        E,
    ),
    "one from outside": (lambda x: OUTSIDE.apply(x) * OTHERS.inv().apply(x), MANY),
    "a power": (lambda x: (Rotation.from_rotvec(x) ** 0.3).as_matrix(), V),
    "magnitude": (lambda x: Rotation.from_rotvec(x).magnitude(), V),
    "from_mrp": (lambda x: Rotation.from_mrp(x).as_mrp(), V),
    "mean": (lambda x: Rotation.from_rotvec(x).mean([1, 2, 1, 1]).as_matrix(), 0.3 * MANY),
    "align_vectors": (
        lambda x: Rotation.align_vectors(x, MANY)[0].as_matrix() + Rotation.align_vectors(x, MANY)[1],
        NEAR,
    ),
    "concatenate": (lambda x: Rotation.concatenate([Rotation.from_rotvec(x), OUTSIDE]).as_euler("xyz"), V),
    "parts": (
        lambda x: Rotation.from_rotvec(x)[1:3].as_mrp() + sum(r.magnitude() for r in Rotation.from_rotvec(x)),
        MANY,
    ),
    "Slerp": (lambda x: Slerp([0, 1, 2, 3], Rotation.from_rotvec(x))([0.3, 1.7, 3.0]).as_rotvec(), 0.5 * MANY),
    "Slerp from outside": (lambda x: BETWEEN(x).as_matrix(), np.array([0.3, 1.2, 2.9])),
    "one angle": (lambda x: Rotation.from_euler("Z", x[0]).as_matrix(), E),
    "orthogonal_procrustes": (lambda x: linalg.orthogonal_procrustes(x, MANY)[0] * x[:3], NEAR),
    "procrustes": (lambda x: spatial.procrustes(x, MANY)[1] + spatial.procrustes(x, MANY)[2], NEAR),
    **{f"from_euler {s}": (lambda x, s=s: Rotation.from_euler(s, x).as_matrix(), E) for s in SEQUENCES},
    **{f"as_euler {s}": (lambda x, s=s: Rotation.from_rotvec(x).as_euler(s), V) for s in SEQUENCES},
}
BETWEEN = Slerp([0, 1, 2, 3], OTHERS)


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_those_of_differences(name: str) -> None:
    f, x = CASES[name]
    check_along(f, x, name, (1e-11, 1e-12), (1e-7, 1e-8), (1e-5, 1e-6))


@pytest.mark.filterwarnings("ignore:Gimbal lock")
@pytest.mark.parametrize("seq", SEQUENCES)
def test_where_two_of_three_angles_are_one_the_third_is_0(seq: str) -> None:
    locked = 0.0 if seq[0] == seq[2] else np.pi / 2
    for middle in (locked, locked + np.pi if locked == 0 else -locked):
        q = Rotation.from_euler(seq, [0.3, middle, 0.4]).as_quat()
        got = tg.trace(lambda q: Rotation.from_quat(q).as_euler(seq))(q)
        np.testing.assert_allclose(got, Rotation.from_quat(q).as_euler(seq), atol=1e-12)


def test_another_rotation_outside_is_noticed() -> None:
    held = {"iteration": OUTSIDE}
    transposed = tg.trace(lambda x: held["iteration"].apply(x))
    with replayed():
        np.testing.assert_allclose(transposed(V), OUTSIDE.apply(V), rtol=1e-14)
        held["iteration"] = OUTSIDE.inv()
        np.testing.assert_allclose(transposed(V), OUTSIDE.inv().apply(V), rtol=1e-14)


def test_bad_input_is_refused_as_by_scipy() -> None:
    with replayed():
        assert tg.trace(lambda x: isinstance(Rotation.from_rotvec(x), Rotation) and isinstance(OUTSIDE, Rotation))(V)
        with pytest.raises(ValueError, match="consecutive axes"):
            tg.grad(lambda x: Rotation.from_euler("xxz", x).magnitude())(E)
        with pytest.raises(ValueError, match="last dimension of `angles`"):
            tg.grad(lambda x: Rotation.from_euler("xy", x).magnitude())(E)
        with pytest.raises(ValueError, match="rotvec"):
            tg.grad(lambda x: Rotation.from_rotvec(x).magnitude())(Q)
        with pytest.raises(ValueError, match="Interpolation times"):
            tg.grad(lambda x: BETWEEN(x).magnitude()[0])(np.array([3.5]))
        with pytest.raises(TypeError, match="no len"):
            tg.grad(lambda x: len(Rotation.from_rotvec(x)))(V)
        with pytest.raises(UnsupportedError, match=r"Rotation\.as_davenport"):
            tg.grad(lambda x: Rotation.from_rotvec(x).as_davenport([1, 0, 0], "extrinsic").sum())(V)
        with pytest.raises(ValueError, match="same shape"):
            tg.grad(lambda x: spatial.procrustes(x, MANY)[2])(MANY[:3])
        with pytest.raises(ValueError, match="shapes of A and B differ"):
            tg.grad(lambda x: linalg.orthogonal_procrustes(x, MANY)[1])(MANY[:3])
