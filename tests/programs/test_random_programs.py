"""Random programs about memory mean the same plainly, traced and on the tape: a few of those that are run by hand."""

from __future__ import annotations

import numpy as np
import pytest
from random_programs import Runner, check, interpreted

pytestmark = pytest.mark.usefixtures("optimized")


@pytest.mark.parametrize("first", range(0, 150, 10))
def test_random_programs_mean_the_same(first: int) -> None:
    for seed in range(first, first + 10):
        with interpreted():
            check(seed)


@pytest.mark.parametrize("seed", [200, 201, 202])
def test_random_programs_mean_the_same_compiled(seed: int) -> None:
    check(seed)


def test_random_programs_ask_and_update() -> None:
    text = "\n".join(Runner(seed).text for seed in range(100))
    for part in ("facts.append", "+=", "] = ", "reshape(", "ravel(", "diagonal(", "einsum(", "asfortranarray(", "out="):
        assert part in text
    assert np.mean([Runner(seed).on_tape for seed in range(100)]) > 0.5
