"""Small random programs of Tensors do what PyTorch does: `torch_programs.py` has them, and what PyTorch gave."""

from __future__ import annotations

import json
from typing import Any

import pytest
from torch_programs import COUNT, DATA, program, run

import tracegrad as tg

RECORDED = json.loads(DATA.read_text())


def agrees(got: Any, want: Any) -> bool:
    """Whether these are equal, numbers up to rounding."""
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(agrees(got[k], want[k]) for k in want)
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(map(agrees, got, want))
    return bool(got == pytest.approx(want, rel=1e-9, abs=1e-12, nan_ok=True)) if type(want) is float else got == want


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_program_of_tensors_does_what_pytorch_does(seed: int) -> None:
    lines, want = program(seed), RECORDED[str(seed)]
    got = run(tg, lines)
    assert (got["done"], got["error"]) == (want["done"], want["error"]), "\n".join(lines)
    assert agrees(got["log"], want["log"]), "\n".join(lines)
    for name, known in want["tensors"].items():
        assert agrees(got["tensors"][name], known), f"{name}: {got['tensors'][name]}, {known}\n" + "\n".join(lines)
