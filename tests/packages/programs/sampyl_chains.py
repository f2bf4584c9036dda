"""Chains of `sampyl`, whose gradients are autograd's: the moments of the target."""

from __future__ import annotations

import collections
import collections.abc
from typing import Any

import numpy
import pytest

for _name in ("Hashable", "Iterable"):  # which Python had there when the package was written
    setattr(collections, _name, getattr(collections.abc, _name))

import sampyl as smp  # noqa: E402
from sampyl import np  # noqa: E402


def normal(x: Any) -> Any:
    return -0.5 * np.sum((x - 1.0) ** 2 / numpy.array([1.0, 4.0]))


def several(x: Any, scale: Any) -> Any:
    model = smp.Model()
    model.add(smp.normal(x, mu=2.0, sig=scale), smp.exponential(scale, rate=1.0))
    return model()


@pytest.mark.parametrize("sampler", ["NUTS", "Hamiltonian"])
def test_the_moments_of_a_normal(sampler: str) -> None:
    chain = getattr(smp, sampler)(normal, {"x": numpy.zeros(2)})
    draws = chain.sample(600, burn=100, progress_bar=False)
    assert numpy.mean(draws.x, axis=0) == pytest.approx([1.0, 1.0], abs=0.6)


def test_a_model_of_several_variables() -> None:
    chain = smp.NUTS(several, {"x": 1.0, "scale": 1.0})
    draws = chain.sample(300, burn=50, progress_bar=False)
    assert numpy.mean(draws.x) == pytest.approx(2.0, abs=1.5)
    assert numpy.all(draws.scale > 0)
