"""Frames of `anastruct`, which is written for NumPy: derivatives of displacements and forces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from anastruct import SystemElements
from gradients import gradient_by_differences, gradient_of


def beam(p: Any) -> Any:
    system = SystemElements(EI=p[0], EA=1e4)
    system.add_element(location=[[0, 0], [4, 0]])
    system.add_element(location=[[4, 0], [10, 0]])
    system.add_support_hinged(node_id=1)
    system.add_support_roll(node_id=3)
    system.point_load(node_id=2, Fy=-p[1])
    system.q_load(element_id=2, q=-p[2])
    system.solve()
    return system.get_node_displacements(node_id=2)["uy"]


def portal(p: Any) -> Any:
    system = SystemElements(EA=p[0] * 10)
    system.add_element(location=[[0, 0], [0, 5]], EI=p[0])
    system.add_element(location=[[0, 5], [5, 5]], EI=p[0] * 2)
    system.add_element(location=[[5, 5], [5, 0]], EI=p[0])
    system.add_support_fixed(node_id=1)
    system.add_support_fixed(node_id=4)
    system.point_load(node_id=2, Fx=p[1])
    system.moment_load(node_id=3, Tz=p[2])
    system.solve()
    return system.get_node_displacements(node_id=3)["ux"] + system.get_node_displacements(node_id=2)["phi_z"]


def truss(p: Any) -> Any:
    system = SystemElements(EA=p[0])
    for location in ([[0, 0], [2, 0]], [[2, 0], [4, 0]], [[0, 0], [2, 2]], [[2, 2], [4, 0]], [[2, 2], [2, 0]]):
        system.add_truss_element(location=location)
    system.add_support_hinged(node_id=1)
    system.add_support_roll(node_id=3)
    system.point_load(node_id=4, Fy=-p[1], Fx=p[2])
    system.solve()
    return system.get_node_displacements(node_id=4)["uy"] * 1e3


@pytest.mark.parametrize("f", [beam, portal, truss], ids=lambda f: f.__name__)
def test_the_gradient_is_that_of_differences(f: Any) -> None:
    for p in (np.array([5e3, 10.0, 2.0]), np.array([7e3, 6.0, 4.0])):
        np.testing.assert_allclose(gradient_of(f)(p), gradient_by_differences(f, p), rtol=1e-5, atol=1e-8)
